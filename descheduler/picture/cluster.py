"""The picture that plugins judge: pods, nodes, budgets and usage at one instant, indexed. Made once, never changed."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from descheduler.picture import templates
from descheduler.picture.pods import PodView, alike_pods
from descheduler.picture.templates import LabelIndex, SpecGroup
from koordlite.model import cpuset, times
from koordlite.model.cpuset import EMPTY, CPUSet
from koordlite.model.errors import Problem
from koordlite.model.node import Node, Reservation
from koordlite.model.nrt import CPUManagerPolicy
from koordlite.model.once import Once
from koordlite.model.quantity import Quantity
from koordlite.model.topology import Topology
from koordlite.model.wire import objects
from koordlite.numa.koordinator.node_report import NO_REPORT, NodeTopology

T = TypeVar("T")


class ReservedCPUs(msgspec.Struct, frozen=True):
    """CPUs of a node that are kept for something else, by who keeps them."""

    koordinator: CPUSet | None = EMPTY
    """CPUs of the node reservation; None where it is only a quantity."""
    source: str = "none"
    """`report` (the agent's resolved list), `annotation` (the list on the node), `computed` (from a quantity and the
    topology), `quantity`, `unreadable` or `none`."""
    kubelet: CPUSet = EMPTY
    """reservedSystemCPUs, or what the CPU manager took for its reserve."""
    strict: bool = False
    """kubelet keeps shared containers off its reserved CPUs too (strict-cpu-reservation)."""
    system: CPUSet = EMPTY
    """Set apart for SYSTEM pods."""
    crane: CPUSet = EMPTY
    """Kept by Crane from pods that ask for it."""

    @property
    def cpus(self) -> CPUSet:
        """All CPUs we know to be kept."""
        return (self.koordinator or EMPTY) | self.kubelet | self.system | self.crane


NO_TOPOLOGY = Topology((), ())
NO_CPU_MANAGER = CPUManagerPolicy()
NOTHING_RESERVED = ReservedCPUs()


class NodeReport(msgspec.Struct, frozen=True, kw_only=True):
    """The report on a node; what is missing, or cannot be read, is empty."""

    topology: Topology = NO_TOPOLOGY
    """Empty when it is not reported."""
    zones: Mapping[int, Mapping[str, Quantity]] = msgspec.field(default_factory=dict)
    """Available amounts by NUMA node, as reported."""
    zone_totals: Mapping[int, Mapping[str, Quantity]] = msgspec.field(default_factory=dict)
    """Allocatable amounts by NUMA node, as reported: what an empty node could give; only under `restricted`."""
    distances: Mapping[int, Mapping[int, int]] = msgspec.field(default_factory=dict)
    """Distances from a NUMA node to each other one, 10 to itself; empty when they are not reported."""
    be_pool: CPUSet = EMPTY
    """CPUs that best-effort pods may share, as reported."""
    topology_policy: str = ""
    """Kubelet's topology manager policy; empty when unknown."""
    topology_scope: str = "container"
    cpu_manager: CPUManagerPolicy = NO_CPU_MANAGER
    koordinator: NodeTopology = NO_REPORT
    """The node as Koordinator's scheduler reads it; without CPUs when their topology is not reported."""


