"""Evictions, asked of the cluster, and containers that are killed: neither is ever undone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Never

from koordlite.apply.kind import Kind, Work
from koordlite.changes.eviction import EvictPod, KillContainer
from koordlite.host.bundle import Host
from koordlite.model.status import AppliedStep


class Eviction(Kind[EvictPod, Never]):
    """Evictions, until the cluster is silent: then it is asked for no further pod."""

    change = EvictPod

    def carry_out(self, changes: Sequence[EvictPod], work: Work) -> Iterator[AppliedStep]:
        """Ask for each pod."""
        yield from work.evictions.take(changes, time=work.snapshot.time)


class ContainerKill(Kind[KillContainer, Never]):
    """A write to `cgroup.kill`: the kernel kills the group and all below it."""

    change = KillContainer

    def set(self, host: Host, change: KillContainer) -> None:
        """ENOENT from a kernel before 5.14, ValueError on cgroup v1."""
        host.cgroups.kill(change.group)


EVICTION, CONTAINER_KILL = Eviction(), ContainerKill()
