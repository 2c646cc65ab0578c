"""Koordinator's protocol: the extender chooses CPUs and NUMA nodes, the Binding carries them, our agent sets them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from koordlite.model import keys
from koordlite.model.cpuset import EMPTY, CPUSet
from koordlite.model.node import Node
from koordlite.model.pod import pod_reader
from koordlite.model.pod.values import Pod
from koordlite.model.quantity import Quantity, add_resources
from koordlite.numa import resize
from koordlite.numa.koordinator import ask, assignments, node_report, schedule
from koordlite.numa.koordinator.node_report import KoordinatorNode
from koordlite.numa.koordinator.values import (
    Allocation,
    NodeAllocation,
    Refusal,
    Reservations,
    Reserved,
    available_cpus,
)
from koordlite.numa.machine import Machine
from koordlite.numa.nrt import score as nrt_score
from koordlite.reservation.pods import ClusterPod, PodShape
from koordlite.scheduler.judgement.nodes import JudgeSettings, Promise, Row, Score, Verdict

NAME = "koordinator"
NAME_OF_SCORE = "NodeNUMAResource"
CLOSEST = ask.NUMAArgs(prefer_closest=True)
"""Arguments under the policy `numadistance`."""


def concerns(shape: PodShape, row: Row) -> bool:
    """Tell whether pod or node ask for it, on a node whose agent reports its CPUs.

    A node's own NUMA policy counts when its label says it; kubelet's policy makes kubelet decide, and is not ours to
    carry out.
    """
    report = row.report
    if report is None or keys.CPU_TOPOLOGY not in report.annotations:
        return False
    request = shape.koordinator_request
    if isinstance(request, Refusal) or (request is not None and (request.bound or request.numa_policy)):
        return True
    labels = row.node.labels if row.node else {}
    return request is not None and (keys.NUMA_TOPOLOGY_POLICY in labels or keys.CPU_BIND_POLICY in labels)


def gives_cpus(shape: PodShape, row: Row) -> bool:
    """Tell whether a pod of this shape gets CPUs of its own on the node."""
    if row.is_plain or row.unusable or not concerns(shape, row):
        return False
    request = shape.koordinator_request
    return not isinstance(request, Refusal | None) and schedule.is_bound(request, state_of(row)) is True


def verdict(shape: PodShape, row: Row, settings: JudgeSettings) -> Verdict:
    """Koordinator's filter, with what it only finds out when it reserves."""
    request = shape.koordinator_request
    if request is None:
        return Verdict(NAME)
    if row.unusable:
        return Verdict(NAME, "invalid node topology data", why=row.unusable)
    judgement = request if isinstance(request, Refusal) else schedule.judge(request, state_of(row), _of(settings))
    if isinstance(judgement, Refusal):
        return Verdict(NAME, "; ".join(judgement.reasons))
    return Verdict(NAME, numa_nodes=judgement.nodes, placed=(("*", judgement.nodes),))


def score(shape: PodShape, row: Row, settings: JudgeSettings) -> Score:
    """Koordinator's score; 0 where the pod does not fit."""
    request = shape.koordinator_request
    if request is None or isinstance(request, Refusal):
        return Score(0)
    state = state_of(row)
    judgement = schedule.judge(request, state, _of(settings))
    if isinstance(judgement, Refusal):
        return Score(0, {NAME_OF_SCORE: 0})
    if not settings.numa_distance:
        return Score(judgement.score, {NAME_OF_SCORE: judgement.score})
    allocation = schedule.bind(request, state, CLOSEST, uid="")
    nodes = schedule.numa_nodes(allocation, state) if isinstance(allocation, Allocation) else ()
    near = nrt_score.nearness(nodes, state.topology.distances)
    terms: dict[str, int | str] = {NAME_OF_SCORE: judgement.score, "NUMADistance": near}
    return Score(nrt_score.blended(judgement.score, near), terms)


def promise(shape: PodShape, row: Row, settings: JudgeSettings, uid: str) -> Promise:
    """Allocation of the pod there, as annotations of its Binding."""
    request = shape.koordinator_request
    if request is None:
        return Promise()
    if isinstance(request, Refusal):
        return Promise(refusal="; ".join(request.reasons))
    state = state_of(row)
    allocation = schedule.bind(request, state, _of(settings), uid=uid)
    if isinstance(allocation, Refusal):
        return Promise(refusal="; ".join(allocation.reasons))
    return Promise(schedule.for_binding(request, state, allocation))


