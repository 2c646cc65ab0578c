"""A node at one moment with its report, compiled for judging; verdicts about one pod and one node; and settings.

A changed node is another object: a verdict holds for exactly one row.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal, TypeVar

import msgspec

from koordlite.model import defaults, keys
from koordlite.model.cpuset import CPUSet
from koordlite.model.errors import Problem
from koordlite.model.node import Node
from koordlite.model.quantity import Quantity
from koordlite.model.wire import objects
from koordlite.model.wire.crane import TopologyObject
from koordlite.numa.koordinator import node_report
from koordlite.numa.koordinator.node_report import NO_REPORT, NodeTopology
from koordlite.numa.nrt import fingerprint, placement
from koordlite.numa.nrt.filter import Amounts, Zones, cpu_left
from koordlite.numa.nrt.reader import DEFAULT, Reader
from koordlite.reservation.placed import NO_RESERVATIONS, OnNode
from koordlite.reservation.pods import ClusterPod

Container = tuple[str, str, str]
"""Namespace, pod, container."""
_READ = (
    *(keys.PLACEMENT, keys.CPU_TOPOLOGY, keys.CPU_MANAGER_POLICY, keys.POD_CPU_ALLOCS, keys.RESERVATION),
    *(keys.SYSTEM_QOS, keys.AMPLIFICATION_RATIO),
)
"""Annotations of a report that are kept."""
_DO = "its reporter has to write it again; the node's NUMA nodes count as unknown until then"


class Report:
    """Contents of one NodeResourceTopology, of at most so many NUMA nodes; their ids may have gaps.

    One that contradicts itself is not used: its zones are not known then, and the node says why.
    """

    def __init__(self, obj: objects.NRTObject, max_numa_nodes: int = defaults.NUMA_NODES) -> None:
        problems: list[Problem] = []
        reader = Reader(obj, problems, max_numa_nodes=max_numa_nodes)
        attributes = {a.get("name", ""): a.get("value", "") for a in obj.attributes or ()}
        annotations, manager = obj.metadata.annotations or {}, reader.policy.over(DEFAULT)
        self.name, self.version = obj.metadata.name, obj.metadata.resource_version
        self.policy, self.scope, self.max_numa_nodes = manager.policy, manager.scope, manager.max_numa_nodes or 8
        """Settings of kubelet's topology manager."""
        available: dict[int, Amounts] = {}
        totals: dict[int, Amounts] = {}
        for number, zone in reader.nodes.items():
            rows = [(r.name, *_amounts(r, f"{reader.owner}/{zone.name}", problems)) for r in zone.resources or ()]
            available[number] = {name: nano for name, nano, _ in rows}
            totals[number] = {name: total for name, _, total in rows}
        self.totals: Zones = totals
        """Upper bound of what each NUMA node may hand out."""
        self.costs = reader.distances
        self.fingerprint = fingerprint.read(attributes, annotations)
        self.only_exclusive = fingerprint.only_exclusive(attributes)
        """The fingerprint counts only pods with resources of their own."""
        self.annotations = {key: sys.intern(annotations[key]) for key in _READ if key in annotations}
        self.problems = tuple(problems)
        """Problems; with any, its zones cannot be believed."""
        self.koordinator = NO_REPORT
        """The same as Koordinator's scheduler reads it, where an agent reports CPUs."""
        self.available: Zones = available
        """Available amounts without CPUs that are reserved or that pods have alone, as far as the report names CPUs."""
        if keys.CPU_TOPOLOGY in annotations:
            topology = self.koordinator = node_report.read(obj, [], max_numa_nodes=defaults.MOST_NUMA_NODES)
            free = CPUSet(topology.machine.all.ids - topology.reserved.ids)
            self.available = beside_owners(available, topology, free)
        self.resources = frozenset(name for zone in self.available.values() for name in zone)
        """Every resource that some NUMA node lists."""
        self._placement = attributes.get(placement.METADATA_ATTRIBUTE, "")
        """numaplacement, with its vectors by NUMA node."""
        self._vectors = {
            number: attribute.get("value", "")
            for number, zone in reader.nodes.items()
            for attribute in zone.attributes or ()
            if attribute.get("name") == placement.VECTOR_ATTRIBUTE
        }

    @property
    def gives_no_cpus(self) -> bool:
        """Tell whether kubelet gives no pod CPUs of its own, as far as an agent says: without a policy, its default."""
        return bool(self.koordinator.machine.cpus) and self.koordinator.cpu_manager.policy != "static"

    def places(self, namespace: str, pod: str) -> bool:
        """Tell whether its reporter says by name where a container of the pod is: then its amounts count the pod."""
        return (namespace, pod) in self._placed

    @functools.cached_property
    def _placed(self) -> frozenset[tuple[str, str]]:
        return frozenset((namespace, pod) for namespace, pod, _ in self._by_annotation())

    def reader(self, problems: list[Problem]) -> Reader:
        """Reader of the annotations that are kept."""
        meta = objects.ObjectMeta(name=self.name, annotations=dict(self.annotations))
        return Reader(objects.NRTObject(metadata=meta), problems)

    def whereabouts(self, containers: Collection[Container]) -> dict[Container, int]:
        """The NUMA node of each container that is on one, as far as the report says; `containers` are all that run
        on the node and have resources of their own. numaplacement cannot be read while it is about other containers."""
        nodes: dict[Container, int] = {}
        if self._placement:
            with contextlib.suppress(placement.PlacementError):
                nodes = placement.decode(placement.parse_metadata(self._placement), self._vectors, containers)
        return nodes or self._by_annotation()

    def _by_annotation(self) -> dict[Container, int]:
        """NUMA node by our own annotation: the one that a container is promised, or that all its CPUs are on."""
        placed = self.reader([]).placement
        by_container: dict[Container, int] = {}
        for each in placed.containers if placed else ():
            nodes = each.promised_nodes or tuple(each.cpus_by_numa)
            if each.exclusive and len(nodes) == 1:
                by_container[each.namespace, each.pod, each.container] = nodes[0]
        return by_container


