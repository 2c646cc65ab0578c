"""Reads from the disks of the emulated node.

Containers read from the first disk as their annotation says, at most what the limits of their group and those above
leave them, and all of them together what the disk can do.
"""

from __future__ import annotations

from collections.abc import Sequence

from koordlite.lab.cgroups import disk_files
from koordlite.lab.cgroups.trees import Cgroups, Group
from koordlite.lab.load.workloads import Workload
from koordlite.lab.machine.machine import DISK_SPEED


def step(cgroups: Cgroups, running: Sequence[Workload], *, seconds: float, step_us: int) -> None:
    """Let containers read for `step_us` at `seconds` after the start."""
    budgets: dict[int, float] = {}
    allowed: list[tuple[Group, float]] = []
    for workload in running:
        wanted = workload.disk.milli(seconds) / 1000 * workload.share * step_us / 1e6
        group = cgroups.io.find(workload.group) if wanted else None
        if group is not None:
            allowed.append((group, _within_limits(group, wanted, budgets, step_us)))
    total = sum(amount for _, amount in allowed)
    part = min(1.0, DISK_SPEED * step_us / 1e6 / total) if total else 0.0
    for group, amount in allowed:
        for each in group.lineage():
            each.read_bytes += amount * part


def _within_limits(group: Group, wanted: float, budgets: dict[int, float], step_us: int) -> float:
    """Rest of the limits on the way up in this step; it is taken off them."""
    limited = [(each, limit) for each in group.lineage() if (limit := disk_files.read_limit(each)) is not None]
    left = [budgets.setdefault(id(each), limit * step_us / 1e6) for each, limit in limited]
    allowed = min(wanted, *left) if left else wanted
    for each, _ in limited:
        budgets[id(each)] -= allowed
    return allowed
