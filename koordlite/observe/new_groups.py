"""Groups that are made between two ticks: when to look at them, and how often.

One look is not enough. A runtime makes the group, puts its own first process into it, writes values over ours, and then
makes the mounts that say which container it is; the container's program replaces that process up to a second later. So
a group is looked at again whenever what tells its state has changed: its shares, and the container that its first
process belongs to.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

import msgspec

from koordlite.host.bundle import Host
from koordlite.host.sentinel import GroupNotices
from koordlite.model.picture.groups import PodGroups
from koordlite.model.snapshot import Snapshot
from koordlite.model.status import Beginning
from koordlite.observe import places
from koordlite.ports import Clock

LOOKS_SECONDS = (0.0, 0.03, 0.08, 1.05)
"""Times after a group was made at which it is read, whatever its state. Last when nobody waits for kubelet any more
(`apply.beginnings`)."""
PROBES_SECONDS = ((2.0, 0.05), (10.0, 0.25))
"""Up to which age of a group its state is read, and how often."""
REST = 2
"""Pause between two rounds in times of the duration of the last one: a third of a core at most while pods pour in."""
_PIECE_SECONDS = 0.2
"""Longest piece of a wait that a stop does not end."""


State = tuple[bytes, str]
"""The shares of a group and the name of its container, empty while its mounts do not say."""


def state(host: Host, group: str) -> State | None:
    """The state of a group at this moment; None when it is gone."""
    try:
        raw = host.cgroups.read_present(group, "cpu.shares")
    except OSError:
        raw = b""
    return None if raw is None else (raw, places.container_of_group(host, group) or "")


class _Start(msgspec.Struct):
    """A group that begins."""

    began: float
    due: float
    """Time of the next reading of its state."""
    state: State | None = None


class NewGroups:
    """Notes which groups were made, and when each is to be looked at. Without `notices` it knows of none."""

    def __init__(
        self,
        clock: Clock,
        notices: GroupNotices | None = None,
        *,
        state: Callable[[str], State | None] = lambda _: None,
        why: str = "",
    ) -> None:
        """`state` reads the state of a group; `why` says why there are no notices."""
        self._clock, self._notices, self._state_of, self._why = clock, notices, state, why
        self._starts: dict[str, _Start] = {}
        self._places: Mapping[str, PodGroups] | None = None
        self._looks: dict[str, tuple[float, ...]] = {}
        self._rests_until = 0.0
        self._rounds = self._overflows = 0
        self.has_lost = False
        """True where `take_lost` will say yes."""

    @property
    def fileno(self) -> int | None:
        """Descriptor that can be read when a group was made; None without notices."""
        return self._notices.fileno() if self._notices else None

    @property
    def state(self) -> Beginning:
        """State for reports."""
        notices = self._notices
        return Beginning(
            watched=len(notices) if notices else 0,
            why=notices.why if notices else self._why,
            rounds=self._rounds,
            overflows=self._overflows,
        )

    def watch(self, snapshot: Snapshot) -> None:
        """Watch kubelet's groups and those of the pods in `snapshot`."""
        if self._notices is None or snapshot.places is self._places:
            return
        layout, self._places = snapshot.layout, snapshot.places
        pods = (place.group for place in snapshot.places.values())
        inside = self._notices.watch((layout.kubepods, layout.burstable, layout.besteffort, *pods))
        self._note(inside - snapshot.cgroups.keys())

    def wait(self, seconds: float) -> bool:
        """Pass `seconds` at most, and not much longer than a stop may take; True when a group was made."""
        assert self._notices is not None
        if not self._notices.wait(min(seconds, _PIECE_SECONDS)):
            return False
        self.collect()
        return True

    def collect(self) -> None:
        """Take in what the kernel has reported."""
        assert self._notices is not None
        notices = self._notices.take()
        self._note(notices.groups)
        if notices.lost:
            self._overflows, self.has_lost = self._overflows + 1, True

    def _note(self, groups: Iterable[str]) -> None:
        now = self._clock.monotonic()
        for group in groups:
            self._starts[group] = _Start(began=now, due=now + PROBES_SECONDS[0][1])
            self._looks[group] = tuple(now + after for after in LOOKS_SECONDS)

    @property
    def due(self) -> float:
        """Time when there is something to look at, by the clock; infinite when there is nothing."""
        looks = (times[0] for times in self._looks.values())
        first = min((*looks, *(start.due for start in self._starts.values())), default=math.inf)
        return max(first, self._rests_until)

    def take(self) -> frozenset[str]:
        """The groups that are to be looked at now."""
        now = self._clock.monotonic()
        if now < self._rests_until:
            return frozenset()
        self._probe(now)
        due = frozenset(group for group, times in self._looks.items() if times[0] <= now)
        pending = {group: tuple(t for t in times if t > now) for group, times in self._looks.items()}
        self._looks = {group: times for group, times in pending.items() if times}
        return due

    def _probe(self, now: float) -> None:
        """Look again at groups whose state has changed; forget those that are gone or old."""
        for group, start in [(group, start) for group, start in self._starts.items() if start.due <= now]:
            age, current = now - start.began, self._state_of(group)
            pause = next((each for until, each in PROBES_SECONDS if age < until), None)
            if current is None or pause is None:
                del self._starts[group]
                continue
            if current != start.state and start.state is not None:
                self._looks[group] = (now, *self._looks.get(group, ()))
            start.state, start.due = current, now + pause

    def looked(self, snapshot: Snapshot, seconds: float) -> None:
        """A round about new groups, on the picture `snapshot`, took so long."""
        self.watch(snapshot)
        self._rounds += 1
        self._rests_until = self._clock.monotonic() + REST * seconds

    def take_lost(self) -> bool:
        """Tell whether the kernel lost notices since this was asked last: only a whole tick finds what they were
        about."""
        lost, self.has_lost = self.has_lost, False
        return lost

    def close(self) -> None:
        """Give the descriptor back."""
        if self._notices:
            self._notices.close()
            self._notices = None
