"""Memory in use on each NUMA node, by the machine and by best effort. The kernel adds it up for long, so in turns."""

from __future__ import annotations

import os
from collections.abc import Mapping

from koordlite.host import numa_memory
from koordlite.host.cgroups.filesystem import Cgroups
from koordlite.model.topology import Topology
from koordlite.ports import Files

MACHINE = ""
SECONDS = 5.0
"""Within which it is read again."""
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class NumaMemoryReader:
    """Remembers what was read last."""

    def __init__(self, files: Files, cgroups: Cgroups) -> None:
        self._files, self._cgroups = files, cgroups
        self._read_at: float | None = None
        self._kept: dict[str, Mapping[int, int]] = {}

    def read(self, now: float, topology: Topology) -> Mapping[str, Mapping[int, int]]:
        """Bytes by NUMA node, by group: the machine (empty) and best effort; what cannot be read is missing."""
        if self._read_at is None or now - self._read_at >= SECONDS:
            self._read_at = now
            group = self._cgroups.layout.besteffort
            found = {MACHINE: self._of_machine(topology), group: self._of_group(group)}
            self._kept = {name: used for name, used in found.items() if used}
        return self._kept

    def _of_machine(self, topology: Topology) -> dict[int, int]:
        found: dict[int, int] = {}
        for node in topology.nodes:
            try:
                found[node.id] = numa_memory.of_node(
                    self._files.read(f"/sys/devices/system/node/node{node.id}/meminfo")
                )
            except (OSError, ValueError):
                continue  # A machine without NUMA has no such folder.
        return found

    def _of_group(self, group: str) -> dict[int, int]:
        try:
            raw = self._cgroups.read_raw(group, "memory.numa_stat")
            return numa_memory.of_group(raw, version=self._cgroups.layout.version, page_bytes=_PAGE_BYTES, below=True)
        except (OSError, ValueError):
            return {}
