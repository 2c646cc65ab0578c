"""Crane's own NodeResourceTopology (topology.crane.io/v1alpha1) and the zones in its annotations.

Source: gocrane/api `topology/v1alpha1/types.go`. The object is flat: it has neither spec nor status.
"""

from __future__ import annotations

import msgspec

from koordlite.model.wire.objects import ObjectMeta, WireObject

API_VERSION = "topology.crane.io/v1alpha1"
KIND = "NodeResourceTopology"
STATIC = "Static"
"""Crane's agent places pods on CPUs; None where kubelet does."""
SINGLE_NUMA = "SingleNUMANodePodLevel"
"""A pod that does not say otherwise gets all CPUs from one NUMA node."""


class ZoneResources(WireObject, frozen=True):
    """Amounts of one zone, as quantities."""

    capacity: dict[str, str | int | float] | None = None
    allocatable: dict[str, str | int | float] | None = None
    reserved_cpu_nums: int = msgspec.field(default=0, name="reservedCPUNums")


class Zone(WireObject, frozen=True):
    """A zone; `node0` of type `Node` is NUMA node 0. Other types are Socket and Core."""

    name: str = ""
    type: str = ""
    parent: str = ""
    costs: tuple[dict[str, str | int], ...] | None = None
    attributes: dict[str, str] | None = None
    resources: ZoneResources | None = None


class ManagerPolicy(WireObject, frozen=True, omit_defaults=False):
    """What Crane's agent does on the node."""

    cpu_manager_policy: str = ""
    topology_manager_policy: str = ""


class TopologyObject(WireObject, frozen=True):
    """A topology.crane.io NodeResourceTopology; cluster-scoped, named after its node."""

    metadata: ObjectMeta = ObjectMeta()
    crane_manager_policy: ManagerPolicy = ManagerPolicy()
    reserved: dict[str, str | int | float] | None = None
    zones: tuple[Zone, ...] | None = None
    attributes: dict[str, str] | None = None


def zone_name(node: int) -> str:
    """What Crane calls a NUMA node."""
    return f"node{node}"


def node_of(name: str) -> int:
    """NUMA node id of a zone `node<id>`; ValueError for another name."""
    number = name.removeprefix("node").removeprefix("-")
    if number == name or not (number.isascii() and number.isdigit() and len(number) <= 9):
        raise ValueError(f"{name!r} is no zone like node0")
    return int(number)
