"""The kernel's names of the files in which the fields of changes lie: v1's name first, then v2's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from koordlite.model.cgroup_fields import CgroupField
from koordlite.model.picture.blocks import BlockField

CGROUP: Mapping[str, tuple[str, ...]] = {
    **{field: (field,) for field in get_args(CgroupField)},
    "cpu.quota": ("cpu.cfs_quota_us", "cpu.max"),
    "cpu.shares": ("cpu.shares", "cpu.weight"),
    "memory.limit": ("memory.limit_in_bytes", "memory.max"),
    "cpu.burst": ("cpu.cfs_burst_us", "cpu.max.burst"),
}
"""Field → its files. Most fields are called after their file."""
BLOCK_LIMITS: Mapping[BlockField, tuple[str, str]] = {
    "io.read_bps": ("blkio.throttle.read_bps_device", "rbps"),
    "io.write_bps": ("blkio.throttle.write_bps_device", "wbps"),
    "io.read_iops": ("blkio.throttle.read_iops_device", "riops"),
    "io.write_iops": ("blkio.throttle.write_iops_device", "wiops"),
}
"""Field → its file on v1, its key in v2's `io.max`."""
BLOCK_COSTS: Mapping[BlockField, str] = {
    "io.weight": "blkio.cost.weight",
    "io.cost.qos": "blkio.cost.qos",
    "io.cost.model": "blkio.cost.model",
}
"""Field → its file on v1, which only Anolis kernels have; on v2 the field is called after its file."""
BLOCK: Mapping[str, tuple[str, ...]] = {
    **{field: (name, "io.max") for field, (name, _) in BLOCK_LIMITS.items()},
    **{field: (name, field) for field, name in BLOCK_COSTS.items()},
}
"""Field → its files."""
