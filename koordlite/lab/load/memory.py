"""Memory of the emulated node: what workloads hold, what is reclaimed from whom, and whom the OOM killer takes.

A simplified reclaim. Each workload's anonymous memory follows its demand, and a page cache of an eighth of it comes
along. There is no swap, so that only page cache can be reclaimed. Under pressure groups above `memory.low` give first,
then those above `memory.min`; what lies below memory.min is never taken. When nothing is left to take, the process with
the highest badness is killed: its memory plus its oom_score_adj thousandths of the machine.
Rules: the Linux cgroup v2 document, "Memory Interface Files", and `oom_badness` of the kernel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import msgspec

from koordlite.lab.cgroups.trees import UNLIMITED, Cgroups, Group
from koordlite.lab.load.workloads import Workload
from koordlite.lab.machine.kernel_settings import KernelSettings
from koordlite.lab.machine.machine import Machine
from koordlite.lab.machine.pressure import PressureFile, Waits

KERNEL_MEMORY = 2**30
"""Memory of the kernel and of processes outside Kubernetes."""
CACHE_PART = 8
"""A container's page cache is its memory divided by this."""
GROWTH = 4 * 2**30
"""Bytes a workload can fill in a second."""
RECLAIM = 8 * 2**30
"""Bytes the kernel can reclaim in a second, while those who wait for them stall."""
NEVER_KILLED = -1000

Kill = Callable[[Sequence[Workload]], None]


class Holding(msgspec.Struct, frozen=True):
    """A workload and the group its memory is charged to: the one it was started in."""

    workload: Workload
    group: Group


class MemoryLoad:
    """Lets memory grow, shrink and run out; `kill` ends workloads, and brings them back later as a kubelet does."""

    def __init__(self, machine: Machine, cgroups: Cgroups, settings: KernelSettings, kill: Kill) -> None:
        self._total, self._cgroups, self._settings, self._kill = machine.memory, cgroups, settings, kill
        self.stalls = PressureFile()
        """memory pressure of the whole node."""

    def step(self, running: Sequence[Workload], *, seconds: float, step_us: int) -> None:
        """Let `step_us` pass at `seconds` after the start."""
        holdings = [Holding(each, group) for each in running if (group := self._cgroups.memory.find(each.group))]
        waits: dict[int, float] = {}
        for holding in holdings:
            waits[id(holding.group)] = _grow(holding, seconds, step_us)
        # The lowest group with a limit of its own first.
        for group in reversed(list(self._cgroups.memory.root.walk())):
            if group.memory_limit != UNLIMITED or group.memory_high != UNLIMITED:
                self._keep_below(group, holdings, waits, step_us)
        short = self._settings.min_free - self._free(holdings)
        if short > 0:
            self._free_memory(short, holdings, waits, step_us)
        stalls, is_waiting = Waits(), any(waits.values())
        for each in holdings:
            waiting = min(1.0, waits[id(each.group)])
            stalls.note(self.stalls, waiting)
            for group in each.group.lineage() if is_waiting or each.group.memory_stalls.total_us else ():
                stalls.note(group.memory_stalls, waiting)
        stalls.close(step_us)

    def _free(self, holdings: Sequence[Holding]) -> int:
        """Bytes that are not held; negative for a moment before a process is killed."""
        return self._total - KERNEL_MEMORY - sum(each.group.anon + each.group.cache for each in holdings)

    def _keep_below(self, group: Group, holdings: list[Holding], waits: dict[int, float], step_us: int) -> None:
        """memory.high takes cache and slows down; memory.max takes cache, then kills."""
        for limit, event in ((group.memory_high, "high"), (group.memory_limit, "max")):
            excess = _size(group) - limit if limit != UNLIMITED else 0
            if excess <= 0:
                continue
            _count(group, event)
            below = [each for each in holdings if _within(each.group, group)]
            remaining = excess - _reclaim(below, excess, protected=False)
            _wait(below, waits, 1.0 if remaining > 0 else excess / RECLAIM * 1e6 / step_us)
            if remaining > 0 and event == "max":
                self._out_of_memory(group, below)

    def _free_memory(self, short: int, holdings: list[Holding], waits: dict[int, float], step_us: int) -> None:
        """The whole node is short: reclaim, then kill."""
        reclaimed = _reclaim(holdings, short, protected=True)
        for each in holdings:
            if reclaimed < short and _size(each.group) > each.group.memory_min:
                _count(each.group, "low")
        reclaimed += _reclaim(holdings, short - reclaimed, protected=False) if reclaimed < short else 0
        _wait(holdings, waits, min(1.0, reclaimed / RECLAIM * 1e6 / step_us))
        if self._free(holdings) < 0:
            _wait(holdings, waits, 1.0)
            self._out_of_memory(self._cgroups.memory.root, holdings)

    def _out_of_memory(self, domain: Group, holdings: Sequence[Holding]) -> None:
        """Kill the worst below `domain`, and all of its group where memory.oom.group says they die together."""
        candidates = [
            each for each in holdings if each.workload.process.oom_score_adj != NEVER_KILLED and each.group.anon
        ]
        if not candidates:
            return
        _count(domain, "oom")
        worst = max(
            candidates,
            key=lambda each: (
                each.group.anon + each.workload.process.oom_score_adj * self._total // 1000,
                each.workload.process.pid,
            ),
        )
        together = [g for g in worst.group.lineage() if g.settings.get("memory.oom.group") and _within(g, domain)]
        dying = [each for each in holdings if _within(each.group, together[-1])] if together else [worst]
        for each in dying:
            _count(each.group, "oom_kill")
            each.group.anon = each.group.cache = 0
        self._kill([each.workload for each in dying])


