"""The emulated kubelet's view of a pod: its resources as cgroup values, its behaviour from annotations."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import msgspec

from koordlite.formulas import batch_resource
from koordlite.formulas.batch_resource import Resources, Values
from koordlite.lab.load import connections, demand
from koordlite.lab.load.demand import Demand
from koordlite.model import keys
from koordlite.model import node as nodes
from koordlite.model.errors import Problem
from koordlite.model.pod.values import ContainerInfo, Pod
from koordlite.model.quantity import ZERO, Quantity
from koordlite.model.wire import objects
from koordlite.numa.kubelet import merge

CPU = "sandbox.koordlite.io/cpu"
MEMORY = "sandbox.koordlite.io/memory"
DISK = "sandbox.koordlite.io/disk-read"
CONNECTIONS = "sandbox.koordlite.io/connections"
"""`NAMESPACE/NAME: NUMBER, …`: TCP connections to other pods of the node; `elsewhere: NUMBER` leave it."""
SYSTEM_CPU = "sandbox.koordlite.io/system-cpu"
CPU_MANAGER_POLICY = "sandbox.koordlite.io/cpu-manager-policy"
"""Annotation of the Node: `static` or `none`; without it `none`."""
TOPOLOGY_MANAGER_POLICY = "sandbox.koordlite.io/topology-manager-policy"
TOPOLOGY_MANAGER_SCOPE = "sandbox.koordlite.io/topology-manager-scope"
"""Annotations of the Node, under the static policy: kubelet's words; without them `none` and `container`."""

SMALLEST_MEMORY = 64 * 2**20
PAUSE_ADJ = -998

T = TypeVar("T")
Word = TypeVar("Word", bound=str)


class Behaviour(msgspec.Struct, frozen=True):
    """Behaviour of the pod by the sandbox's annotations."""

    demand: Demand
    memory: Demand
    """Demand in thousandths of a byte."""
    disk: Demand
    connections: Mapping[str, int]
    """Number of connections by `namespace/name` of the other pod."""


class StaticManagers(msgspec.Struct, frozen=True):
    """Kubelet's managers under the static policy."""

    policy: merge.Policy
    """The topology manager's."""
    scope: merge.Scope
    reserved: int
    """CPUs that the Node's capacity has and its allocatable has not, rounded up."""


def values(container: ContainerInfo) -> Values:
    """Shares, quota and memory limit that kubelet gives a container."""

    def amount(amounts: Mapping[str, Quantity], name: str) -> Quantity:
        return amounts.get(name, ZERO)

    return batch_resource.values(
        Resources(
            request_milli=amount(container.requests, "cpu").milli,
            limit_milli=amount(container.limits, "cpu").milli,
            limit_bytes=amount(container.limits, "memory").value,
        )
    )


def container_id(uid: str, name: str) -> str:
    """A containerd id that is the same in every run."""
    return f"containerd://{hashlib.sha256(f'{uid}/{name}'.encode()).hexdigest()}"


def behaviour(described: Pod, seed: int, problems: list[Problem]) -> Behaviour:
    """Read the behaviour of the pod; an annotation that cannot be read is added to `problems` and its default holds: of
    CPU half the request, or all it can get when it has none or is best effort; of memory half the request."""
    read = _Annotations(f"pod/{described.key}", described.annotations, problems)

    def wanted(key: str, kind: str) -> Demand | None:
        return read.get(key, lambda text: demand.parse(text, seed=f"{seed}/{described.uid}{kind}"))

    request = 0 if described.is_best_effort else described.request_milli("cpu")
    memory = described.request_value("memory") or described.request_value(keys.BATCH_MEMORY)
    return Behaviour(
        demand=wanted(CPU, "") or (demand.constant(request / 2) if request else demand.GREEDY),
        memory=wanted(MEMORY, "/memory") or demand.constant(1000 * max(memory // 2, SMALLEST_MEMORY)),
        disk=wanted(DISK, "/disk") or demand.NOTHING,
        connections=read.get(CONNECTIONS, connections.parse) or {},
    )


def node_behaviour(node: objects.NodeObject | None, problems: list[Problem]) -> tuple[Demand, StaticManagers | None]:
    """Read the CPU demand of the processes outside Kubernetes, and kubelet's managers: None under the policy none."""
    if node is None:
        return demand.NOTHING, None
    read = _Annotations(f"node/{node.metadata.name}", node.metadata.annotations or {}, problems)
    system = read.get(SYSTEM_CPU, demand.parse) or demand.NOTHING
    if read.one_of(CPU_MANAGER_POLICY, ("static", "none")) != "static":
        return system, None
    described = nodes.from_wire(node)
    capacity, allocatable = described.capacity.get("cpu"), described.allocatable.get("cpu")
    return system, StaticManagers(
        policy=read.one_of(TOPOLOGY_MANAGER_POLICY, merge.POLICIES) or "none",
        scope=read.one_of(TOPOLOGY_MANAGER_SCOPE, merge.SCOPES) or "container",
        reserved=max(0, -(-(capacity.milli - allocatable.milli) // 1000)) if capacity and allocatable else 0,
    )


class _Annotations(msgspec.Struct, frozen=True):
    owner: str
    notes: Mapping[str, str]
    problems: list[Problem]

    def get(self, key: str, parse: Callable[[str], T]) -> T | None:
        """The parsed annotation; None when absent or unreadable."""
        text = self.notes.get(key)
        if text is None:
            return None
        try:
            return parse(text)
        except ValueError as error:
            self.problems.append(Problem(self.owner, key, text, str(error), "correct it; the default holds meanwhile"))
            return None

    def one_of(self, key: str, words: Sequence[Word]) -> Word | None:
        """The annotation, which has to be one of these words; None when it is absent or another."""

        def word(text: str) -> Word:
            match = next((each for each in words if each == text), None)
            if match is None:
                raise ValueError(f"must be {', '.join(words[:-1])} or {words[-1]}")
            return match

        return self.get(key, word)
