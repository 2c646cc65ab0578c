"""Room on a node that is kept back: by Reservations, of which a pod may take one, and by the node itself.

The amounts of a node are kube-scheduler's to count, and it counts placeholders as the pods they are. They are counted
here, too, because a reservation holds its capacity also while it has no placeholder: between the end of one and the
binding of the owner that was let in for it. Of the node's own reservation (`node.koordinator.sh/reservation`)
kube-scheduler does not know at all.
"""

from __future__ import annotations

import collections
import json
from collections.abc import Iterable, Iterator

import msgspec

from koordlite.formulas.allocatable import node_room
from koordlite.formulas.allocatable.node_room import NanoAmounts
from koordlite.model import keys
from koordlite.model.errors import InputError
from koordlite.model.pod import pod_reader
from koordlite.model.quantity import Quantity
from koordlite.model.wire.reservation import ResourceNames
from koordlite.reservation import capacity, matching
from koordlite.reservation.capacity import Demand, NodeCapacity
from koordlite.reservation.matching import read
from koordlite.reservation.placed import PlacedReservation
from koordlite.reservation.pods import ClusterPod, PodShape
from koordlite.scheduler.judgement import koordinator
from koordlite.scheduler.judgement.nodes import Row

NAME, BESIDE = "reservation", "beside reservation"
FIRST, TAKES = 1000, 101
"""Scores: of the node whose reservation comes first by its label, and the least of nodes with a reservation for the
pod, which are better than all others."""


def refusal(shape: PodShape, row: Row) -> str:
    """Reason why the pod does not find the capacity on the node: in a reservation of its own, or beside those of
    others. Empty where reservations have no say about pod and node."""
    if not row.reservations.placed and not shape.names_reservation:
        return ""
    demand = shape.once(NAME, lambda: _demand(shape))
    if isinstance(demand, str):
        return demand
    on_node = row.reservations
    if on_node.ignores:
        return ""
    one = on_node.match
    if not on_node.placed:
        return capacity.NONE_MEETS if demand.must_reserve else ""
    where = row.once(NAME, lambda: _capacity(row))
    if ratio := amplification(row) - 1:
        # CPUs of its own count amplified: so much less is left for it, and more of what a reservation has of them.
        own = request(shape, row).get("cpu", 0) - shape.total.get("cpu", 0)
        back = _cpu(one.holding.available) * ratio if one is not None and _has_cpus(one, row) else 0
        remaining = where.allocatable.get("cpu", 0) + int(back) - own // 10**6
        where = msgspec.structs.replace(where, allocatable={**where.allocatable, "cpu": remaining})
    return "; ".join(capacity.refusals(demand, where, [one.holding] if one is not None else []))


def points(shape: PodShape, row: Row) -> int | None:
    """The score of a node with a reservation for the pod; None of others."""
    one = row.reservations.match
    if one is None:
        return None
    return FIRST if row.reservations.first else TAKES + capacity.score(shape.pod.requests, one.holding)


def binding_annotation(row: Row) -> dict[str, str]:
    """The annotation of the Binding that says which reservation the pod took."""
    one = row.reservations.match
    if one is None or row.reservations.is_rest:
        return {}
    return {keys.RESERVATION_ALLOCATED: json.dumps({"name": one.name, "uid": one.uid}, separators=(",", ":"))}


def _demand(shape: PodShape) -> Demand | str:
    """Request of pods of this shape; the text of the mistake where their annotations cannot be read."""
    try:
        affinity = matching.parse_affinity(shape.pod.annotations, "pod")
        read(ResourceNames, shape.pod.annotations, keys.EXACT_MATCH, "pod")
    except InputError as error:
        problem = error.problems[0]
        return f"annotation {problem.field} cannot be read: {problem.why}"
    needs = affinity is not None
    return Demand(
        requests=shape.pod.requests, has_affinity=needs, must_reserve=needs, name=affinity.name if affinity else ""
    )


