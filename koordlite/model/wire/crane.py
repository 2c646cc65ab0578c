"""Crane's own NodeResourceTopology (topology.crane.io/v1alpha1) and the zones in its annotations.

Source: gocrane/api `topology/v1alpha1/types.go`. The object is flat: it has neither spec nor status.
"""

from __future__ import annotations

import re

import msgspec

from koordlite.model.wire.objects import KubeObject, WireObject

API_VERSION = "topology.crane.io/v1alpha1"
KIND = "NodeResourceTopology"
PATH = f"/apis/{API_VERSION}/noderesourcetopologies"
STATIC = "Static"
"""Crane's agent places pods on CPUs; None where kubelet does."""
_ZONE = re.compile(r"node-?([0-9]{1,9})", re.ASCII)
_MOST_NODES = 64
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
    """Policies of Crane's agent on the node."""

    cpu_manager_policy: str = ""
    topology_manager_policy: str = ""


class TopologyObject(KubeObject, frozen=True):
    """A topology.crane.io NodeResourceTopology; cluster-scoped, named after its node."""

    crane_manager_policy: ManagerPolicy = ManagerPolicy()
    reserved: dict[str, str | int | float] | None = None
    zones: tuple[Zone, ...] | None = None
    attributes: dict[str, str] | None = None


def zone_name(node: int) -> str:
    """A NUMA node as Crane names it."""
    return f"node{node}"


def numa_node(name: str) -> int | None:
    """NUMA node id of a zone `node<id>`, 0 to 63; None for any other name."""
    match = _ZONE.fullmatch(name)
    number = int(match[1]) if match else _MOST_NODES
    return number if number < _MOST_NODES else None


def node_of(name: str) -> int:
    """The same; ValueError for any other name."""
    number = numa_node(name)
    if number is None:
        raise ValueError(f"{name[:80]!r} is no zone like node0")
    return number
