"""CPU and memory in use by NUMA node, as means over the aggregation time; kept only while a NodeMetric is reported."""

from __future__ import annotations

import collections
import os
from collections.abc import Mapping, Sequence

import msgspec

from koordlite.formulas import measured
from koordlite.host import numa_memory, procfs
from koordlite.host.cgroups.filesystem import Cgroups
from koordlite.model.picture.usage import NumaUse, Use
from koordlite.model.topology import Topology
from koordlite.ports import Files

SECONDS = 5.0
"""Between two samples: the kernel adds up memory by NUMA node for long."""
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_MILLI = 1000


class _Sample(msgspec.Struct, frozen=True):
    time: float
    busy: Mapping[int, int]
    """Busy ticks since boot by NUMA node."""
    memory: Mapping[int, int]
    system: Mapping[int, int] | None
    """Bytes in use beside pods by NUMA node; None where the kernel does not say what pods have."""


class NumaUseReader:
    """Remembers the samples of the aggregation time."""

    def __init__(self, files: Files, cgroups: Cgroups) -> None:
        self._files, self._cgroups = files, cgroups
        self._samples: collections.deque[_Sample] = collections.deque()
        self._topology: Topology | None = None
        self._kept: dict[int, NumaUse] = {}

    def read(
        self, now: float, topology: Topology, *, memory: Mapping[int, int], seconds: float
    ) -> Mapping[int, NumaUse]:
        """By NUMA node; empty until there are two samples. `memory` is in use on each node, in bytes."""
        if topology is not self._topology:
            self._topology = topology
            self._samples.clear()  # Other CPUs are online: counters of before cannot be compared.
        if self._samples and now - self._samples[-1].time < SECONDS:
            return self._kept
        sample = self._sample(now, topology, memory)
        if sample is not None:
            self._samples.append(sample)
            while now - self._samples[0].time > seconds:
                self._samples.popleft()
        self._kept = _means(self._samples) if len(self._samples) > 1 else {}
        return self._kept

    def _sample(self, now: float, topology: Topology, memory: Mapping[int, int]) -> _Sample | None:
        try:
            ticks = procfs.cpu_ticks(self._files)
        except (OSError, ValueError):
            return None  # The sample of the node says why: it reads the same file.
        busy = dict.fromkeys(memory, 0)
        for cpu in topology.cpus:
            if cpu.node in busy:
                busy[cpu.node] += ticks.get(cpu.id, 0)
        pods = self._pods()
        system = None if pods is None else measured.system_memory_by_numa(memory, pods)
        return _Sample(now, busy, dict(memory), system)

    def _pods(self) -> Mapping[int, int] | None:
        """Bytes of kubelet's groups."""
        layout = self._cgroups.layout
        try:
            raw = self._cgroups.read_raw(layout.kubepods, "memory.numa_stat")
            return numa_memory.of_group(raw, version=layout.version, page_bytes=_PAGE_BYTES, below=True)
        except (OSError, ValueError):
            return None


def _means(samples: Sequence[_Sample]) -> dict[int, NumaUse]:
    first, last = samples[0], samples[-1]
    seconds = last.time - first.time
    found: dict[int, NumaUse] = {}
    for numa in last.busy.keys() & first.busy.keys():
        cpu = (last.busy[numa] - first.busy[numa]) * _MILLI / procfs.USER_HZ / seconds
        memory = sum(each.memory.get(numa, 0) for each in samples) // len(samples)
        found[numa] = NumaUse(node=Use(max(0, round(cpu)), memory), system_memory=_rest(samples, numa))
    return dict(sorted(found.items()))


def _rest(samples: Sequence[_Sample], numa: int) -> int | None:
    rests = [s.system[numa] for s in samples if s.system is not None and numa in s.system]
    return sum(rests) // len(rests) if rests else None
