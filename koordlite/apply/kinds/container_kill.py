"""Killing a container's processes: one write to `cgroup.kill`, never undone."""

from __future__ import annotations

from typing import Never

from koordlite.apply.kind import Kind
from koordlite.changes.container_kill import PLACE, KillContainer
from koordlite.host.bundle import Host


class ContainerKill(Kind[KillContainer, Never]):
    """The kernel kills the group and all below it."""

    change = KillContainer
    places = (PLACE,)

    def set(self, host: Host, change: KillContainer) -> str:
        """ENOENT from a kernel before 5.14, ValueError on cgroup v1."""
        host.cgroups.kill(change.group)
        return change.describe()


KIND = ContainerKill()
