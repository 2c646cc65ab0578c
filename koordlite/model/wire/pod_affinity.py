"""Our PodAffinity (numa.koordlite.io/v1alpha1): pods of a node that talk to each other, and where they run.

The object is cluster-scoped and named after its node. `podAffinity` has the columns of openEuler's Oenuma, so that who
reads those can read these; it is an object of its own, as agents follow Oenuma and would follow their own output.
"""

from __future__ import annotations

from koordlite.model.wire.objects import KubeObject, WireObject

API_VERSION = "numa.koordlite.io/v1alpha1"
KIND = "PodAffinity"
PATH = f"/apis/{API_VERSION}/podaffinities"


class Pair(WireObject, frozen=True):
    """Two pods of the node and the TCP connections between them."""

    first: str = ""
    """`namespace/name`."""
    second: str = ""
    connections: int = 0


class Container(WireObject, frozen=True):
    """CPUs and NUMA nodes that a container may use."""

    name: str = ""
    container_id: str = ""
    cpuset: str = ""
    memset: str = ""
    """Empty where it is not known."""


class PodRow(WireObject, frozen=True):
    """A pod of a pair."""

    numa_num: int = -1
    """The NUMA node that has all of its CPUs; -1 where they lie on several."""
    pod_name: str = ""
    namespace: str = ""
    containers: tuple[Container, ...] | None = None


class PodAffinitySpec(WireObject, frozen=True):
    """Measured affinity on one node."""

    connections: int = 0
    """Connections between pods of this node."""
    apart: int = 0
    """Number of these between pods that do not share a NUMA node."""
    pairs: tuple[Pair, ...] | None = None
    """Pairs, those with most connections first."""
    pod_affinity: tuple[PodRow, ...] | None = None


class PodAffinityObject(KubeObject, frozen=True):
    """The object, as far as it is used."""

    spec: PodAffinitySpec = PodAffinitySpec()
