"""CPU and memory by NUMA node: of the machine, of best effort, of containers with a promise, and beside pods.

The kernel adds memory up for long, so that most of it is read in turns, or once in some seconds.
"""

from __future__ import annotations

import collections
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from koordlite.formulas import measured
from koordlite.host import procfs, sysfs
from koordlite.host.cgroups.filesystem import Cgroups
from koordlite.host.files import readable
from koordlite.model.cpuset import EMPTY, CPUSet
from koordlite.model.picture.groups import MemoryPlace, PodGroups
from koordlite.model.picture.usage import NumaCounters, NumaUse, Use
from koordlite.model.topology import NUMANode, Topology
from koordlite.observe.rotation import Rotation
from koordlite.ports import Files

MACHINE = ""
SECONDS = 5.0
"""Time between two readings of the machine, of best effort and of all pods together."""
PLACES_SECONDS = 15.0
"""Time within which every container with a promise is read again; it is published once a minute."""
PLACES_AT_LEAST = 4
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_MILLI = 1000
_NODES = "/sys/devices/system/node"
_HUGE_PAGES = re.compile(r"hugepages-([0-9]{1,12})kB/?", re.ASCII)


def of_group(cgroups: Cgroups, group: str) -> dict[int, int] | None:
    """Bytes of a group and those below it by NUMA node; None where the kernel does not say."""
    try:
        raw = cgroups.read_raw(group, "memory.numa_stat")
        return sysfs.numa_memory_of_group(raw, version=cgroups.layout.version, page_bytes=_PAGE_BYTES, below=True)
    except (OSError, ValueError):
        return None


def allowed_nodes(cgroups: Cgroups, group: str) -> CPUSet:
    """NUMA nodes that a group may take memory from; empty where the kernel does not say: on v1 before Linux 3.17."""
    try:
        return CPUSet.parse(cgroups.read_raw(group, "cpuset.mems.effective").decode().strip())
    except (OSError, ValueError):
        return EMPTY


def _of_node(files: Files, node: int) -> int | None:
    """Bytes in use; None on a machine without NUMA, which has no such folder."""
    try:
        return sysfs.numa_memory_of_node(files.read(f"{_NODES}/node{node}/meminfo"))
    except (OSError, ValueError):
        return None


class NumaMemoryReader:
    """Remembers what was read last."""

    def __init__(self, files: Files, cgroups: Cgroups) -> None:
        self._files, self._cgroups = files, cgroups
        self._read_at: float | None = None
        self._best_effort: Mapping[int, int] | None = None
        self._last: dict[str, Mapping[int, int]] = {}

    def read(self, now: float, topology: Topology, *, machine_now: bool = False) -> Mapping[str, Mapping[int, int]]:
        """Bytes by NUMA node, by group: the machine (empty) and best effort; what cannot be read is missing.
        `machine_now`: that of the machine is at most a tick old, since pods go by it."""
        group, is_due = self._cgroups.layout.besteffort, self._read_at is None or now - self._read_at >= SECONDS
        if is_due:
            self._read_at, self._best_effort = now, of_group(self._cgroups, group)
        if is_due or machine_now:
            machine = {node.id: used for node in topology.nodes if (used := _of_node(self._files, node.id)) is not None}
            both = {MACHINE: machine, group: self._best_effort}
            self._last = {name: used for name, used in both.items() if used}
        return self._last


class MemoryPlaceReader:
    """Allowed and actual NUMA nodes of containers with a promise, from one turn to the next."""

    def __init__(self, cgroups: Cgroups) -> None:
        self._cgroups = cgroups
        self._groups = Rotation(self._read, seconds=PLACES_SECONDS, at_least=PLACES_AT_LEAST)

    def read(self, now: float, places: Iterable[PodGroups]) -> Mapping[str, MemoryPlace]:
        """Read the places by group of a container; one that is gone, or whose files cannot be read, is missing."""
        groups = [group for place in places for group in place.containers.values()]
        return self._groups.turn(now, groups) if groups else {}

    def _read(self, group: str) -> MemoryPlace | None:
        mems = allowed_nodes(self._cgroups, group)
        used = of_group(self._cgroups, group) or {}
        return MemoryPlace(mems, used) if mems or used else None


def counters(files: Files, topology: Topology) -> tuple[NumaCounters, ...]:
    """Counters of every NUMA node, from /proc/stat and sysfs, in the order of their ids; what cannot be read is left
    out."""
    ticks = readable(procfs.cpu_ticks, files) or {}
    return tuple(_counters(files, node, ticks) for node in topology.nodes)