def resized(pod: ClusterPod, row: Row) -> Promise | None:
    """Promise of a pod on the node after its request was changed in place, or why it cannot follow; None when it need
    not, or the pod has none that holds."""
    request = pod.shape.koordinator_request
    if row.is_plain or row.unusable or request is None or isinstance(request, Refusal) or not pod.resource_status:
        return None
    state = state_of(row)
    machine, own = state.topology.machine, state.allocated.pods.get(pod.uid)
    if own is None or not own.cpus or schedule.is_bound(request, state) is not True:
        return None
    if request.count == len(pod_reader.parse_resource_status(pod.resource_status).cpuset):
        return None
    try:
        cpus = resize.resized(own.cpus, request.count, machine, free_cpus(state))
    except ValueError as error:
        return Promise(refusal=str(error))
    zones: dict[int, Mapping[str, Quantity]] = {}
    for node, amounts in own.zones.items():
        count = len(machine.by_node.get(node, EMPTY) & cpus)
        zones[node] = {**amounts, "cpu": Quantity.of_milli(1000 * count)} if "cpu" in amounts else amounts
    after = msgspec.structs.replace(own, cpus=cpus, zones=zones)
    return Promise({keys.RESOURCE_STATUS: schedule.resource_status(after)})


def _of(settings: JudgeSettings) -> ask.NUMAArgs:
    return CLOSEST if settings.numa_distance else ask.DEFAULTS


def state_of(row: Row) -> KoordinatorNode:
    """The node with what its pods hold, worked out once for this row."""
    return row.once(NAME, lambda: node_of(row))


def free_cpus(state: KoordinatorNode) -> CPUSet:
    """CPUs of the node that are neither reserved nor anybody's own."""
    topology = state.topology
    return available_cpus(
        topology.machine, state.allocated.cpus, reserved=topology.reserved, most_holders=topology.most_holders
    )


def node_of(row: Row) -> KoordinatorNode:
    """The same, worked out anew."""
    assert row.report is not None
    topology = msgspec.structs.replace(row.report.koordinator, numa_policy="")
    node = row.node or Node(name=row.name)
    labels = node.labels
    manager = topology.cpu_manager
    binds = bool(node_report.bind_policy(labels, manager.policy, manager.options))
    real, stand_ins = row.without_placeholders
    by_uid = _allocations(real, binds, topology.machine)
    reserved = _reservations(row, by_uid, _allocations(stand_ins, binds, topology.machine))
    all_held = NodeAllocation.of(topology.machine, [*by_uid.values(), *(own for own, _ in reserved)])
    requested: dict[str, Quantity] = {}
    for pod in real:
        add_resources(requested, pod.shape.pod.requests)
    for one in row.reservations.placed:
        if one.uid != row.reservations.taking:
            add_resources(requested, one.holding.available)
    # What the node keeps back is nobody's, for the score as well.
    trimmed = {name: Quantity(row.limits.get(name, each.nano), each.format) for name, each in node.allocatable.items()}
    node = msgspec.structs.replace(node, allocatable=trimmed)
    state = KoordinatorNode.of(node, topology, all_held, requested)
    return msgspec.structs.replace(state, reservations=_as_seen(row, reserved)) if reserved else state


def _allocations(pods: Iterable[ClusterPod], binds: bool, machine: Machine) -> dict[str, Allocation]:
    """Holdings of these pods by their annotations, as far as those hold, by uid."""
    listed = list(_holding(pods))
    holding = assignments.judged(listed, before={}, created={}, binds_every_pod=binds, machine=machine)
    return {each.uid: each for each in assignments.allocations(holding)}


def _reservations(
    row: Row, by_uid: Mapping[str, Allocation], of_stand_ins: Mapping[str, Allocation]
) -> list[tuple[Allocation, Reserved]]:
    """Holdings of each reservation, in the place of its placeholder; `by_uid` are the allocations of other pods."""
    holdings = []
    for one in row.reservations.placed:
        theirs = [each for pod in row.pods if pod.stands_for == one.uid and (each := of_stand_ins.get(pod.uid))]
        own = one.own if one.own.cpus or one.own.zones or not theirs else theirs[0]
        own = msgspec.structs.replace(own, uid=one.uid)
        owners = [by_uid[uid] for uid in one.holding.owners if uid in by_uid]
        holdings.append((own, Reserved.of(one.holding.policy, own, owners)))
    return holdings


def _as_seen(row: Row, reserved: list[tuple[Allocation, Reserved]]) -> Reservations:
    """Holdings as the pod meets them that the row is for."""
    on_node, all_ = row.reservations, [each for _, each in reserved]
    if on_node.ignores:
        return Reservations(matched=tuple(all_), ignored=True)
    return Reservations(
        matched=tuple(each for each in all_ if each.uid == on_node.taking),
        others=tuple(each for each in all_ if each.uid != on_node.taking),
        nominated=on_node.taking,
    )


def _holding(pods: Iterable[ClusterPod]) -> Iterator[Pod]:
    """Pods with an allocation in their annotation; one that cannot be read holds nothing."""
    for pod in pods:
        if not pod.resource_status:
            continue
        try:
            status = pod_reader.parse_resource_status(pod.resource_status)
        except ValueError:
            continue
        written: Mapping[str, str] = {**pod.shape.pod.annotations, keys.RESOURCE_STATUS: pod.resource_status}
        yield msgspec.structs.replace(
            pod.shape.pod,
            namespace=pod.namespace,
            name=pod.name,
            uid=pod.uid,
            phase=pod.phase,
            annotations=written,
            resource_status=status,
        )
