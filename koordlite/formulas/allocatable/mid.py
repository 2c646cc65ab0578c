"""CPU and memory that a node may promise to pods of priority mid (mid-cpu, mid-memory).

CPU is in millicores, memory in bytes. The terms carry the names of Koordinator's own explanation of the result. Source:
Koordinator midresource plugin, `calculate`, `CalculateMidResourceByPolicy`, `CalculateMidResourceByStaticMode`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from koordlite.formulas.allocatable import allocatable
from koordlite.model.picture.usage import NO_USE, Use
from koordlite.model.pod.qos import PriorityClass
from koordlite.model.pod.values import Pod
from koordlite.model.slo.settings import Colocation

MID_AND_BELOW = (PriorityClass.MID, *allocatable.BATCH_AND_BELOW)
"""The bands that are not prod: their requests leave capacity unallocated, their host applications use no prod's."""


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """Every number that went into one mid resource, and the `result`."""

    static: bool
    """A fixed share of the capacity instead of what prod leaves."""
    node_capacity: int
    prod_reclaimable: int
    """Amount that prod pods requested and are predicted not to use; 0 where nobody predicts."""
    node_unused: int
    """Capacity not in use; 0 where the use is not known, so that nothing is promised on a guess."""
    unallocated: int
    """Amount that prod pods did not even request, outside what the system uses or has reserved."""
    unallocated_percent: int
    static_percent: int
    threshold_percent: int

    @property
    def ceiling(self) -> int:
        """node_capacity × threshold_percent."""
        return allocatable.share(self.node_capacity, self.threshold_percent)

    @property
    def result(self) -> int:
        """min(max(min(prod_reclaimable, node_unused), 0) + unallocated × unallocated_percent, ceiling).

        In static mode min(node_capacity × static_percent, ceiling).
        """
        if self.static:
            return min(allocatable.share(self.node_capacity, self.static_percent), self.ceiling)
        reclaimed = max(min(self.prod_reclaimable, self.node_unused), 0)
        return min(reclaimed + allocatable.share(self.unallocated, self.unallocated_percent), self.ceiling)


def mid(
    *, capacity: Use, colocation: Colocation, reclaimable: Use, used: Use | None, reserved: Use, requested: Use
) -> tuple[Terms, Terms]:
    """min(max(min(reclaimable, capacity − used), 0) + unallocated × %, capacity × threshold %): (CPU, memory).

    unallocated = max(capacity − reserved − requested, 0). `reserved` is that of `system_reserved`, `requested` the
    requests of prod pods (`prod_requests`), `used` the use of the whole node, None when unknown.
    """
    unused = Use(capacity.cpu - used.cpu, capacity.memory - used.memory) if used else NO_USE

    def terms(of: Callable[[Use], int], static_percent: int, threshold_percent: int) -> Terms:
        return Terms(
            static=colocation.mid_reclaim_mode == "static",
            node_capacity=of(capacity),
            prod_reclaimable=of(reclaimable),
            node_unused=of(unused),
            unallocated=max(of(capacity) - of(reserved) - of(requested), 0),
            unallocated_percent=colocation.mid_unallocated_percent,
            static_percent=static_percent,
            threshold_percent=threshold_percent,
        )

    return (
        terms(lambda use: use.cpu, colocation.mid_static_cpu_reserved_percent, colocation.mid_cpu_threshold_percent),
        terms(
            lambda use: use.memory,
            colocation.mid_static_memory_reserved_percent,
            colocation.mid_memory_threshold_percent,
        ),
    )


def prod_requests(pods: Iterable[Pod]) -> Use:
    """Σ requests of Running and Pending pods outside the bands mid, batch and free. Source: `getUnallocated`."""
    total = NO_USE
    for pod in pods:
        if pod.active and pod.priority_class not in MID_AND_BELOW:
            total = total + Use(pod.request_milli(), pod.request_value("memory"))
    return total


def system_reserved(*, system: Use, host_apps: Use, reserved: Use) -> Use:
    """max(system + host_apps, reserved) of each: what is not there to be allocated."""
    return Use(max(system.cpu + host_apps.cpu, reserved.cpu), max(system.memory + host_apps.memory, reserved.memory))
