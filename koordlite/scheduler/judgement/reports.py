"""A NodeResourceTopology as it is judged: amounts by NUMA node, policy, distances, and where containers are.

A report that contradicts itself is not used: its zones are not known then, and the node says why.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Collection

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
            available[number] = {name: nano for name, nano, _ in rows}
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
        """Identity of the annotations that are kept."""
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
        """By our own annotation: the NUMA node that a container is promised, or that all its CPUs are on."""
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
