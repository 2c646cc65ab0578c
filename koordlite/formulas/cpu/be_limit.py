"""The limit of best effort that its budget comes to: so much quota, or so many CPUs, and which. Fast down, slow up.

CPUs are spread over sockets and NUMA nodes, hyperthreads of a core together.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Sequence

from koordlite.formulas.cpu import cpu_keep
from koordlite.formulas.cpu.suppress import DEAD_BAND
from koordlite.model.cpuset import EMPTY, CPUSet
from koordlite.model.topology import CPU

PERIOD_US = 100_000
MIN_QUOTA_US = 2_000
MIN_CPUS = 2
GROWTH = 0.1
UNLIMITED = -1


def quota_target(*, budget_milli: int, current_us: int, capacity_milli: int, owed_milli_seconds: int = 0) -> int | None:
    """max(budget × 100 ms, 2 ms), growing by at most 10 % of the node and what is owed: the next quota in µs; None to
    hold.

    It holds within 1 % of the node of `current_us`, except at the minimum. `current_us` -1 is unlimited, which no
    band or step applies to: the limit takes effect at once. Source: Koordinator `adjustByCfsQuota`, which owes nothing.
    """
    target = max(budget_milli * PERIOD_US // 1000, MIN_QUOTA_US)
    if current_us == UNLIMITED:
        return target
    node_us = math.ceil(capacity_milli / 1000) * PERIOD_US
    step = node_us * GROWTH + max(0, owed_milli_seconds) * PERIOD_US // 1000
    within_band = abs(target - current_us) < node_us * DEAD_BAND and target != MIN_QUOTA_US
    if within_band or target == current_us:
        return None
    return current_us + int(step) if target - current_us > step else target


def cpu_target(*, budget_milli: int, present: int, cpus: int, owed_milli_seconds: int = 0) -> int:
    """min(max(⌈budget / 1000⌉, 2), present + ⌈cpus × 0.1⌉ + owed): how many CPUs best-effort work gets next.

    `present` is how many it has, `cpus` how many the machine has. Source: Koordinator `adjustByCPUSet`, which owes
    nothing; its product is in doubles, so a machine of 70 CPUs grows by 8.
    """
    target = max(-(-budget_milli // 1000), MIN_CPUS)
    return min(target, present + math.ceil(cpus * GROWTH) + max(0, owed_milli_seconds) // 1000)


def spread(count: int, pool: Sequence[CPU]) -> tuple[int, ...]:
    """`count` CPUs of `pool` in the order they are picked: a core's pair from each NUMA node in turn, then singles.

    Empty when the pool has fewer than `count` CPUs. Source: Koordinator `calculateBESuppressCPUSetPolicy`; the order
    is part of the contract, because a count that grows by one must keep the CPUs it had.
    """
    if count <= 0 or len(pool) < count:
        return ()
    buckets = _buckets(pool)
    picked: dict[int, None] = {}
    position, before_round = 0, -1
    while count - len(picked) > 1:
        if position == 0:
            if before_round == len(picked):
                break  # No pair is left.
            before_round = len(picked)
        pairs = ((a.id, b.id) for a, b in itertools.pairwise(buckets[position]) if a.core == b.core)
        picked |= dict.fromkeys(next((pair for pair in pairs if pair[0] not in picked), ()))
        position = (position + 1) % len(buckets)
    while len(picked) < count:
        free = next((cpu.id for cpu in buckets[position] if cpu.id not in picked), None)
        if free is not None:
            picked[free] = None
        position = (position + 1) % len(buckets)
    return tuple(picked)


def be_cpuset(*, count: int, cpus: Sequence[CPU], lsr: CPUSet, forbidden: CPUSet, current: CPUSet = EMPTY) -> CPUSet:
    """spread(count × |LSR| / (|LSR| + |LS|)) of the LSR CPUs and the rest of `count` from the others.

    Of all sets that are spread like these, it is the one with most `current` CPUs (`cpu_keep.least_change`).

    `lsr` are CPUs pinned by LSR pods: best-effort work shares them in proportion. `forbidden` are the CPUs of LSE pods,
    reserved ones and exclusive system ones; the answer never holds one of them. Where fewer than `count` CPUs are
    allowed, all of those are the answer; where none is, the answer is empty. Source: Koordinator `adjustByCPUSet`,
    which in those two cases leaves the previous set in place or fails (docs/compatibility.md).
    """
    allowed = [cpu for cpu in cpus if cpu.id not in forbidden]
    if not allowed:
        return CPUSet()
    lsr_cpus = [cpu for cpu in allowed if cpu.id in lsr]
    ls_cpus = [cpu for cpu in allowed if cpu.id not in lsr]
    size = min(count, len(allowed))
    from_lsr = size * len(lsr_cpus) // len(allowed)
    return _spread(from_lsr, lsr_cpus, current) | _spread(size - from_lsr, ls_cpus, current)


def _spread(count: int, pool: Sequence[CPU], current: CPUSet) -> CPUSet:
    return cpu_keep.least_change(_buckets(pool), CPUSet(spread(count, pool)), current)


def be_full_set(*, cpus: Sequence[CPU], reserved: CPUSet, system_exclusive: CPUSet, lse: CPUSet) -> CPUSet:
    """all CPUs − reserved − exclusive system − LSE: what best-effort work gets back when nothing suppresses it.

    Source: Koordinator `recoverCPUSetIfNeed`.
    """
    return CPUSet(cpu.id for cpu in cpus) - reserved - system_exclusive - lse


def _buckets(pool: Sequence[CPU]) -> list[list[CPU]]:
    """CPUs by place, the largest place first, then the one with the lowest first CPU."""
    by_place: dict[int, list[CPU]] = defaultdict(list)
    for cpu in sorted(pool, key=lambda cpu: (cpu.core, cpu.id)):
        # Two places may share a key on odd machines; the key is Koordinator's, and with it the order of picks.
        by_place[(cpu.node + len(pool)) * (cpu.socket + 1)].append(cpu)
    return sorted(by_place.values(), key=lambda bucket: (-len(bucket), bucket[0].id))
