"""A NodeResourceTopology as it is judged: amounts by NUMA node, policy, distances, which pods it has counted and where
they are, and what is to be taken from it, or given back, for those it has not.

A report that contradicts itself is not used: its zones are not known then, and the node says why.

Source of the cache modes: scheduler-plugins NodeResourceTopologyMatch, cache (overreserve, discardReserved,
passthrough) and its resync by the fingerprint of the node's pods. Ours: which pods a fingerprint counted is worked out,
so that only those it has not counted are reserved on top.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import sys
from collections.abc import Collection, Iterable, Mapping

import msgspec

from koordlite.model import defaults, keys
from koordlite.model.cpuset import CPUSet
from koordlite.model.errors import Problem
from koordlite.model.quantity import Quantity
from koordlite.model.wire import objects
from koordlite.numa.koordinator import node_report
from koordlite.numa.koordinator.node_report import NO_REPORT, NodeTopology
from koordlite.numa.nrt import fingerprint, placement
from koordlite.numa.nrt.filter import Amounts, Zones, cpu_left
from koordlite.numa.nrt.reader import DEFAULT, Reader
from koordlite.reservation.pods import KnownPod

Container = tuple[str, str, str]
"""Namespace, pod, container."""
_READ = (
    *(keys.PLACEMENT, keys.CPU_TOPOLOGY, keys.CPU_MANAGER_POLICY, keys.POD_CPU_ALLOCS, keys.RESERVATION),
    *(keys.SYSTEM_QOS, keys.AMPLIFICATION_RATIO),
)
"""Annotations of a report that are kept."""
_DO = "its reporter has to write it again; the node's NUMA nodes count as unknown until then"


class Report:
    """Contents of one NodeResourceTopology, of at most so many NUMA nodes; their ids may have gaps."""

    def __init__(self, obj: objects.NRTObject, max_numa_nodes: int = defaults.NUMA_NODES) -> None:
        problems: list[Problem] = []
        reader = Reader(obj, problems, max_numa_nodes=max_numa_nodes)
        attributes = {a.get("name", ""): a.get("value", "") for a in obj.attributes or ()}
        annotations, manager = obj.metadata.annotations or {}, reader.policy.over(DEFAULT)
        self.name, self.version = obj.metadata.name, obj.metadata.resource_version
        self.policy, self.scope, self.max_numa_nodes = manager.policy, manager.scope, manager.max_numa_nodes or 8
        """Of kubelet's topology manager."""
        available: dict[int, Amounts] = {}
        totals: dict[int, Amounts] = {}
        for number, zone in reader.nodes.items():
            rows = [(r.name, *_amounts(r, f"{reader.owner}/{zone.name}", problems)) for r in zone.resources or ()]
            available[number] = {name: left for name, left, _ in rows}
            totals[number] = {name: total for name, _, total in rows}
        self.totals: Zones = totals
        """What each NUMA node may hand out at most."""
        self.costs = reader.distances
        self.fingerprint = fingerprint.read(attributes, annotations)
        self.only_exclusive = fingerprint.only_exclusive(attributes)
        """The fingerprint counts only pods with resources of their own."""
        self.annotations = {key: sys.intern(annotations[key]) for key in _READ if key in annotations}
        self.problems = tuple(problems)
        """Where there are any, its zones cannot be believed."""
        self.koordinator = NO_REPORT
        """The same as Koordinator's scheduler reads it, where an agent reports CPUs."""
        self.available: Zones = available
        """Without CPUs that are reserved or that pods have alone, as far as the report names CPUs."""
        if keys.CPU_TOPOLOGY in annotations:
            topology = self.koordinator = node_report.read(obj, [], max_numa_nodes=defaults.MOST_NUMA_NODES)
            free = CPUSet(topology.machine.all.ids - topology.reserved.ids)
            self.available = beside_owners(available, topology, free)
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

    @functools.cached_property
    def resources(self) -> frozenset[str]:
        """Every resource that some NUMA node lists."""
        return frozenset(name for zone in self.available.values() for name in zone)

    def places(self, namespace: str, pod: str) -> bool:
        """Tell whether its reporter says by name where a container of the pod is: then its amounts count the pod."""
        return (namespace, pod) in self._placed

    @functools.cached_property
    def _placed(self) -> frozenset[tuple[str, str]]:
        return frozenset((namespace, pod) for namespace, pod, _ in self._by_annotation())

    def reader(self, problems: list[Problem]) -> Reader:
        """Identity of the annotations that are kept."""
        meta = objects.ObjectMeta(name=self.name, annotations=dict(self.annotations))
        return Reader(objects.NRTObject(metadata=meta), problems)

    def whereabouts(self, containers: Collection[Container]) -> dict[Container, int]:
        """The NUMA node of each container that is on one, as far as the report says; `containers` are all that run
        on the node and have resources of their own. numaplacement cannot be read while it is about other containers."""
        found: dict[Container, int] = {}
        if self._placement:
            with contextlib.suppress(placement.PlacementError):
                found = placement.decode(placement.parse_metadata(self._placement), self._vectors, containers)
        return found or self._by_annotation()

    def _by_annotation(self) -> dict[Container, int]:
        """By our own annotation: the NUMA node that a container is promised, or that all its CPUs are on."""
        placed = self.reader([]).placement
        found: dict[Container, int] = {}
        for each in placed.containers if placed else ():
            nodes = each.promised_nodes or tuple(each.cpus_by_numa)
            if each.exclusive and len(nodes) == 1:
                found[each.namespace, each.pod, each.container] = nodes[0]
        return found


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
        left, total, most = (
            Quantity.parse(text).nano for text in (resource.available, resource.allocatable, resource.capacity)
        )
    except ValueError as error:
        problems.append(Problem(owner, resource.name, str(resource.available), str(error), _DO))
        return 0, 0
    total = total or most or left
    if left < 0 or left > total:
        why = f"available {resource.available} is not between 0 and allocatable {Quantity(total)}"
        problems.append(Problem(owner, resource.name, str(resource.available), why, _DO))
    return left, total


