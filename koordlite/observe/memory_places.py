"""Memory of containers with a promise, allowed and actual NUMA nodes: in turns, since the kernel adds it up
for long."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from koordlite.host import numa_memory
from koordlite.host.cgroups.filesystem import Cgroups
from koordlite.model.cpuset import EMPTY, CPUSet
from koordlite.model.picture.groups import MemoryPlace, PodGroups
from koordlite.observe.rotation import Rotation

SECONDS = 15.0
"""Within which every one is looked at again; it is published once a minute."""
AT_LEAST = 4
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class MemoryPlaceReader:
    """Remembers what was read from one turn to the next."""

    def __init__(self, cgroups: Cgroups) -> None:
        self._cgroups = cgroups
        self._groups = Rotation(self._of_group, seconds=SECONDS, at_least=AT_LEAST)

    def read(self, now: float, places: Iterable[PodGroups]) -> Mapping[str, MemoryPlace]:
        """By group of a container; one that is gone, or whose files cannot be read, is missing."""
        groups = [group for place in places for group in place.containers.values()]
        if not groups:
            return {}
        self._groups.begin(now)
        found = self._groups.all(groups)
        self._groups.end()
        return found

    def _of_group(self, group: str) -> MemoryPlace | None:
        mems, used = self._mems(group), self._used(group)
        return MemoryPlace(mems, used) if mems or used else None

    def _mems(self, group: str) -> CPUSet:
        """Empty where the kernel does not say: on v1 before Linux 3.17."""
        try:
            return CPUSet.parse(self._cgroups.read_raw(group, "cpuset.mems.effective").decode().strip())
        except (OSError, ValueError):
            return EMPTY

    def _used(self, group: str) -> Mapping[int, int]:
        try:
            raw = self._cgroups.read_raw(group, "memory.numa_stat")
            return numa_memory.of_group(raw, version=self._cgroups.layout.version, page_bytes=_PAGE_BYTES, below=True)
        except (OSError, ValueError):
            return {}