def beside_owners(zones: Zones, topology: NodeTopology, free: CPUSet) -> Zones:
    """The amounts with no more CPU than `free` CPUs of each NUMA node, where the report names CPUs."""
    by_node = topology.machine.by_node
    return {
        node: {**zone, "cpu": cpu_left(zone["cpu"], by_node[node], free)} if "cpu" in zone and node in by_node else zone
        for node, zone in zones.items()
    }


def _amounts(resource: objects.ZoneResource, owner: str, problems: list[Problem]) -> tuple[int, int]:
    """Amounts available, and in all; a resource of the older form says only what is available."""
    try:
        available, total, most = (
            Quantity.parse(text).nano for text in (resource.available, resource.allocatable, resource.capacity)
        )
    except ValueError as error:
        problems.append(Problem(owner, resource.name, str(resource.available), str(error), _DO))
        return 0, 0
    total = total or most or available
    if available < 0 or available > total:
        why = f"available {resource.available} is not between 0 and allocatable {Quantity(total)}"
        problems.append(Problem(owner, resource.name, str(resource.available), why, _DO))
    return available, total


T = TypeVar("T")


class Row(msgspec.Struct, frozen=True, eq=False):
    """One node with what is reserved on it."""

    name: str
    allocatable: Amounts
    """The node's, in nano-units."""
    limits: Amounts = msgspec.field(default_factory=dict)
    """Upper bound of what pods may request of the resources that the node's reservation takes from, in nano-units."""
    report: Report | None = None
    zones: Zones = msgspec.field(default_factory=dict)
    """Available amounts by NUMA node, with reservations taken off."""
    at_most: Zones = msgspec.field(default_factory=dict)
    """The same if everything that is reserved should be taken from other NUMA nodes; one object with `zones` where
    nothing is reserved."""
    owed: Zones = msgspec.field(default_factory=dict)
    """Amounts reserved beyond what is available: what pods that go give back is owed first."""
    unusable: str = ""
    """Reason why nothing may be concluded from its NUMA nodes: upstream's text for the pod's condition."""
    node: Node | None = None
    crane: TopologyObject | None = None
    """Crane's own topology of the node."""
    pods: tuple[ClusterPod, ...] = ()
    """Alive on the node, and on their way to it: what the allocators of schedulers count."""
    is_plain: bool = False
    """No agent of a scheduler reports its CPUs: only pods that name a scheduler concern its rules."""
    reservations: OnNode = NO_RESERVATIONS
    """Koordinator's reservations that are on the node, as the pod meets them that is judged."""
    extra: dict[str, Any] = msgspec.field(default_factory=dict)
    """Results of allocators for this row, by their name."""

    @property
    def without_placeholders(self) -> tuple[list[ClusterPod], list[ClusterPod]]:
        """(the pods that count, those in whose place their reservations count)."""
        uids = self.reservations.uids
        stand_ins = [pod for pod in self.pods if pod.stands_for in uids]
        return [pod for pod in self.pods if pod.stands_for not in uids] if stand_ins else list(self.pods), stand_ins

    def once(self, name: str, make: Callable[[], T]) -> T:
        """Result of `make()`, worked out once for this row."""
        if name not in self.extra:
            self.extra[name] = make()
        value: T = self.extra[name]
        return value