def fill(workload: Workload, group: Group, *, seconds: float) -> None:
    """Give a workload at once what it wants: at its start, and when its annotation changes."""
    demand = workload.memory.milli(seconds) / 1000 * workload.share
    group.anon = 0 if math.isinf(demand) else int(demand)
    group.cache = group.anon // CACHE_PART


def _grow(holding: Holding, seconds: float, step_us: int) -> float:
    """Towards what is wanted, as fast as memory can be filled; groups above memory.high hardly grow. The part of the
    step it had to wait."""
    group, most = holding.group, GROWTH * step_us / 1e6
    demand = holding.workload.memory.milli(seconds) / 1000 * holding.workload.share
    throttled = any(g.memory_high != UNLIMITED and _size(g) > g.memory_high for g in group.lineage())
    growth = min(demand - group.anon, most / 100 if throttled else most)
    if growth:
        group.anon += int(growth)
        group.cache = max(0, group.cache + int(growth) // CACHE_PART)
    return 1.0 if throttled and growth > 0 else 0.0


def _reclaim(holdings: Sequence[Holding], target: int, *, protected: bool) -> int:
    """Take page cache in proportion to what may be taken; `protected` leaves what lies below memory.low."""
    offers = [(each.group, _takeable(each.group, protected)) for each in holdings]
    together = sum(offer for _, offer in offers)
    part = min(1.0, target / together) if together else 0.0
    reclaimed = 0
    for group, offer in offers:
        amount = min(offer, math.ceil(offer * part))
        group.cache -= amount
        reclaimed += amount
    return reclaimed


def _takeable(group: Group, protected: bool) -> int:
    """Cache above the protection that reaches down to this group."""
    protections = [
        max(each.memory_min, each.memory_low if protected else 0) for each in group.lineage() if each.parent is not None
    ]
    # A group is protected as far as each group above it is: overcommitted protection protects less.
    return max(0, min(group.cache, group.anon + group.cache - min(protections, default=0)))


def _wait(holdings: Sequence[Holding], waits: dict[int, float], part: float) -> None:
    for each in holdings:
        waits[id(each.group)] = max(waits[id(each.group)], part)


def _size(group: Group) -> int:
    return group.anon_below + group.cache_below


def _within(group: Group, above: Group) -> bool:
    return any(each is above for each in group.lineage())


def _count(group: Group, event: str) -> None:
    group.events[event] = group.events.get(event, 0) + 1
