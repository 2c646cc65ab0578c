"""Koordinator's two halves of the metrics: those for users of the node, and those about the agent itself.

Source: `pkg/koordlet/metrics`: external_metrics.go, internal_metrics.go. What is ours alone is internal.
"""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import Metric
from prometheus_client.registry import Collector, CollectorRegistry

EXTERNAL = frozenset(
    f"koordlet_{name}"
    for name in (
        "container_cpi",
        "container_psi",
        "container_resource_limits",
        "container_resource_requests",
        "node_priority_resource_reclaimable",
        "node_resource_allocatable",
        "node_resource_priority_reclaimable_status",
        "pod_psi",
        "resctrl_llc_occupancy",
        "resctrl_memory_bandwidth",
    )
)


class Half(Collector):
    """The families of a registry that are external, or the others."""

    def __init__(self, whole: CollectorRegistry, *, external: bool) -> None:
        self._whole, self._external = whole, external

    def collect(self) -> Iterable[Metric]:
        """Those of one half, in their order."""
        return (family for family in self._whole.collect() if (family.name in EXTERNAL) is self._external)


def half(whole: CollectorRegistry, *, external: bool) -> CollectorRegistry:
    """A registry of one half of `whole`."""
    made = CollectorRegistry(auto_describe=False)
    made.register(Half(whole, external=external))
    return made
