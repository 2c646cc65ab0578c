"""Cache and memory traffic of the workloads: the source of the monitoring counters of the emulated node.

A rule of thumb and no model of a cache. A busy CPU moves 2 GB/s to and from memory, four fifths of it local, up to what
the bandwidth of its group allows, and wants 3 MiB of cache, within the mask of its group. Lines stay until others need
the space.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator

from koordlite.lab.cgroups.trees import Cgroups
from koordlite.lab.load.workloads import Workload, Workloads
from koordlite.lab.machine.machine import Machine
from koordlite.lab.resctrl.filesystem import EmulatedResctrl, RDTGroup
from koordlite.lab.resctrl.rmids import OCCUPANCY, Counters

BYTES_PER_BUSY_US = 2_000
LOCAL_SHARE = 0.8
WORKING_SET_BYTES = 3 * 2**20
KEPT_IDLE = 0.95
"""Of the lines of an idle group, in each step in which others work at that cache."""
FULL_BYTES_PER_US = 100_000
"""Speed of a memory controller: Intel's 100 %."""
_AMD_UNIT_BYTES_PER_US = 125
_MB_PER_S = 1

Spot = tuple[int, int]
"""(cache id, which of the NUMA nodes that share it)."""


class Traffic:
    """Turns the CPU time of each step into bytes, by cache, NUMA node and group."""

    def __init__(
        self, machine: Machine, cgroups: Cgroups, workloads: Workloads, resctrl: EmulatedResctrl, counters: Counters
    ) -> None:
        self._machine, self._cgroups, self._workloads, self._resctrl = machine, cgroups, workloads, resctrl
        self._counters, self._unit = counters, counters.unit_bytes
        self._used: dict[int, int] = {}
        """CPU-µs of each process by its id, at the last step."""
        self._before = self._used
        self._remainders: dict[tuple[int, int, str], float] = collections.defaultdict(float)
        self._level: dict[Spot, dict[int, float]] = collections.defaultdict(dict)
        self._spots = _spots(machine)

    def step(self, step_us: int) -> None:
        """Let the counters run for what was done in the last step."""
        if not self._resctrl.mount_options:
            return
        busy: dict[tuple[Spot, RDTGroup], float] = collections.defaultdict(float)
        self._before, self._used = self._used, {}
        for workload in self._workloads:
            for spot, group, used_us in self._work(workload):
                busy[spot, group] += used_us
        for (spot, group), used_us in busy.items():
            self._move(spot, group, min(used_us * BYTES_PER_BUSY_US, self._ceiling(spot, group) * step_us))
            self._fill(spot, group, used_us / step_us * WORKING_SET_BYTES)
        for spot in {spot for spot, _ in busy}:
            self._evict(spot, {self._place(spot, group)[1] for where, group in busy if where == spot})

    def _work(self, workload: Workload) -> Iterator[tuple[Spot, RDTGroup, float]]:
        """CPU-µs of the last step, spread over the caches it may run at and the groups its threads are in."""
        tids = workload.process.tids
        used_us = workload.used_us - self._before.get(tids[0], 0)
        self._used[tids[0]] = workload.used_us
        if used_us <= 0:
            return
        cpus = self._cgroups.allowed(self._cgroups.cpuset.home(tids[0]))
        places = collections.Counter(self._spots[cpu] for cpu in cpus if cpu in self._spots)
        groups = collections.Counter(self._resctrl.home_of(tid) for tid in tids)
        parts = places.total() * groups.total()
        for spot, here in places.items():
            for group, threads in groups.items():
                yield spot, group, used_us * here * threads / parts

    def _ceiling(self, spot: Spot, group: RDTGroup) -> float:
        """Bytes per µs that the group may move there."""
        schema = self._resctrl.schemas.get("MB")
        if schema is None or spot[0] not in schema.domains:
            return FULL_BYTES_PER_US
        value = schema.domains[spot[0]][group.closid]
        if schema.mbps:
            return value * _MB_PER_S
        percent = self._machine.rdt is None or not self._machine.rdt.amd
        return value * (FULL_BYTES_PER_US / 100 if percent else _AMD_UNIT_BYTES_PER_US)

    def _move(self, spot: Spot, group: RDTGroup, moved: float) -> None:
        for event, share in (("mbm_total_bytes", 1.0), ("mbm_local_bytes", LOCAL_SHARE)):
            place = (*self._place(spot, group), event)
            self._remainders[place] += moved * share
            count = int(self._remainders[place] // self._unit)
            self._remainders[place] -= count * self._unit
            self._counters.add(place, count)

    def _fill(self, spot: Spot, group: RDTGroup, size: float) -> None:
        """More of the cache, never more than the mask holds; what was there stays."""
        rmid = self._place(spot, group)[1]
        level = self._level[spot]
        level[rmid] = max(level.get(rmid, 0.0), min(size, self._capacity(spot, group)))

    def _capacity(self, spot: Spot, group: RDTGroup) -> float:
        whole = self._whole(spot)
        schema = self._resctrl.schemas.get("L3") or self._resctrl.schemas.get("L3DATA")
        if schema is None or schema.cache is None or spot[0] not in schema.domains:
            return whole
        return whole * schema.domains[spot[0]][group.closid].bit_count() / schema.cache.bits

    def _evict(self, spot: Spot, working: set[int]) -> None:
        """Idle groups lose to working ones, and all in proportion when it is too much for the cache."""
        level = self._level[spot]
        fit = min(1.0, self._whole(spot) / max(sum(level.values()), 1.0))
        for rmid in level:
            level[rmid] *= fit if rmid in working else fit * KEPT_IDLE
            self._counters.level((spot[0], rmid, OCCUPANCY), int(level[rmid] // self._unit))

    def _whole(self, spot: Spot) -> float:
        """Bytes of the cache, or of its part that one of its NUMA nodes counts."""
        return self._machine.l3_bytes / max(1, len(self._resctrl.layout.clusters(spot[0])))

    def _place(self, spot: Spot, group: RDTGroup) -> tuple[int, int]:
        return spot[0], self._resctrl.hardware_rmid(group, spot[0], spot[1])


def of(machine: Machine, cgroups: Cgroups, workloads: Workloads, resctrl: EmulatedResctrl | None) -> Traffic | None:
    """Monitor that lets the counters of this machine run; None where nothing is counted."""
    if resctrl is None or resctrl.rmids is None:
        return None
    return Traffic(machine, cgroups, workloads, resctrl, resctrl.rmids.counters)


def _spots(machine: Machine) -> dict[int, Spot]:
    """Group in which each CPU's traffic is counted."""
    nodes: dict[int, list[int]] = {}
    for cpu in machine.cpus:
        if cpu.l3 is not None and cpu.node not in nodes.setdefault(cpu.l3, []):
            nodes[cpu.l3].append(cpu.node)
    return {cpu.id: (cpu.l3, sorted(nodes[cpu.l3]).index(cpu.node)) for cpu in machine.cpus if cpu.l3 is not None}
