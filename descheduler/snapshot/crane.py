"""What Crane promises: zones on the pod, reserved CPUs on its own kind of NodeResourceTopology.

Source: Crane `topology.crane.io/v1alpha1`. Its kind has the same name as that of topology.node.k8s.io and another
shape, so the group decides which it is.
"""

from __future__ import annotations

import dataclasses

import msgspec

from koordlite.model.cpuset import EMPTY, CPUSet
from koordlite.model.errors import Problem
from koordlite.model.pod.values import Pod
from koordlite.model.wire import objects

GROUP = "topology.crane.io/"
KIND = "CraneNodeResourceTopology"
"""What Crane's kind is called here."""
SHARED_NAME = "NodeResourceTopology"
"""What both groups call it."""
RESULT = "topology.crane.io/topology-result"
CPU_POLICY = "topology.crane.io/cpu-policy"
_RESERVED = "go.crane.io/reserved-system-cpus"


class NRTObject(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A topology.crane.io NodeResourceTopology, as far as a rule uses it."""

    metadata: objects.ObjectMeta = objects.ObjectMeta()
    attributes: dict[str, str] | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Promise:
    """What Crane's scheduler and agent have promised to a pod."""

    nodes: tuple[int, ...]
    exclusive: bool

    @property
    def single(self) -> bool:
        """All of it on one NUMA node."""
        return len(self.nodes) == 1


class _Zone(msgspec.Struct, frozen=True):
    name: str = ""
    type: str = ""


def kind_of(kind: str, api_version: str) -> str:
    """`kind`, unless it is Crane's kind under the shared name (or a list of them)."""
    if kind.startswith(SHARED_NAME) and api_version.startswith(GROUP):
        return KIND + kind.removeprefix(SHARED_NAME)
    return kind


def reserved(obj: NRTObject | None, problems: list[Problem]) -> CPUSet:
    """CPUs that Crane keeps from pods which ask for it; what cannot be read is added to `problems`."""
    text = (obj.attributes or {}).get(_RESERVED, "") if obj else ""
    try:
        return CPUSet.parse(text)
    except ValueError as error:
        owner = f"{GROUP}noderesourcetopology/{obj.metadata.name if obj else ''}"
        do = "write CPUs like 0-3,8; no CPU counts as reserved by Crane until then"
        problems.append(Problem(owner, f"attributes[{_RESERVED}]", text, str(error), do))
        return EMPTY


def promise(pod: Pod, problems: list[Problem]) -> Promise | None:
    """The zones in the pod's annotation; None without one. What cannot be read is added to `problems`."""
    text = pod.annotations.get(RESULT, "")
    if not text:
        return None
    try:
        zones = msgspec.json.decode(text, type=tuple[_Zone, ...] | None) or ()
        nodes = {_number(zone.name) for zone in zones if zone.type in ("", "Node")}
    except (msgspec.DecodeError, ValueError) as error:
        do = "Crane's scheduler writes it; the pod is judged as one without this promise"
        problems.append(Problem(f"pod/{pod.key}", RESULT, text, str(error), do))
        return None
    return Promise(tuple(sorted(nodes)), pod.annotations.get(CPU_POLICY) == "exclusive") if nodes else None


def _number(name: str) -> int:
    """NUMA node id of a zone `node<id>`."""
    number = name.removeprefix("node").removeprefix("-")
    if number == name or not (number.isascii() and number.isdigit()):
        raise ValueError(f"{name!r} is no zone like node0")
    return int(number)