class NodeView(Once, NodeReport, frozen=True, dict=True):
    """A node with its pods and its topology report. What is worked out `once` for it holds for all cycles in which it
    stays the same but for the statuses of its pods and `placement_at`: it must not follow from these."""

    node: Node
    object: objects.NodeObject
    pods: tuple[PodView, ...] = ()
    """Pods bound to it that have not ended, by namespace and name."""
    ended: tuple[PodView, ...] = ()
    """Pods bound to it that have Succeeded or Failed, by namespace and name."""
    reserved: ReservedCPUs = NOTHING_RESERVED
    reservation: Reservation | None = None
    """Reservation as written on the node."""
    placement_at: float | None = None
    """Time of the agent's look at the placement, in seconds since the epoch; None when there is none, minus infinity
    when the time cannot be read."""

    @property
    def name(self) -> str:
        """The node's name."""
        return self.node.name

    @property
    def all_pods(self) -> tuple[PodView, ...]:
        """Pods of all phases that are bound to it; those that have ended come last."""
        return self.pods + self.ended

    def with_pods(
        self,
        pods: tuple[PodView, ...],
        ended: tuple[PodView, ...],
        *,
        moves: tuple[Sequence[PodView], Sequence[PodView]],
        reserved: ReservedCPUs,
        placement_at: float | None,
    ) -> NodeView:
        """The same node with other pods. `moves`: those that left, and those that came."""
        changed = msgspec.structs.replace(self, pods=pods, ended=ended, reserved=reserved, placement_at=placement_at)
        same = len(moves[0]) == len(moves[1]) and all(map(alike_pods, *moves)) and reserved == self.reserved
        if same:
            changed.__dict__.update(self.__dict__)
        elif "requested" in self.__dict__:
            total = _with_moves(self.requested, moves)
            if total is not None:
                changed.__dict__["requested"] = total
        changed.__dict__["_those"] = {
            key: (predicate, _follow(before, [list(filter(predicate, some)) for some in moves], changed.all_pods))
            for key, (predicate, before) in self.__dict__.get("_those", {}).items()
        }
        return changed

    def those(self, key: Hashable, predicate: Callable[[PodView], bool]) -> tuple[PodView, ...]:
        """The pods of `all_pods` for which `predicate` holds. It is asked once of each pod that comes, and must follow
        from the pod alone: not from the node, the time or the policy."""
        by_key: dict[Hashable, tuple[Callable[[PodView], bool], tuple[PodView, ...]]]
        by_key = self.__dict__.setdefault("_those", {})
        if key not in by_key:
            by_key[key] = predicate, tuple(filter(predicate, self.all_pods))
        return by_key[key][1]

    @functools.cached_property
    def ready(self) -> bool:
        """Its condition Ready is True, or there are no conditions to go by."""
        conditions = {c.type: c.status for c in self.object.status.conditions or ()}
        return conditions.get("Ready", "True") == "True"

    @functools.cached_property
    def requested(self) -> Mapping[str, int]:
        """Requests of its pods, in nano-units by resource."""
        total: dict[str, int] = {}
        for pod in self.pods:
            for name, amount in pod.pod.requests.items():
                total[name] = total.get(name, 0) + amount.nano
        return total

    @functools.cached_property
    def pinned(self) -> CPUSet:
        """CPUs that pods of this node hold alone."""
        return cpuset.union(pod.pinned for pod in self.pods)


def _follow(
    before: tuple[PodView, ...], moves: Iterable[Iterable[PodView]], everything: Iterable[PodView]
) -> tuple[PodView, ...]:
    """Filter `everything` by `before`, without those that left and with those that came."""
    removed, added = [{pod.pod.uid for pod in several} for several in moves]
    if not removed and not added:
        return before
    uids = {pod.pod.uid for pod in before} - removed | added
    return tuple([pod for pod in everything if pod.pod.uid in uids])


def _with_moves(
    requested: Mapping[str, int], moves: tuple[Sequence[PodView], Sequence[PodView]]
) -> Mapping[str, int] | None:
    """Requests of the pods after some left and some came; None when the last pod that requests some resource may have
    left: then the resource would have to be missing."""
    total = dict(requested)
    for several, sign in zip(moves, (-1, 1), strict=True):
        for pod in several:
            if pod.pod.finished:
                continue
            for name, amount in pod.pod.requests.items():
                total[name] = total.get(name, 0) + sign * amount.nano
        if sign < 0 and not all(total.values()):
            return None
    return total


class NodeGroup(Once, tuple[NodeView, ...]):
    """Some nodes, whose names and index are gathered once however many pods are asked about them."""

    @functools.cached_property
    def names(self) -> frozenset[str]:
        """Their names."""
        return frozenset(node.name for node in self)


class DisruptionBudget(msgspec.Struct, frozen=True):
    """A PodDisruptionBudget and the pods it covers."""

    key: str
    allowed: int
    """status.disruptionsAllowed."""
    pods: frozenset[str]
    """uids."""


class Usage(msgspec.Struct, frozen=True):
    """Measured usage of nodes and pods, from one source. Amounts: cpu in milli-CPUs, memory in bytes, else as
    reported."""

    nodes: Mapping[str, Mapping[str, int]] = msgspec.field(default_factory=dict)
    """Amount by resource, by node. A Prometheus query gives one resource, `MetricResource`, in percent."""
    pods: Mapping[str, Mapping[str, int]] = msgspec.field(default_factory=dict)
    """Amount by resource, by pod (`namespace/name`); empty where the source knows only nodes."""
    ages: Mapping[str, float] = msgspec.field(default_factory=dict)
    """Seconds since a node's measurement was written, by node; a node without an entry does not say."""
    absent: str = ""
    """The reason why there is no measurement; empty when there is."""


