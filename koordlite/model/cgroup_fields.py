"""The values of cgroups that we write, by names that are the same for v1 and v2."""

from __future__ import annotations

from typing import Literal

CgroupField = Literal[
    "cpuset.cpus",
    "cpu.quota",
    "cpu.shares",
    "cpu.burst",
    "cpu.idle",
    "cpu.bvt_warp_ns",
    "memory.min",
    "memory.low",
    "memory.high",
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
"""Logical cgroup values, the same for v1 and v2: a CPUSet; µs of CPU per period (-1 unlimited); shares as v1 counts
them; µs of burst; bytes (-1 unlimited); the numbers of kernel extensions as the kernel takes them."""