class Verdict(msgspec.Struct, frozen=True):
    """Answer of a filter: whether a pod may go to a node, and where there."""

    protocol: str
    """Allocator on the node: kubelet, koordinator, crane, or none; volcano for a refusal by its policy."""
    refusal: str = ""
    """Stable text for the pod's condition; empty: it may."""
    numa_nodes: tuple[int, ...] = ()
    """The NUMA nodes it would be on."""
    why: str = ""
    """Text shown beside the refusal, or in favour of the node."""
    placed: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """NUMA nodes by container; `*` is the whole pod."""

    @property
    def passes(self) -> bool:
        """Tell whether it is not refused."""
        return not self.refusal


class Score(msgspec.Struct, frozen=True):
    """Score of a node, 0 to 100, with its parts."""

    total: int
    terms: Mapping[str, int | str] = msgspec.field(default_factory=dict)


class Promise(msgspec.Struct, frozen=True):
    """Annotations of a Binding: the allocation that the agent of the node carries out."""

    annotations: Mapping[str, str] = msgspec.field(default_factory=dict)
    refusal: str = ""
    """Reason why the pod cannot be bound there any more."""
    numa_nodes: tuple[int, ...] = ()
    """NUMA nodes on which the pod will be."""


CacheMode = Literal["overreserve", "discardReserved", "passthrough"]
ForeignPods = Literal["reserve", "refuse", "ignore"]


class JudgeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the judgement, with names as scheduler-plugins has them where it has them."""

    strategy: str = "LeastAllocated"
    """`scoringStrategy.type`: LeastAllocated, MostAllocated, BalancedAllocation or LeastNUMANodes."""
    weights: Mapping[str, int] = msgspec.field(default_factory=dict)
    """Weight by resource; 1 where none is given."""
    check_restricted: bool = True
    """Judge nodes whose topology manager is `restricted`; upstream lets every pod pass there."""
    cache: CacheMode = "overreserve"
    """Behavior between a binding and the report that counts it."""
    foreign_pods: ForeignPods = "reserve"
    """Pods that another scheduler bound and the report has not counted: reserve them too, refuse the node until the
    report has counted them, as upstream does, or ignore them."""
    profiles: frozenset[str] = frozenset({"koordlite-scheduler", "default-scheduler"})
    """Schedulers that ask this extender: pods of any other are foreign."""
    tentative_seconds: float = 2.0
    """Time for which the node that was rated best is kept for a pod that is not bound yet."""
    assumed_seconds: float = 60.0
    """Time for which a binding counts of which the API server has said nothing."""
    settle_seconds: float = 2.0
    """A report without fingerprint counts a pod when it changes so long after the pod was started."""
    report_seconds: float = 65.0
    """A report without fingerprint that did not change for so long after a pod was started counts it: reporters look
    at least once a minute, and write nothing when nothing changed."""
    gone_seconds: float = 60.0
    """Time for which a pod that is gone may still be in a report."""
    max_age_seconds: float = 300.0
    """Greatest age of what is known of the cluster; beyond, every verb answers with an error."""
    max_numa_nodes: int = defaults.NUMA_NODES
    """NUMA nodes of a machine beyond which its report is not used: the time to judge it doubles with each."""
    numa_distance: bool = False
    """Policy `numadistance`: nodes on which a pod gets NUMA nodes near together are rated higher, and the allocator
    takes those nearest together."""
    hold_seconds: float = 60.0
    """Time for which a pod is kept from other nodes while its reservation is made free for it."""
    check_volcano: bool = True
    """Honour pods' `volcano.sh/numa-topology-policy`."""
