"""What Crane promises: zones on the pod, reserved CPUs on its own kind of NodeResourceTopology.

Source: Crane `topology.crane.io/v1alpha1`. Its kind has the same name as that of topology.node.k8s.io and another
shape, so the group decides which it is.
"""

from __future__ import annotations

import msgspec

from koordlite.model import keys
from koordlite.model.cpuset import EMPTY, CPUSet
from koordlite.model.errors import Problem
from koordlite.model.pod.values import Pod
from koordlite.model.wire.crane import TopologyObject

KIND = "CraneNodeResourceTopology"
"""What Crane's kind is called here."""
SHARED_NAME = "NodeResourceTopology"
"""What both groups call it."""


class Promise(msgspec.Struct, frozen=True):
    """What Crane's scheduler and agent have promised to a pod."""

    nodes: tuple[int, ...]
    exclusive: bool

    @property
    def single(self) -> bool:
        """All of it on one NUMA node."""
        return len(self.nodes) == 1


def kind_of(kind: str, api_version: str) -> str:
    """`kind`, unless it is Crane's kind under the shared name (or a list of them)."""
    if kind.startswith(SHARED_NAME) and api_version.startswith(keys.CRANE_GROUP):
        return KIND + kind.removeprefix(SHARED_NAME)
    return kind


def reserved(obj: TopologyObject | None, problems: list[Problem]) -> CPUSet:
    """CPUs that Crane keeps from pods which ask for it; what cannot be read is added to `problems`."""
    text = (obj.attributes or {}).get(keys.CRANE_RESERVED_CPUS, "") if obj else ""
    try:
        return CPUSet.parse(text)
    except ValueError as error:
        owner = f"{keys.CRANE_GROUP}noderesourcetopology/{obj.metadata.name if obj else ''}"
        do = "write CPUs like 0-3,8; no CPU counts as reserved by Crane until then"
        problems.append(Problem(owner, f"attributes[{keys.CRANE_RESERVED_CPUS}]", text, str(error), do))
        return EMPTY


def promise(pod: Pod) -> Promise | None:
    """The zones in the pod's annotation; None without one, or with one that cannot be read (`pod.problems`)."""
    nodes = pod.crane.nodes
    return Promise(nodes, pod.crane.policy == "exclusive") if nodes else None
