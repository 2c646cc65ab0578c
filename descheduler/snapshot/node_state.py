"""A node of the picture: its object, its report and its pods put together, and taken over while they are the same.

With it: who keeps which CPUs, and what was promised to pods that the agent has not (or not yet) reported on.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Iterable, Mapping

import msgspec

from descheduler.framework import NodeView, PodView, ReservedCPUs
from descheduler.picture.cluster import NodeReport
from descheduler.picture.templates import by_name
from koordlite.formulas.allocatable import reservation
from koordlite.model import cpuset, defaults, keys, node, nrt, times
from koordlite.model.cpuset import EMPTY, CPUSet
from koordlite.model.errors import UNREADABLE, Problem, noting
from koordlite.model.node import Reservation, SystemQoS
from koordlite.model.nrt import ContainerPlacement, PodCPUAlloc
from koordlite.model.pod.values import Pod
from koordlite.model.quantity import Quantity, parse_resources
from koordlite.model.reading.go_words import STRICT_RESERVATION, is_on
from koordlite.model.wire import objects as wire
from koordlite.model.wire.crane import TopologyObject
from koordlite.numa.koordinator import node_report
from koordlite.numa.koordinator.node_report import NO_REPORT
from koordlite.numa.nrt import reader
from koordlite.numa.nrt.reader import Reader

Amounts = Mapping[str, Quantity]
_SINGLE = "single-numa-node"


def reserved_cpus(
    reported: Report,
    written: Reservation | None,
    system: SystemQoS | None,
    *,
    unreadable: bool = False,
    pinned: CPUSet = EMPTY,
) -> ReservedCPUs:
    """CPUs kept on a node. The agent's resolved list counts before the list on the node; a bare quantity becomes the
    CPUs that the agent would choose, given those `pinned` by pods, where the topology is known, and else names none.

    Source of the order: Koordinator publishes the resolved list on the NodeResourceTopology for its scheduler.
    """
    cpus, source = _reservation(reported, written, unreadable, pinned)
    return ReservedCPUs(
        koordinator=cpus,
        source=source,
        kubelet=reported.cpu_manager.reserved_cpus,
        strict=is_on(reported.cpu_manager.options, STRICT_RESERVATION),
        system=system.cpuset if system and system.exclusive else EMPTY,
        crane=reported.by_crane,
    )


def _reservation(
    reported: Report, written: Reservation | None, unreadable: bool, pinned: CPUSet
) -> tuple[CPUSet | None, str]:
    resolved = reported.reservation
    if resolved and resolved.reserved_cpus is not None:
        return resolved.reserved_cpus, "report"
    if written and written.reserved_cpus is not None:
        return written.reserved_cpus, "annotation"
    if unreadable:
        return None, "unreadable"
    if not reservation.cpu_count(written):
        return EMPTY, "none"
    if not reported.topology.cpus:
        return None, "quantity"
    return reservation.resolve(written=written, cpus=reported.topology.cpus, pinned=pinned).cpus, "computed"


def of_pod(one: PodView, view: NodeView, reported: Report) -> tuple[tuple[ContainerPlacement, ...], bool]:
    """(what was promised to each container and where it is, whether an agent has seen that).

    The agent's record counts; without one what scheduler or kubelet promised is all there is to judge. What Crane
    promised, zones in the annotation, counts where nobody else has promised anything. An agent that carries Crane's
    promises out names the containers that have one.
    """
    reports = reported.placements.get(one.uid, ())
    placements = reports or promise_record(one.pod, view, reported.allocs.get(one.uid))
    zones = one.pod.crane.nodes
    if zones and not any(each.source == "crane" for each in placements):
        whole = ContainerPlacement(namespace=one.pod.namespace, pod=one.pod.name, uid=one.pod.uid, container="*")
        exclusive = one.pod.crane.policy == "exclusive"
        of_crane = {"source": "crane", "exclusive": exclusive, "single_numa": len(zones) == 1, "scope": "pod"}
        placements = tuple(
            msgspec.structs.replace(each, promised_nodes=zones, **of_crane) if each.source == "none" else each
            for each in placements or (whole,)
        )
    return tuple(_refine(each, one, view) for each in placements), bool(reports)


def _refine(container: ContainerPlacement, one: PodView, view: NodeView) -> ContainerPlacement:
    """Kubelet aligns to one NUMA node what could fit on one under `restricted`, and what Volcano asked for."""
    if container.source != "kubelet" or container.single_numa:
        return container
    by_annotation = one.pod.annotations.get(keys.VOLCANO_NUMA_POLICY) == _SINGLE
    could = view.topology_policy == "restricted" and _could_be_single(container, one, view)
    return msgspec.structs.replace(container, single_numa=True) if by_annotation or could else container


def _could_be_single(container: ContainerPlacement, one: PodView, view: NodeView) -> bool:
    if not container.promised_cpus:
        return False
    reserved = view.cpu_manager.reserved_cpus
    by_topology = {zone.id: {"cpu": Quantity.of(len(zone.cpus - reserved))} for zone in view.topology.nodes}
    spec = next((c for c in one.object.spec.containers or () if c.name == container.container), None)
    amounts: Amounts = one.pod.requests  # Of the pod as a whole, unless the promise is to one container.
    if spec is not None:
        amounts = parse_resources((spec.resources.requests if spec.resources else None), "", "", [])
    memory = {name: amount for name, amount in amounts.items() if name == "memory"}
    # Were the machine empty, could one NUMA node hold all of it? Resources that no NUMA node lists are not asked.
    # Source: kubelet prefers the fewest nodes that could hold a request on an empty machine, and its policy
    # `restricted` admits nothing else.
    totals = view.zone_totals or by_topology
    listed = {name for zone in totals.values() for name in zone}
    whole = {"cpu": Quantity.of(len(container.promised_cpus)), **memory}
    requests = {name: amount for name, amount in whole.items() if name in listed}
    return any(all(name in zone and zone[name] >= most for name, most in requests.items()) for zone in totals.values())


def promise_record(pod: Pod, view: NodeView, alloc: PodCPUAlloc | None) -> tuple[ContainerPlacement, ...]:
    """A record for the whole pod from what the scheduler or kubelet promised, taken as the fact for want of better.

    Koordinator's promise counts before kubelet's, as in `calGuaranteedCpu`: kubelet does not pin what it manages.
    """
    status = pod.resource_status
    if status.cpuset or status.numa_nodes:
        single = numa_policy(pod, view) == "SingleNUMANode"
        return (_record(pod, "koordinator", status.cpuset, nodes=status.numa_nodes, single=single, scope="pod"),)
    if alloc and alloc.cpuset:
        single = view.topology_policy == _SINGLE
        return (_record(pod, "kubelet", alloc.cpuset, nodes=(), single=single, scope=view.topology_scope),)
    return ()


def numa_policy(pod: Pod, view: NodeView) -> str:
    """Koordinator's word for how the pod is to be aligned: the pod's own policy, else the node's; empty for neither."""
    # The node's policy is its label, else what kubelet reports for whole pods.
    reported = view.topology_policy == _SINGLE and view.topology_scope == "pod"
    of_node = view.node.labels.get(keys.NUMA_TOPOLOGY_POLICY) or ("SingleNUMANode" if reported else "")
    return pod.numa_policy or of_node


