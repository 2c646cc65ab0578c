"""Who else writes our files: what we wrote last, compared with what stands there, and how long we then keep off.

The first foreign write is corrected at once; each further one within the hour doubles the time before the next
correction, so that two controllers never fight faster than that.
"""

from __future__ import annotations

import dataclasses

from koordlite.model.cpuset import CPUSet
from koordlite.model.decision import CgroupChange, CgroupField
from koordlite.model.outcome import ForeignWrite
from koordlite.model.snapshot import Cgroup, Snapshot

MAX_BACK_OFF_SECONDS = 60.0
FORGET_SECONDS = 3600.0


def present_value(cgroup: Cgroup, field: CgroupField) -> CPUSet | int | None:
    """What stands in the file of `field`; None where it is absent or nobody asked to see it."""
    match field:
        case "cpuset.cpus":
            return cgroup.cpuset
        case "cpu.quota":
            return cgroup.quota_us
        case _:
            return cgroup.values.get(field)


@dataclasses.dataclass(slots=True)
class _Fight:
    times: int = 0
    last: float = 0.0
    not_before: float = 0.0


class ForeignWriters:
    """Remembers our last value of each cgroup file we wrote."""

    def __init__(self) -> None:
        self._ours: dict[str, CgroupChange] = {}
        self._fights: dict[str, _Fight] = {}

    def wrote(self, change: CgroupChange) -> None:
        """We wrote this value, or what the kernel makes of it."""
        self._ours[change.place] = change

    def forget(self, place: str) -> None:
        """The file is not ours any more."""
        self._ours.pop(place, None)
        self._fights.pop(place, None)

    def look(self, seen: Snapshot) -> tuple[ForeignWrite, ...]:
        """Files whose value is not the one we wrote last; each is told once."""
        found: list[ForeignWrite] = []
        for place, change in list(self._ours.items()):
            cgroup = seen.cgroups.get(change.group)
            if cgroup is None:
                self.forget(place)
                continue
            present = present_value(cgroup, change.field)
            if present is not None and present != change.value:
                found.append(ForeignWrite(place, str(change.value), str(present)))
                self._note(place, seen.time)
                del self._ours[place]
        return tuple(found)

    def keep_off(self, place: str, now: float) -> bool:
        """Whether a correction of this file has to wait."""
        fight = self._fights.get(place)
        return fight is not None and now < fight.not_before

    def count(self, place: str) -> int:
        """How often somebody else changed this file within the last hour of fighting."""
        fight = self._fights.get(place)
        return fight.times if fight else 0

    def _note(self, place: str, now: float) -> None:
        fight = self._fights.setdefault(place, _Fight())
        if now - fight.last > FORGET_SECONDS:
            fight.times = 0
        fight.times, fight.last = fight.times + 1, now
        wait = 0.0 if fight.times == 1 else min(2.0 ** (fight.times - 1), MAX_BACK_OFF_SECONDS)
        fight.not_before = now + wait
