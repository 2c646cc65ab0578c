"""The words of the descheduler: the picture plugins judge, and what they may answer.

A plugin sees a `View`, made once and never changed, and yields `Finding`s and `Note`s. It never evicts: guards say why
not, limits how many, fit where to.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from descheduler import durations
from koordlite.formulas.numa import Severity
from koordlite.model import cpuset, wire
from koordlite.model.cpuset import EMPTY, CPUSet
from koordlite.model.errors import Problem
from koordlite.model.node import Node, Reservation
from koordlite.model.nrt import ContainerPlacement, CPUManagerPolicy
from koordlite.model.pod import Pod
from koordlite.model.quantity import Quantity
from koordlite.model.topology import Topology


@dataclasses.dataclass(frozen=True)
class PodView:
    """A pod with what the picture knows about it."""

    pod: Pod
    object: wire.PodObject
    node: str
    age_seconds: float | None
    """Since the pod started, else since it was created; None when neither is known."""
    containers: tuple[ContainerPlacement, ...] = ()
    """Promise and fact of each container that has one or the other."""
    observed: bool = False
    """The agent saw the containers there. False: all we have is what was promised."""

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return self.pod.key

    @property
    def uid(self) -> str:
        """Identity of this very pod, not of its name."""
        return self.pod.uid

    @functools.cached_property
    def owner(self) -> str:
        """`Kind/namespace/name` of the controller, else of the first owner; empty for a bare pod."""
        owners = self.object.metadata.owner_references or ()
        chosen = next((o for o in owners if o.controller), owners[0] if owners else None)
        return f"{chosen.kind}/{self.pod.namespace}/{chosen.name}" if chosen else ""

    @property
    def promised(self) -> bool:
        """Somebody promised CPUs of its own, or one NUMA node."""
        return any(c.source != "none" and (c.exclusive or c.single_numa) for c in self.containers)

    @property
    def single_numa(self) -> bool:
        """One NUMA node was promised."""
        return any(c.single_numa for c in self.containers)

    @functools.cached_property
    def pinned(self) -> CPUSet:
        """CPUs that are this pod's alone, by promise or in fact."""
        exclusive = [c for c in self.containers if c.exclusive]
        return cpuset.union([c.promised_cpus for c in exclusive] + [c.cpuset for c in exclusive])


@dataclasses.dataclass(frozen=True, slots=True)
class ReservedCPUs:
    """CPUs of a node that are kept for something else, by who keeps them."""

    koordinator: CPUSet | None = EMPTY
    """Of the node reservation; None when only a quantity is known, and so not which CPUs."""
    source: str = "none"
    """`report` (the agent's resolved list), `annotation` (the list on the node), `quantity` or `none`."""
    kubelet: CPUSet = EMPTY
    """reservedSystemCPUs, or what the CPU manager took for its reserve."""
    strict: bool = False
    """kubelet keeps shared containers off its reserved CPUs too (strict-cpu-reservation)."""
    system: CPUSet = EMPTY
    """Set apart for SYSTEM pods."""

    @property
    def known(self) -> CPUSet:
        """All CPUs we know to be kept."""
        return (self.koordinator or EMPTY) | self.kubelet | self.system


NO_TOPOLOGY = Topology((), ())
NO_CPU_MANAGER = CPUManagerPolicy()
NOTHING_RESERVED = ReservedCPUs()


@dataclasses.dataclass(frozen=True)
class NodeView:
    """A node with its pods and its topology report."""

    node: Node
    object: wire.NodeObject
    pods: tuple[PodView, ...] = ()
    """Pods bound to it that have not ended, by namespace and name."""
    topology: Topology = NO_TOPOLOGY
    """Empty when nobody reports it."""
    zones: Mapping[int, Mapping[str, Quantity]] = dataclasses.field(default_factory=dict)
    """Available amounts by NUMA node, as reported."""
    topology_policy: str = ""
    """Kubelet's topology manager policy; empty when unknown."""
    topology_scope: str = "container"
    cpu_manager: CPUManagerPolicy = NO_CPU_MANAGER
    reserved: ReservedCPUs = NOTHING_RESERVED
    reservation: Reservation | None = None
    """As written on the node."""
    placement_age_seconds: float | None = None
    """Age of the agent's placement; None when there is none."""

    @property
    def name(self) -> str:
        """The node's name."""
        return self.node.name

    @property
    def ready(self) -> bool:
        """Its condition Ready is True, or there are no conditions to go by."""
        conditions = {c.type: c.status for c in self.object.status.conditions or ()}
        return conditions.get("Ready", "True") == "True"

    @functools.cached_property
    def pinned(self) -> CPUSet:
        """CPUs that pods of this node hold alone."""
        return cpuset.union(pod.pinned for pod in self.pods)