def _record(
    pod: Pod, source: str, cpus: CPUSet, *, nodes: tuple[int, ...], single: bool, scope: str
) -> ContainerPlacement:
    return ContainerPlacement(
        namespace=pod.namespace,
        pod=pod.name,
        uid=pod.uid,
        container="*",
        source=source,
        exclusive=bool(cpus),
        single_numa=single,
        scope=scope,
        promised_cpus=cpus,
        promised_nodes=nodes,
        cpuset=cpus,
    )


Moves = tuple[list[PodView], list[PodView]]
"""Pods that left, and pods that came."""


class NodeState:
    """A node for one picture after the other, as long as its object and its report are the same objects."""

    def __init__(self, obj: wire.NodeObject, reported: Report) -> None:
        self._obj, self._reported = obj, reported
        value = node.from_wire(obj)
        self.problems = list(value.problems)
        """Unreadable parts of it."""
        owner, notes = f"node/{value.name}", value.annotations
        self._written, by_node = None, None
        with noting(self.problems):
            self._written = node.parse_reservation(notes.get(keys.RESERVATION, ""), owner)
        with noting(self.problems):
            by_node = node.parse_system_qos(notes.get(keys.SYSTEM_QOS), owner)
        self._system = reported.system_qos or by_node
        self.pods: list[PodView] = []
        """Its pods with what was promised to them, by namespace and name."""
        report = {name: getattr(reported, name) for name in NodeReport.__struct_fields__}
        self.view = NodeView(node=value, object=obj, reservation=self._written, **report)
        """The node with the pods that it took last."""

    def is_of(self, obj: wire.NodeObject, reported: Report) -> bool:
        """Tell whether it was made of these very objects."""
        return self._obj is obj and self._reported is reported

    def note_report(self, at: float | None) -> None:
        """Then its agent saw its pods last, and these are the same."""
        if self.view.placement_at != at:
            view = self.view
            self.view = view.with_pods(view.pods, view.ended, moves=((), ()), reserved=view.reserved, placement_at=at)

    def change(self, leavers: Iterable[PodView], came: Iterable[PodView], seen_at: float | None) -> Moves:
        """Some of its pods left, and others came, as they were read; then its agent saw them last. Returns the same
        pods with what was promised to them. Pods that stay keep that: it follows from the pod, the node's object and
        the report."""
        removed = [self.pods.pop(bisect.bisect_left(self.pods, by_name(one), key=by_name)) for one in leavers]
        new = list[PodView]()
        for one in came:
            containers, observed = ((), False) if one.pod.finished else of_pod(one, self.view, self._reported)
            new.append(msgspec.structs.replace(one, containers=containers, observed=observed) if containers else one)
            bisect.insort(self.pods, new[-1], key=by_name)
        written, notes, pinned = self._written, self.view.node.annotations, EMPTY
        if written and written.reserved_cpus is None:  # CPUs that scheduler and kubelet gave to pods.
            by_scheduler = [one.pod.resource_status.cpuset for one in self.pods if one.pod.active]
            pinned = cpuset.union([*by_scheduler, *(alloc.cpuset for alloc in self._reported.allocs.values())])
        finished = ended(self.pods) if self.view.ended or ended(new) else []
        self.view = self.view.with_pods(
            tuple(active(self.pods) if finished else self.pods),
            tuple(finished),
            moves=(removed, new),
            reserved=(
                reserved_cpus(
                    self._reported,
                    written,
                    self._system,
                    unreadable=written is None and notes.get(keys.RESERVATION, "") not in ("", "null"),
                    pinned=pinned,
                )
            ),
            placement_at=seen_at,
        )
        return removed, new


