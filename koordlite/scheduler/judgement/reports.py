"""A NodeResourceTopology as it is judged: amounts by NUMA node, policy, distances, who it counted and where they are.

A report that contradicts itself is not used: its zones are not known then, and the node says why.
"""

from __future__ import annotations

import functools
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

Container = tuple[str, str, str]
"""Namespace, pod, container."""
_READ = (
    *(keys.PLACEMENT, keys.CPU_TOPOLOGY, keys.CPU_MANAGER_POLICY, keys.POD_CPU_ALLOCS, keys.RESERVATION),
    *(keys.SYSTEM_QOS, keys.AMPLIFICATION_RATIO),
)
"""Annotations of a report that are kept."""
_DO = "its reporter has to write it again; the node's NUMA nodes count as unknown until then"


class Report(msgspec.Struct, frozen=True, eq=False, dict=True):
    """Contents of one NodeResourceTopology."""

    name: str
    version: str
    """resourceVersion."""
    policy: str = "none"
    """Kubelet's topology manager policy."""
    scope: str = "container"
    max_numa_nodes: int = 8
    available: Zones = msgspec.field(default_factory=dict)
    """Without CPUs that are reserved or that pods have alone, as far as the report names CPUs."""
    totals: Zones = msgspec.field(default_factory=dict)
    """What each NUMA node may hand out at most."""
    costs: Mapping[int, Mapping[int, int]] = msgspec.field(default_factory=dict)
    fingerprint: str = ""
    only_exclusive: bool = False
    """The fingerprint counts only pods with resources of their own."""
    attributes: Mapping[str, str] = msgspec.field(default_factory=dict)
    annotations: Mapping[str, str] = msgspec.field(default_factory=dict)
    vectors: Mapping[int, str] = msgspec.field(default_factory=dict)
    """numaplacement, by NUMA node."""
    problems: tuple[Problem, ...] = ()
    object: objects.NRTObject | None = None
    koordinator: NodeTopology = NO_REPORT
    """The same as Koordinator's scheduler reads it, where an agent reports CPUs."""

    @property
    def gives_no_cpus(self) -> bool:
        """Tell whether kubelet gives no pod CPUs of its own, as far as an agent says: without a policy, its default."""
        return bool(self.koordinator.machine.cpus) and self.koordinator.cpu_manager.policy != "static"

    @property
    def is_usable(self) -> bool:
        """Tell whether its zones can be believed."""
        return not self.problems

    @functools.cached_property
    def resources(self) -> frozenset[str]:
        """Every resource that some NUMA node lists."""
        return frozenset(name for zone in self.available.values() for name in zone)

    def places(self, namespace: str, pod: str) -> bool:
        """Tell whether its reporter says by name where a container of the pod is: then its amounts count the pod."""
        return (namespace, pod) in self._placed

    @functools.cached_property
    def _placed(self) -> frozenset[tuple[str, str]]:
        return frozenset((namespace, pod) for namespace, pod, _ in _by_annotation(self))

    def reader(self, problems: list[Problem]) -> Reader:
        """Identity of the annotations that are kept."""
        meta = objects.ObjectMeta(name=self.name, annotations=dict(self.annotations))
        return Reader(objects.NRTObject(metadata=meta), problems)

    def whereabouts(self, containers: Collection[Container]) -> dict[Container, int]:
        """The NUMA node of each container that is on one, as far as the report says; `containers` are all that run
        on the node and have resources of their own."""
        return _by_vectors(self, containers) or _by_annotation(self)


def of_object(obj: objects.NRTObject, max_numa_nodes: int = defaults.NUMA_NODES) -> Report:
    """The report in `obj`, of at most so many NUMA nodes; ids may have gaps."""
    attributes = {a.get("name", ""): a.get("value", "") for a in obj.attributes or ()}
    annotations, problems = obj.metadata.annotations or {}, list[Problem]()
    reader = Reader(obj, problems, max_numa_nodes=max_numa_nodes)
    said, owner = reader.policy.over(DEFAULT), reader.owner
    kept = {key: sys.intern(annotations[key]) for key in _READ if key in annotations}
    available, totals = _columns(reader.nodes, owner, problems)
    # Only allocators of CPUs read the object, and only where an agent of theirs writes it.
    small, topology = None, NO_REPORT
    if keys.CPU_TOPOLOGY in kept:
        meta = objects.ObjectMeta(name=obj.metadata.name, annotations=kept)
        small = objects.NRTObject(metadata=meta, topology_policies=obj.topology_policies, zones=obj.zones)
        topology = node_report.read(small, [], max_numa_nodes=defaults.MOST_NUMA_NODES)
        available = beside_owners(available, topology, CPUSet(topology.machine.all.ids - topology.reserved.ids))
    return Report(
        name=obj.metadata.name,
        version=obj.metadata.resource_version,
        policy=said.policy,
        scope=said.scope,
        max_numa_nodes=said.max_numa_nodes or 8,
        available=available,
        totals=totals,
        costs=reader.distances,
        fingerprint=fingerprint.read(attributes, annotations),
        only_exclusive=fingerprint.only_exclusive(attributes),
        attributes=attributes,
        annotations=kept,
        vectors=dict(_vectors(reader.nodes)),
        problems=tuple(problems),
        object=small,
        koordinator=topology,
    )


def beside_owners(zones: Zones, topology: NodeTopology, free: CPUSet) -> Zones:
    """The amounts with no more CPU than `free` CPUs of each NUMA node, where the report names CPUs."""
    by_node = topology.machine.by_node
    return {
        node: {**zone, "cpu": cpu_left(zone["cpu"], by_node[node], free)} if "cpu" in zone and node in by_node else zone
        for node, zone in zones.items()
    }


_Nodes = Mapping[int, objects.Zone]


def _columns(nodes: _Nodes, owner: str, problems: list[Problem]) -> tuple[Zones, Zones]:
    available: dict[int, Amounts] = {}
    totals: dict[int, Amounts] = {}
    for number, zone in nodes.items():
        rows = [(r.name, *_amounts(r, f"{owner}/{zone.name}", problems)) for r in zone.resources or ()]
        available[number] = {name: left for name, left, _ in rows}
        totals[number] = {name: total for name, _, total in rows}
    return available, totals


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


def _vectors(nodes: _Nodes) -> Iterable[tuple[int, str]]:
    for number, zone in nodes.items():
        for attribute in zone.attributes or ():
            if attribute.get("name") == placement.VECTOR_ATTRIBUTE:
                yield number, attribute.get("value", "")


def _by_vectors(report: Report, containers: Collection[Container]) -> dict[Container, int]:
    """By numaplacement. It cannot be read while it is about other containers than those that are known."""
    text = report.attributes.get(placement.METADATA_ATTRIBUTE)
    if not text:
        return {}
    try:
        return placement.decode(placement.parse_metadata(text), report.vectors, containers)
    except placement.PlacementError:
        return {}


def _by_annotation(report: Report) -> dict[Container, int]:
    """By our own annotation: the NUMA node that a container is promised, or that all its CPUs are on."""
    placed = report.reader([]).placement
    found: dict[Container, int] = {}
    for each in placed.containers if placed else ():
        nodes = each.promised_nodes or tuple(each.cpus_by_numa)
        if each.exclusive and len(nodes) == 1:
            found[each.namespace, each.pod, each.container] = nodes[0]
    return found
