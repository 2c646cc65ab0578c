"""Counters of every NUMA node, from /proc/stat and sysfs. Reading them costs some file reads: only when asked."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from koordlite.host import numa_memory, procfs
from koordlite.model.picture.usage import NumaCounters
from koordlite.model.topology import NUMANode, Topology
from koordlite.ports import Files

_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
_NODES = "/sys/devices/system/node"
_PAGES = re.compile(r"hugepages-([0-9]{1,12})kB/?", re.ASCII)


def read(files: Files, topology: Topology) -> tuple[NumaCounters, ...]:
    """One for each NUMA node, in the order of their ids; what cannot be read is left out."""
    try:
        ticks = procfs.cpu_times(files)
    except (OSError, ValueError):
        ticks = {}
    return tuple(_of_node(files, node, ticks) for node in topology.nodes)


def _of_node(files: Files, node: NUMANode, ticks: dict[int, procfs.CPUTicks]) -> NumaCounters:
    mine = [ticks[cpu] for cpu in node.cpus if cpu in ticks]
    counted = bool(mine) or not node.cpus
    return NumaCounters(
        node=node.id,
        used_seconds=sum(each.busy for each in mine) / _TICKS_A_SECOND if counted else None,
        idle_seconds=sum(each.idle for each in mine) / _TICKS_A_SECOND if counted else None,
        memory_total=node.memory,
        memory_used=_memory_used(files, node),
        huge_pages_used=dict(_huge_pages_used(files, node)),
    )


def _memory_used(files: Files, node: NUMANode) -> int | None:
    try:
        return numa_memory.of_node(files.read(f"{_NODES}/node{node.id}/meminfo"))
    except (OSError, ValueError):
        pass
    try:
        # A kernel without NUMA has one node and no folder for it.
        memory = procfs.memory(files)
    except (OSError, ValueError):
        return None
    return max(0, memory.total - memory.available) if memory.total == node.memory else None


def _huge_pages_used(files: Files, node: NUMANode) -> Iterator[tuple[int, int]]:
    folder = f"{_NODES}/node{node.id}/hugepages"
    try:
        names = files.list(folder)
    except OSError:
        return
    for name in names:
        match = _PAGES.fullmatch(name)
        if match:
            kib = int(match[1])
            try:
                total, free = (int(files.read(f"{folder}/hugepages-{kib}kB/{of}_hugepages")) for of in ("nr", "free"))
            except (OSError, ValueError):
                continue
            yield kib * 1024, max(0, total - free)
