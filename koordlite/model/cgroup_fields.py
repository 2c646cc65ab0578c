"""The values of cgroups that we write, by names that are the same for v1 and v2."""

from __future__ import annotations

from typing import Literal

MIN_SHARES, MAX_SHARES = 2, 262_144
MIN_WEIGHT, MAX_WEIGHT = 1, 10_000

CgroupField = Literal[
    "cpuset.cpus",
    "cpuset.mems",
    "cpu.quota",
    "cpu.shares",
    "cpu.burst",
    "cpu.idle",
    "cpu.bvt_warp_ns",
    "memory.min",
    "memory.low",
    "memory.high",
    "memory.limit",
    "memory.swap.max",
    "memory.wmark_ratio",
    "memory.wmark_scale_factor",
    "memory.wmark_min_adj",
    "memory.priority",
    "memory.use_priority_oom",
    "memory.oom.group",
    "memory.pagecache_limit.enable",
    "memory.pagecache_limit.size",
    "memory.pagecache_limit.sync",
]
"""Logical cgroup values, the same for v1 and v2: a CPUSet; NUMA nodes as a bit mask (0: those of the group above); µs
of CPU per period (-1 unlimited); shares as v1 counts them; µs of burst; bytes (-1 unlimited); the numbers of kernel
extensions as the kernel takes them."""


def weight_of_shares(shares: int) -> int:
    """v2's cpu.weight for v1's cpu.shares: 1 + (shares - 2) × 9999 / 262142, rounded down; ValueError beyond the range.
    Source: runc, and Koordinator `ConvertCPUSharesToWeight`."""
    if not MIN_SHARES <= shares <= MAX_SHARES:
        raise ValueError(f"{shares} are no shares: {MIN_SHARES} to {MAX_SHARES} are")
    return 1 + (shares - MIN_SHARES) * (MAX_WEIGHT - MIN_WEIGHT) // (MAX_SHARES - MIN_SHARES)


def shares_of_weight(weight: int) -> int:
    """v1's cpu.shares for v2's cpu.weight: 2 + (weight - 1) × 262142 / 9999, rounded down; not the exact inverse.
    ValueError beyond the range. Source: Koordinator `ConvertCPUWeightToShares`."""
    if not MIN_WEIGHT <= weight <= MAX_WEIGHT:
        raise ValueError(f"{weight} is no weight: {MIN_WEIGHT} to {MAX_WEIGHT} is")
    return MIN_SHARES + (weight - MIN_WEIGHT) * (MAX_SHARES - MIN_SHARES) // (MAX_WEIGHT - MIN_WEIGHT)