class View(msgspec.Struct, frozen=True, dict=True):
    """The cluster at one instant, indexed. Every plugin judges this same picture."""

    time: str
    """RFC 3339: what ages are measured against."""
    time_source: str
    """Source of `time`, in words."""
    nodes: Mapping[str, NodeView]
    """Nodes by name, in the order of names."""
    groups: tuple[SpecGroup, ...] = ()
    """The pods of `pods()` by what they share, in the order of their first pods."""
    by_uid: Mapping[str, PodView] = msgspec.field(default_factory=dict)
    """Pods of all phases that are bound to a node."""
    unbound: tuple[PodView, ...] = ()
    """Pods without a node of the picture."""
    budgets: tuple[DisruptionBudget, ...] = ()
    namespaces: Mapping[str, Mapping[str, str]] = msgspec.field(default_factory=dict)
    """Labels by namespace; a namespace that was not in the files is missing."""
    priority_classes: Mapping[str, int] = msgspec.field(default_factory=dict)
    storage_classes: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Storage class by claim, `namespace/name`."""
    volume_nodes: Mapping[str, tuple[objects.NodeSelector, ...]] = msgspec.field(default_factory=dict)
    """Nodes that reach the volume of a claim, by `namespace/name`: every selector must match. A claim without an entry
    is reached from everywhere."""
    moving: Mapping[str, str] = msgspec.field(default_factory=dict)
    """State of migration jobs that have not ended, by uid of their pods."""
    usage: Mapping[str, Usage] = msgspec.field(default_factory=dict)
    """Usage by source: `KubernetesMetrics`, `NodeMetric` (of koordlet), or `Prometheus:` and the query."""
    replicas: Mapping[str, int] = msgspec.field(default_factory=dict)
    """Pods by owner uid, in any phase and on any node."""
    problems: tuple[Problem, ...] = ()
    """Objects that could not be read, or only in part."""
    notes: tuple[str, ...] = ()
    """Objects left out of the picture, in words."""
    cache: dict[object, Any] | None = None
    """Results of the picture before, by name, for whoever can tell whether it holds for this one; None
    where there is one picture only."""

    @functools.cached_property
    def now(self) -> float:
        """`time` in seconds since the epoch."""
        return times.parse(self.time)

    def age(self, pod: PodView) -> float | None:
        """Seconds since the pod started, else since it was created; None when neither is known."""
        return None if pod.started is None else self.now - pod.started

    def placement_age(self, node: NodeView) -> float | None:
        """Seconds since the agent saw the placement; None when there is none."""
        return None if node.placement_at is None else self.now - node.placement_at

    def pods(self) -> Iterator[PodView]:
        """All pods that have not ended and are bound to a node, by node, namespace and name."""
        for node in self.nodes.values():
            yield from node.pods

    def everything(self) -> Iterator[PodView]:
        """All pods of any phase, on nodes of the picture and without one."""
        for node in self.nodes.values():
            yield from node.all_pods
        yield from self.unbound

    def same(self, name: object, inputs: Collection[object], make: Callable[[], T]) -> T:
        """Result of `make`, or what it gave for a picture before if all inputs are the same objects still."""
        if self.cache is None:
            return make()
        last: tuple[Collection[object], T] | None = self.cache.get(name)
        if last is None or len(last[0]) != len(inputs) or not all(map(operator.is_, last[0], inputs)):
            last = self.cache[name] = inputs, make()
        return last[1]

    @functools.cached_property
    def indices(self) -> Mapping[str, LabelIndex]:
        """`groups` by label, by namespace."""
        return self.same("indices", self.groups, lambda: templates.indices(self.groups))

    @functools.cached_property
    def budgets_by_pod(self) -> Mapping[str, tuple[DisruptionBudget, ...]]:
        """Budgets that cover a pod, by uid."""

        def by_pod() -> dict[str, tuple[DisruptionBudget, ...]]:
            budgets: dict[str, tuple[DisruptionBudget, ...]] = {}
            for budget in self.budgets:
                alone = (budget,)
                for uid in budget.pods:
                    budgets[uid] = (*budgets[uid], budget) if uid in budgets else alone
            return budgets

        return self.same("budgets by pod", self.budgets, by_pod)