def active(pods: Iterable[PodView]) -> list[PodView]:
    """The pods that have not ended."""
    return [one for one in pods if not one.pod.finished]


def ended(pods: Iterable[PodView]) -> list[PodView]:
    """The pods that have Succeeded or Failed."""
    return [one for one in pods if one.pod.finished]


class Report(NodeReport, frozen=True, kw_only=True):
    """The reports on a node as values, with what they say of its pods and of what is kept from them."""

    reservation: node.Reservation | None = None
    system_qos: node.SystemQoS | None = None
    allocs: Mapping[str, nrt.PodCPUAlloc] = msgspec.field(default_factory=dict)
    """CPUs kubelet gave to pods alone, by uid."""
    placements: Mapping[str, tuple[nrt.ContainerPlacement, ...]] = msgspec.field(default_factory=dict)
    """Containers by pod uid."""
    by_crane: CPUSet = EMPTY
    """CPUs that Crane keeps, from its own kind."""


def read(obj: wire.NRTObject, problems: list[Problem]) -> tuple[Report, float | None]:
    """The report of one node, and when its agent saw where containers are, in seconds since the epoch: None when it
    does not say, minus infinity when that cannot be read. What cannot be read is added to `problems`."""
    topology_reader = Reader(obj, problems, max_numa_nodes=nrt.MAX_NUMA_NODES)
    placement, policy = topology_reader.placement, topology_reader.policy
    # Koordinator's rules, and kubelet's `restricted`, go through sets of NUMA nodes.
    is_searched = len(topology_reader.nodes) <= defaults.NUMA_NODES
    if not is_searched and (policy.policy == "restricted" or topology_reader.topology.cpus):
        reader.numa_nodes(obj.zones, topology_reader.owner, problems)
    placements: dict[str, list[nrt.ContainerPlacement]] = defaultdict(list)
    for container in placement.containers if placement else ():
        placements[container.uid].append(container)
    report = Report(
        topology=topology_reader.topology,
        zones=topology_reader.available,
        zone_totals=topology_reader.allocatable if policy.policy == "restricted" and is_searched else {},
        distances=topology_reader.distances,
        be_pool=topology_reader.be_pool,
        topology_policy=policy.policy,
        topology_scope=policy.scope or "container",
        cpu_manager=topology_reader.cpu_manager,
        reservation=topology_reader.reservation,
        system_qos=topology_reader.system_qos,
        allocs={alloc.uid: alloc for alloc in topology_reader.kubelets_pods},
        placements={uid: tuple(containers) for uid, containers in placements.items()},
        koordinator=node_report.of_reader(topology_reader, obj.topology_policies or ()) if is_searched else NO_REPORT,
    )
    return report, _observation_time(placement, topology_reader.owner, problems)


def observed_at(obj: wire.NRTObject) -> str | None:
    """Time of the agent's last look; None when there is no placement, or it cannot be read."""
    text = (obj.metadata.annotations or {}).get(keys.PLACEMENT)
    try:
        return msgspec.json.decode(text, type=_ObservedAt).observed_at if text else None
    except UNREADABLE:
        return None  # `read` reports it, with the whole annotation.


class _ObservedAt(msgspec.Struct, frozen=True, rename="camel"):
    observed_at: str | None = None


def _observation_time(placement: nrt.Placement | None, owner: str, problems: list[Problem]) -> float | None:
    if placement is None:
        return None
    try:
        return times.parse(placement.observed_at)
    except ValueError as error:
        do = "the agent writes it; without a time the placement counts as too old"
        problems.append(Problem(owner, f"{keys.PLACEMENT} observedAt", placement.observed_at, str(error), do))
        return float("-inf")


def crane_reserved(obj: TopologyObject, problems: list[Problem]) -> CPUSet:
    """CPUs that Crane keeps from pods which ask for it; what cannot be read is added to `problems`."""
    text = (obj.attributes or {}).get(keys.CRANE_RESERVED_CPUS, "")
    try:
        return CPUSet.parse(text)
    except ValueError as error:
        owner = f"{keys.CRANE_GROUP}noderesourcetopology/{obj.metadata.name}"
        do = "write CPUs like 0-3,8; no CPU counts as reserved by Crane until then"
        problems.append(Problem(owner, f"attributes[{keys.CRANE_RESERVED_CPUS}]", text, str(error), do))
        return EMPTY
