"""Lists that an agent watches: its own Node and pods, one ConfigMap, and its own NodeResourceTopology."""

from __future__ import annotations

from typing import TypeVar

from koordlite.kube.watch.reflector import Source
from koordlite.model.wire import affinity, objects
from koordlite.model.wire.reservation import ReservationObject

T = TypeVar("T")
TOPOLOGY_PATHS = (
    "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies",
    "/apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies",
)
"""v1alpha2 also keeps attributes; Koordinator's CRD has v1alpha1 only."""

NODES: Source[objects.NodeObject] = Source(
    name="nodes", kind="node", shape=objects.NodeObject, paths=("/api/v1/nodes",)
)
PODS: Source[objects.PodObject] = Source(name="pods", kind="pod", shape=objects.PodObject, paths=("/api/v1/pods",))
REPORTS: Source[objects.NRTObject] = Source(
    name="topologies", kind="noderesourcetopology", shape=objects.NRTObject, paths=TOPOLOGY_PATHS, optional=True
)
RESERVATIONS: Source[ReservationObject] = Source(
    name="reservations",
    kind="reservation",
    shape=ReservationObject,
    paths=("/apis/scheduling.koordinator.sh/v1alpha1/reservations",),
    optional=True,
)

_AFFINITY = f"/apis/{affinity.GROUP}/v1alpha1/namespaces"


def node(name: str) -> Source[objects.NodeObject]:
    """The Node of that name."""
    return _named("node", "node", objects.WrittenNodeObject, ("/api/v1/nodes",), name)


def pods(node_name: str) -> Source[objects.PodObject]:
    """Pods bound to the node, in any phase."""
    query = (("fieldSelector", f"spec.nodeName={node_name}"),)
    return Source(name="pods", kind="pod", shape=objects.PodObject, paths=("/api/v1/pods",), query=query)


def config_map(namespace: str, name: str) -> Source[objects.ConfigMapObject]:
    """One ConfigMap; permission for this name is enough."""
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    return _named("config", "configmap", objects.ConfigMapObject, (path,), name)


def topology(node_name: str) -> Source[objects.NRTObject]:
    """The node's NodeResourceTopology; a cluster may do without this kind."""
    return _named(
        "topology", "noderesourcetopology", objects.WrittenNRTObject, TOPOLOGY_PATHS, node_name, optional=True
    )


def oenuma(namespace: str) -> Source[affinity.OenumaObject]:
    """NUMA nodes for pods; permission for this name is enough, and a cluster may do without."""
    path = f"{_AFFINITY}/{namespace}/oenumas"
    return _named("oenuma", "oenuma", affinity.OenumaObject, (path,), affinity.OENUMA, optional=True)


def whitelist(namespace: str) -> Source[affinity.WhitelistObject]:
    """Pods that may be brought onto one NUMA node; as `oenuma`."""
    path = f"{_AFFINITY}/{namespace}/whitelists"
    return _named("whitelist", "whitelist", affinity.WhitelistObject, (path,), affinity.WHITELIST, optional=True)


def _named(
    name: str, kind: str, shape: type[T], paths: tuple[str, ...], object_name: str, *, optional: bool = False
) -> Source[T]:
    """The one object of that name."""
    query = (("fieldSelector", f"metadata.name={object_name}"),)
    return Source(name=name, kind=kind, shape=shape, paths=paths, query=query, optional=optional)