_NOTHING: Mapping[int, Amounts] = {}
MOST_TRIES = 4
"""Pods that are tried in any combination."""
MOST_LATE = 16
"""Pods that came, and that went, that are tried in their order."""


class Coverage(msgspec.Struct, frozen=True):
    """Coverage of the known pods by a report."""

    is_known: bool
    """Whether it could be worked out. If not, every pod that came since it last could is taken for not counted."""
    uncounted: tuple[KnownPod, ...] = ()
    """Alive, and not in the report."""
    outlived: tuple[KnownPod, ...] = ()
    """In the report, and gone."""
    how: str = ""


def coverage(
    report: Report, alive: Collection[KnownPod], gone: Collection[KnownPod], fresh: Collection[str]
) -> Coverage:
    """Coverage by `report` of the pods `alive` on the node and of those recently `gone`.

    `fresh` are the uids of those that the report was not known to count so far. Without a fingerprint, all others are
    taken for counted, and those that it places by name.
    """
    if not report.fingerprint:
        uncounted = tuple(pod for pod in alive if pod.uid in fresh and not report.places(pod.namespace, pod.name))
        return Coverage(not uncounted, uncounted, (), "the report carries no fingerprint of its pods")
    old = [pod for pod in alive if pod.uid not in fresh]
    new = [pod for pod in alive if pod.uid in fresh]
    for with_new, with_gone in _guesses(report, new, list(gone)):
        if fingerprint.sign(_names(report, [*old, *with_new, *with_gone])) == report.fingerprint:
            uncounted = tuple(pod for pod in new if pod not in with_new)
            return Coverage(True, uncounted, tuple(with_gone), "by fingerprint")
    if fingerprint.sign(_names(report, [pod for pod in alive if pod.started])) == report.fingerprint:
        return Coverage(True, tuple(pod for pod in alive if not pod.started), (), "by fingerprint of the pods started")
    # What it places by name it has counted, whatever else it signed; of two pods of one name nobody knows which.
    names, before = {pod.key for pod in alive}, {pod.key for pod in gone}
    uncounted = tuple(pod for pod in new if pod.key in before or not report.places(pod.namespace, pod.name))
    outlived = tuple(pod for pod in gone if pod.key not in names and report.places(pod.namespace, pod.name))
    return Coverage(False, uncounted, outlived, "the report's fingerprint is that of other pods")


def _guesses(
    report: Report, new: list[KnownPod], gone: list[KnownPod]
) -> Iterable[tuple[list[KnownPod], list[KnownPod]]]:
    """Likely ones first: all is counted, nothing is, what the report places by name; then new pods in any combination,
    or, where those are too many, as they came and went one after the other."""
    for with_gone in ([], gone) if gone else ([],):
        yield new, with_gone
        yield [], with_gone
    placed = [pod for pod in new if report.places(pod.namespace, pod.name)]
    yield placed, [pod for pod in gone if report.places(pod.namespace, pod.name)]
    if len(new) + len(gone) <= MOST_TRIES:
        for with_gone in _subsets(gone):
            for with_new in _subsets(new):
                yield with_new, with_gone
    else:
        for went in range(min(len(gone), MOST_LATE) + 1):
            for came in range(min(len(new), MOST_LATE) + 1):
                yield new[:came], gone[len(gone) - went :]


def _subsets(pods: list[KnownPod]) -> Iterable[list[KnownPod]]:
    for size in range(len(pods) + 1):
        yield from map(list, itertools.combinations(pods, size))


def _names(report: Report, pods: Iterable[KnownPod]) -> Iterable[tuple[str, str]]:
    listed, every = report.resources, not report.only_exclusive
    counted = (pod for pod in pods if every or has_exclusive(pod.shape.exclusive, listed))
    return ((pod.namespace, pod.name) for pod in counted)


def has_exclusive(exclusive: Amounts, listed: Collection[str]) -> bool:
    """Tell whether any of a pod's exclusive resources counts on a node that lists these: a device has to be listed.

    Source: scheduler-plugins resourcerequests/exclusive.go.
    """
    return any(name in listed or name in ("cpu", "memory") or name.startswith("hugepages-") for name in exclusive)


def on_top(report: Report, reserved: Iterable[Amounts], returned: Mapping[int, Amounts]) -> Zones:
    """Available amounts when `reserved` is taken from every NUMA node, since nobody knows yet from which it will be
    taken, and `returned` is given back to the NUMA nodes it was on. Below nothing where more is taken than there is:
    `settled` tells both apart."""
    total: dict[str, int] = {}
    for amounts in reserved:
        for name, amount in amounts.items():
            total[name] = total.get(name, 0) + amount
    if not total and not returned:
        return report.available
    return {
        node: {
            name: min(left + returned.get(node, {}).get(name, 0), most) - total.get(name, 0)
            for name, left, most in ((n, a, report.totals[node].get(n, a)) for n, a in zone.items())
        }
        for node, zone in report.available.items()
    }


def settled(zones: Zones) -> tuple[Zones, Zones]:
    """(What is available, by how much less than nothing)."""
    if all(left >= 0 for zone in zones.values() for left in zone.values()):
        return zones, _NOTHING
    available = {node: {name: max(0, left) for name, left in zone.items()} for node, zone in zones.items()}
    owed = {node: {name: -left for name, left in zone.items() if left < 0} for node, zone in zones.items()}
    return available, owed