def _counters(files: Files, node: NUMANode, ticks: dict[int, procfs.CPUTicks]) -> NumaCounters:
    mine = [ticks[cpu] for cpu in node.cpus if cpu in ticks]
    has_ticks = bool(mine) or not node.cpus
    return NumaCounters(
        node=node.id,
        used_seconds=sum(each.busy for each in mine) / procfs.USER_HZ if has_ticks else None,
        idle_seconds=sum(each.idle for each in mine) / procfs.USER_HZ if has_ticks else None,
        memory_total=node.memory,
        memory_used=memory_used(files, node),
        huge_pages_used=dict(_huge_pages_used(files, node)),
    )


def memory_used(files: Files, node: NUMANode) -> int | None:
    used = _of_node(files, node.id)
    if used is not None:
        return used
    # A kernel without NUMA has one node and no folder for it.
    memory = readable(procfs.memory, files)
    return max(0, memory.total - memory.available) if memory and memory.total == node.memory else None


def _huge_pages_used(files: Files, node: NUMANode) -> Iterator[tuple[int, int]]:
    folder = f"{_NODES}/node{node.id}/hugepages"
    try:
        names = files.list(folder)
    except OSError:
        return
    for name in names:
        match = _HUGE_PAGES.fullmatch(name)
        if match:
            kib = int(match[1])
            try:
                total, free = (int(files.read(f"{folder}/hugepages-{kib}kB/{of}_hugepages")) for of in ("nr", "free"))
            except (OSError, ValueError):
                continue
            yield kib * 1024, max(0, total - free)


class _Sample(msgspec.Struct, frozen=True):
    time: float
    busy: Mapping[int, int]
    """Busy ticks since boot by NUMA node."""
    memory: Mapping[int, int]
    system: Mapping[int, int] | None
    """Bytes in use beside pods by NUMA node; None where the kernel does not say what pods have."""


class NumaUseReader:
    """Use as means over the aggregation time, from the samples of that time."""

    def __init__(self, files: Files, cgroups: Cgroups) -> None:
        self._files, self._cgroups = files, cgroups
        self._samples: collections.deque[_Sample] = collections.deque()
        self._topology: Topology | None = None
        self._last: dict[int, NumaUse] = {}

    def read(
        self, now: float, topology: Topology, *, memory: Mapping[int, int], seconds: float
    ) -> Mapping[int, NumaUse]:
        """Read the use by NUMA node; empty until there are two samples. `memory` is in use on each node, in bytes."""
        if topology is not self._topology:
            self._topology = topology
            self._samples.clear()  # Other CPUs are online: counters of before cannot be compared.
        if self._samples and now - self._samples[-1].time < SECONDS:
            return self._last
        sample = self._sample(now, topology, memory)
        if sample is not None:
            self._samples.append(sample)
            while now - self._samples[0].time > seconds:
                self._samples.popleft()
        self._last = _means(self._samples) if len(self._samples) > 1 else {}
        return self._last

    def _sample(self, now: float, topology: Topology, memory: Mapping[int, int]) -> _Sample | None:
        ticks = readable(procfs.cpu_ticks, self._files)
        if ticks is None:
            return None  # The sample of the node says why: it reads the same file.
        busy = dict.fromkeys(memory, 0)
        for cpu in topology.cpus:
            if cpu.node in busy:
                busy[cpu.node] += ticks[cpu.id].busy if cpu.id in ticks else 0
        pods = of_group(self._cgroups, self._cgroups.layout.kubepods)
        system = None if pods is None else measured.system_memory_by_numa(memory, pods)
        return _Sample(now, busy, dict(memory), system)


def _means(samples: Sequence[_Sample]) -> dict[int, NumaUse]:
    first, last = samples[0], samples[-1]
    seconds = last.time - first.time
    means: dict[int, NumaUse] = {}
    for numa in sorted(last.busy.keys() & first.busy.keys()):
        cpu = (last.busy[numa] - first.busy[numa]) * _MILLI / procfs.USER_HZ / seconds
        memory = sum(each.memory.get(numa, 0) for each in samples) // len(samples)
        rests = [each.system[numa] for each in samples if each.system is not None and numa in each.system]
        means[numa] = NumaUse(
            node=Use(max(0, round(cpu)), memory), system_memory=sum(rests) // len(rests) if rests else None
        )
    return means