@dataclasses.dataclass(frozen=True, slots=True)
class DisruptionBudget:
    """A PodDisruptionBudget and the pods it covers."""

    key: str
    allowed: int
    """status.disruptionsAllowed."""
    pods: frozenset[str]
    """uids."""


@dataclasses.dataclass(frozen=True)
class View:
    """The cluster at one instant, indexed. Every plugin judges this same picture."""

    time: str
    """RFC 3339: what ages are measured against."""
    time_source: str
    """Where `time` comes from, in words."""
    nodes: Mapping[str, NodeView]
    """By name, in the order of names."""
    unbound: tuple[PodView, ...] = ()
    """Pods without a node of the picture."""
    budgets: tuple[DisruptionBudget, ...] = ()
    namespaces: Mapping[str, Mapping[str, str]] = dataclasses.field(default_factory=dict)
    """Labels by namespace; a namespace that was not in the files is missing."""
    priority_classes: Mapping[str, int] = dataclasses.field(default_factory=dict)
    storage_classes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Storage class by claim, `namespace/name`."""
    replicas: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """Pods by owner uid, in any phase and on any node."""
    problems: tuple[Problem, ...] = ()
    """Objects that could not be read, or only in part."""
    notes: tuple[str, ...] = ()
    """What was left out of the picture, in words."""

    def pods(self) -> Iterator[PodView]:
        """All pods that have not ended and are bound to a node, by node, namespace and name."""
        for node in self.nodes.values():
            yield from node.pods

    @functools.cached_property
    def budgets_by_pod(self) -> Mapping[str, tuple[DisruptionBudget, ...]]:
        """Budgets that cover a pod, by uid."""
        found: dict[str, tuple[DisruptionBudget, ...]] = {}
        for budget in self.budgets:
            for uid in budget.pods:
                found[uid] = (*found.get(uid, ()), budget)
        return found


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing a plugin says is wrong with one pod."""

    pod: str
    """uid."""
    reason: str
    """A stable CamelCase word."""
    severity: Severity
    container: str = "*"
    promise: str
    """What was promised, one line."""
    fact: str
    """What is the case, one line."""
    cure: str
    """What would put it right, one line."""
    evidence: Mapping[str, int | float | str] = dataclasses.field(default_factory=dict)
    weight: float = 0
    """How much of it there is: CPUs, or a ratio. Of pods that are equal otherwise, the heavier goes first."""
    spare: str = ""
    """The plugin's own reason not to evict yet, a CamelCase word; empty when there is none."""
    sightings: int = 1
    """In how many pictures in a row it must be seen before a pod is evicted for it."""
    plugin: str = ""
    """Filled in by the cycle."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Something a plugin could not judge, and why."""

    node: str
    reason: str
    text: str
    plugin: str = ""
    """Filled in by the cycle."""


Judge = Callable[[View, Any], Iterator[Finding | Note]]


@dataclasses.dataclass(frozen=True, slots=True)
class Plugin:
    """A rule found in the package `plugins`."""

    name: str
    """As in a policy file: `ReservedCPUs`."""
    config: type[Any]
    """Its arguments: a frozen dataclass with a docstring under every field."""
    judge: Judge
    doc: str


def judgeable(pod: PodView) -> bool:
    """Pods that have ended, or are going, are not judged."""
    return pod.pod.active and not pod.pod.deleting


def stale_placement(node: NodeView, oldest_seconds: float) -> Note | None:
    """Why a node cannot be judged: its agent stopped looking, and pods may have moved since. None when it can."""
    age = node.placement_age_seconds
    if age is None or age <= oldest_seconds:
        return None
    ago = "at an unknown time" if age == float("inf") else f"{durations.show(age)} ago"
    text = f"the agent last looked {ago}, more than {durations.show(oldest_seconds)}: its pods are not judged"
    return Note(node=node.name, reason="StalePlacement", text=text)


def too_young(pod: PodView, least_seconds: float) -> bool:
    """Younger than `least_seconds`, or of unknown age: what was promised may not have reached the node yet."""
    return least_seconds > 0 and (pod.age_seconds is None or pod.age_seconds < least_seconds)
