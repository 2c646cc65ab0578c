"""Who else writes our files and our fields of the Node: what we wrote last, compared with what stands there, and how
long we then keep off.

The first foreign write is corrected at once; each further one within the hour doubles the time before the next
correction, so that two controllers never fight faster than that.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Set

from koordlite.changes.block_device import BlockChange
from koordlite.changes.cgroup import CgroupChange, present
from koordlite.formulas import blkio
from koordlite.model.change import NodeChange
from koordlite.model.picture.groups import Cgroup
from koordlite.model.place import Place
from koordlite.model.snapshot import Snapshot
from koordlite.model.status.outcome import ForeignWrite

MAX_BACK_OFF_SECONDS = 60.0
FORGET_SECONDS = 3600.0
MAX_PLACES = 2000
"""Pods come and go: the file that was fought over longest ago is forgotten first."""


@dataclasses.dataclass(slots=True)
class _Fight:
    times: int = 0
    last: float = 0.0
    not_before: float = 0.0


class ForeignWriters:
    """Remembers our last value of each cgroup file and each field of the Node we wrote."""

    def __init__(self) -> None:
        self._ours: dict[Place, CgroupChange] = {}
        self._lines: dict[Place, BlockChange] = {}
        self._promises: dict[Place, NodeChange] = {}
        self._fights: dict[Place, _Fight] = {}
        self._looked_at: Mapping[str, Cgroup] | None = None

    def wrote(self, change: CgroupChange | BlockChange | NodeChange) -> None:
        """We wrote this value, or what the kernel makes of it."""
        if isinstance(change, BlockChange):
            self._lines[change.place] = change
            return
        if isinstance(change, NodeChange):
            self._promises[change.place] = change
            return
        self._ours[change.place] = change
        self._looked_at = None

    def unsure(self, place: Place) -> None:
        """Whether our last write of this field of the Node was taken is not known: what stands there may be ours."""
        self._promises.pop(place, None)

    def forget(self, place: Place) -> None:
        """The file is not ours any more."""
        self._ours.pop(place, None)
        self._lines.pop(place, None)
        self._promises.pop(place, None)
        self._fights.pop(place, None)

    def check(self, seen: Snapshot) -> tuple[ForeignWrite, ...]:
        """Files whose value is not the one we wrote last; each is reported once."""
        found = [*self._changed_lines(seen), *self._changed_promises(seen)]
        if seen.cgroups is self._looked_at:
            return tuple(found)  # The same picture of all files as the last time.
        self._looked_at = seen.cgroups
        for place, change in list(self._ours.items()):
            cgroup = seen.cgroups.get(change.group)
            if cgroup is None:
                self.forget(place)
                continue
            stands = present(cgroup, change.field)
            if stands is not None and stands != change.value:
                found.append(ForeignWrite(place, str(change.value), str(stands)))
                self._note(place, seen.time)
                del self._ours[place]
        return tuple(found)

    def _changed_lines(self, seen: Snapshot) -> Iterator[ForeignWrite]:
        """The same of disks; a group nobody asks about any more is not looked at."""
        for place, change in list(self._lines.items()):
            held = seen.blocks.values.get(change.group, {}).get(change.field)
            present = None if held is None else held.get(change.device, blkio.UNSET[change.field])
            if present is not None and blkio.holds(present, change.value or ""):
                continue
            del self._lines[place]
            if present is not None:
                self._note(place, seen.time)
                yield ForeignWrite(place, change.value or "", present)

    def _changed_promises(self, seen: Snapshot) -> Iterator[ForeignWrite]:
        """The same of the Node: Koordinator's manager writes these fields too. A Node that is gone takes them along."""
        for place, change in list(self._promises.items()):
            present = change.held(seen)
            if seen.node is not None and present == change.value:
                continue
            del self._promises[place]
            if seen.node is not None:
                self._note(place, seen.time)
                yield ForeignWrite(place, _shown(change.value), _shown(present))

    def keep_off(self, place: Place, now: float) -> bool:
        """Whether a correction of this file has to wait."""
        fight = self._fights.get(place)
        return fight is not None and now < fight.not_before

    def count(self, place: Place) -> int:
        """How often another process changed this file within the last hour of fighting."""
        fight = self._fights.get(place)
        return fight.times if fight else 0

    def kept_off_seconds(self, place: Place, now: float) -> float:
        """How long a correction of this file still has to wait; 0 when it has not."""
        fight = self._fights.get(place)
        return max(0.0, fight.not_before - now) if fight else 0.0

    @property
    def fought(self) -> Set[Place]:
        """Files that another process has changed."""
        return self._fights.keys()

    def _note(self, place: Place, now: float) -> None:
        fight = self._fights[place] = self._fights.pop(place, _Fight())
        if len(self._fights) > MAX_PLACES:
            del self._fights[next(iter(self._fights))]
        if now - fight.last > FORGET_SECONDS:
            fight.times = 0
        fight.times, fight.last = fight.times + 1, now
        # A fight that goes on for a day comes to exponents that no float holds.
        wait = 0.0 if fight.times == 1 else min(2.0 ** min(fight.times - 1, 10), MAX_BACK_OFF_SECONDS)
        fight.not_before = now + wait


def _shown(value: int | str | None) -> str:
    return "(absent)" if value is None else str(value)
