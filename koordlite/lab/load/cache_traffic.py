"""Cache and memory traffic of the workloads: the source of the monitoring counters of the emulated node.

A rule of thumb and no model of a cache. A busy CPU moves 2 GB/s to and from memory, four fifths of it local, up to what
the bandwidth of its group allows, and wants 3 MiB of cache, within the mask of its group. Lines stay until others need
the space.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Iterator, Mapping

from koordlite.lab.cgroups.trees import Cgroups
from koordlite.lab.load.workloads import Workload, Workloads
from koordlite.lab.machine.machine import Machine
from koordlite.lab.resctrl.filesystem import EmulatedResctrl, RDTGroup
from koordlite.lab.resctrl.rmids import OCCUPANCY, Counters

BYTES_PER_BUSY_US = 2_000
LOCAL_SHARE = 0.8
WORKING_SET_BYTES = 3 * 2**20
KEPT_IDLE = 0.95
"""Part of the lines of an idle group that stay in each step in which others work at that cache."""
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
        self._remainders: dict[tuple[int, int, str], float] = collections.defaultdict(float)
        self._level: dict[Spot, dict[int, float]] = collections.defaultdict(dict)
        """Bytes in each cache by RMID."""
        nodes: dict[int, list[int]] = {}
        for cpu in machine.cpus:
            if cpu.l3 is not None and cpu.node not in nodes.setdefault(cpu.l3, []):
                nodes[cpu.l3].append(cpu.node)
        self._spots: dict[int, Spot] = {
            cpu.id: (cpu.l3, sorted(nodes[cpu.l3]).index(cpu.node)) for cpu in machine.cpus if cpu.l3 is not None
        }
        """Place where each CPU's traffic is counted."""
        self._spot_counts = functools.cache(lambda cpus: collections.Counter(filter(None, map(self._spots.get, cpus))))

    def step(self, step_us: int) -> None:
        """Let the counters run for what was done in the last step."""
        if not self._resctrl.mount_options:
            return
        busy: dict[tuple[Spot, RDTGroup], float] = collections.defaultdict(float)
        before, self._used = self._used, {}
        for workload in self._workloads:
            for spot, group, used_us in self._work(workload, before):
                busy[spot, group] += used_us
        working: dict[Spot, set[int]] = collections.defaultdict(set)
        for (spot, group), used_us in busy.items():
            rmid = self._resctrl.hardware_rmid(group, *spot)
            working[spot].add(rmid)
            moved = min(used_us * BYTES_PER_BUSY_US, self._ceiling(spot[0], group) * step_us)
            for event, share in (("mbm_total_bytes", 1.0), ("mbm_local_bytes", LOCAL_SHARE)):
                place = spot[0], rmid, event
                self._remainders[place] += moved * share
                count = int(self._remainders[place] // self._unit)
                self._remainders[place] -= count * self._unit
                self._counters.add(place, count)
            # More of the cache, never more than the mask holds; what was there stays.
            size = min(used_us / step_us * WORKING_SET_BYTES, self._capacity(spot[0], group))
            self._level[spot][rmid] = max(self._level[spot].get(rmid, 0.0), size)
        for spot, rmids in working.items():
            # Idle groups lose to working ones, and all in proportion when it is too much for the cache.
            level = self._level[spot]
            fit = min(1.0, self._whole(spot[0]) / max(sum(level.values()), 1.0))
            for rmid in level:
                level[rmid] *= fit if rmid in rmids else fit * KEPT_IDLE
                self._counters.level((spot[0], rmid, OCCUPANCY), int(level[rmid] // self._unit))

    def _work(self, workload: Workload, before: Mapping[int, int]) -> Iterator[tuple[Spot, RDTGroup, float]]:
        """CPU-µs of the last step, spread over the caches it may run at and the groups its threads are in."""
        tids = workload.process.tids
        used_us = workload.used_us - before.get(tids[0], 0)
        self._used[tids[0]] = workload.used_us
        if used_us <= 0:
            return
        places = self._spot_counts(self._cgroups.allowed(self._cgroups.cpuset.home(tids[0])))
        groups = collections.Counter(self._resctrl.home_of(tid) for tid in tids)
        parts = places.total() * groups.total()
        for spot, here in places.items():
            for group, threads in groups.items():
                yield spot, group, used_us * here * threads / parts

    def _ceiling(self, cache_id: int, group: RDTGroup) -> float:
        """Bytes per µs that the group may move there."""
        schema = self._resctrl.schemas.get("MB")
        if schema is None or cache_id not in schema.domains:
            return FULL_BYTES_PER_US
        value = schema.domains[cache_id][group.closid]
        if schema.mbps:
            return value * _MB_PER_S
        percent = self._machine.rdt is None or not self._machine.rdt.amd
        return value * (FULL_BYTES_PER_US / 100 if percent else _AMD_UNIT_BYTES_PER_US)

    def _capacity(self, cache_id: int, group: RDTGroup) -> float:
        """Bytes of the cache that the group's mask leaves it."""
        schema = self._resctrl.schemas.get("L3") or self._resctrl.schemas.get("L3DATA")
        if schema is None or schema.cache is None or cache_id not in schema.domains:
            return self._whole(cache_id)
        return self._whole(cache_id) * schema.domains[cache_id][group.closid].bit_count() / schema.cache.bits

    def _whole(self, cache_id: int) -> float:
        """Bytes of the cache, or of its part that one of its NUMA nodes counts."""
        return self._machine.l3_bytes / max(1, len(self._resctrl.layout.clusters(cache_id)))