def _capacity(row: Row) -> NodeCapacity:
    """The node as the pod meets it that the row is for: each reservation counts once, its owners beside it."""
    on_node = row.reservations
    real, _ = row.without_placeholders
    requested = _total({name: Quantity(nano) for name, nano in each.items()} for each in requests(row, real))
    requested.update(_total(one.holding.allocatable for one in on_node.placed))
    requested.subtract(_total(one.holding.allocated for one in on_node.placed if one.uid != on_node.taking))
    if ratio := amplification(row) - 1:
        requested["cpu"] += int(
            ratio * sum(_cpu(one.holding.available) for one in on_node.placed if _has_cpus(one, row))
        )
    own = on_node.match
    return NodeCapacity(
        allocatable={
            name: nano // (10**6 if name == "cpu" else 10**9)
            for name, nano in {**row.allocatable, **row.limits}.items()
        },
        requested=requested,
        owners=capacity.whole(own.holding.allocated) if own is not None else {},
        pods=len(real) + len(on_node.placed),
        matched=1 if own is not None else 0,
    )


def _has_cpus(one: PlacedReservation, row: Row) -> bool:
    """Tell whether it holds CPUs, by its annotation or that of a placeholder."""
    return bool(one.own.cpus) or any(pod.stands_for == one.uid and has_cpus(pod) for pod in row.pods)


def _cpu(amounts: capacity.Amounts) -> int:
    return capacity.whole(amounts).get("cpu", 0)


def _total(parts: Iterable[capacity.Amounts]) -> collections.Counter[str]:
    total: collections.Counter[str] = collections.Counter()
    for amounts in parts:
        total.update(capacity.whole(amounts))
    return total


def refusal_beside(shape: PodShape, row: Row) -> str:
    """Reason why the pod does not fit beside what the node itself keeps back; empty when it does, and where
    Reservations have a say, which count it as well."""
    if not row.limits or (row.reservations.placed and not row.reservations.ignores):
        return ""
    requested, own = _requested(row), request(shape, row)
    return "; ".join(
        f"node(s) with too little {name} beside {keys.RESERVATION} (it has {_amount(name, limit)} beside it, "
        f"{_amount(name, requested.get(name, 0))} are requested, the pod requests {_amount(name, nano)})"
        for name, limit in row.limits.items()
        if (nano := own.get(name, 0)) > 0 and requested.get(name, 0) + nano > limit
    )


def room(row: Row) -> NanoAmounts:
    """Amounts that pods may still request of the resources that the node's reservation takes from."""
    requested = _requested(row) if row.limits else {}
    return {name: max(0, limit - requested.get(name, 0)) for name, limit in row.limits.items()}


def _requested(row: Row) -> NanoAmounts:
    return row.once(BESIDE, lambda: node_room.total(requests(row, row.pods)))


def requests(row: Row, pods: Iterable[ClusterPod]) -> Iterator[NanoAmounts]:
    """Requests of pods of the node as they count there."""
    ratio = amplification(row)
    for pod in pods:
        yield node_room.counted(pod.shape.total, amplification=ratio, has_cpus=has_cpus(pod))


def amplification(row: Row) -> float:
    """Factor by which CPUs of pods' own count on a node that keeps something back; 1 on others."""
    return node_room.amplification(row.node.annotations) if row.limits and row.node else 1.0


def request(shape: PodShape, row: Row) -> NanoAmounts:
    """Request of a pod as it will count on the node: one that gets CPUs of its own there counts them amplified."""
    ratio = amplification(row)
    if ratio <= 1:
        return shape.total
    return node_room.counted(shape.total, amplification=ratio, has_cpus=koordinator.gives_cpus(shape, row))


def has_cpus(pod: ClusterPod) -> bool:
    """Tell whether its annotation names CPUs of its own."""
    try:
        return bool(pod.resource_status and pod_reader.parse_resource_status(pod.resource_status).cpuset)
    except ValueError:
        return False


def _amount(name: str, nano: int) -> str:
    return f"{nano / 10**9:g} CPUs" if name == "cpu" else f"{nano // 10**9}"
