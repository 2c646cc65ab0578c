"""Room beside a node's reservation (`node.koordinator.sh/reservation`): kube-scheduler does not know of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from koordlite.formulas.allocatable import node_room
from koordlite.formulas.allocatable.node_room import NanoAmounts
from koordlite.model import keys
from koordlite.reservation.pods import KnownPod, PodShape
from koordlite.scheduler.judgement import koordinator
from koordlite.scheduler.judgement.nodes import Row

NAME = "beside reservation"


def refusal(shape: PodShape, row: Row) -> str:
    """Reason why the pod does not fit beside what the node keeps back; empty when it does, and where Reservations have
    a say, which count it as well."""
    if not row.limits or (row.reservations.placed and not row.reservations.ignores):
        return ""
    requested: dict[str, int] = row.once(NAME, lambda: node_room.total(requests(row, row.pods)))
    own = request(shape, row)
    return "; ".join(
        f"node(s) with too little {name} beside {keys.RESERVATION} (it has {_amount(name, limit)} beside it, "
        f"{_amount(name, requested.get(name, 0))} are requested, the pod requests {_amount(name, nano)})"
        for name, limit in row.limits.items()
        if (nano := own.get(name, 0)) > 0 and requested.get(name, 0) + nano > limit
    )


def requests(row: Row, pods: Iterable[KnownPod]) -> Iterator[NanoAmounts]:
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


def room(row: Row) -> NanoAmounts:
    """Amounts that pods may still request of the resources that the node's reservation takes from."""
    if not row.limits:
        return {}
    requested: dict[str, int] = row.once(NAME, lambda: node_room.total(requests(row, row.pods)))
    return {name: max(0, limit - requested.get(name, 0)) for name, limit in row.limits.items()}


class _Status(msgspec.Struct):
    cpuset: str = ""


def has_cpus(pod: KnownPod) -> bool:
    """Tell whether its annotation names CPUs of its own."""
    try:
        return bool(pod.resource_status and msgspec.json.decode(pod.resource_status, type=_Status).cpuset)
    except msgspec.DecodeError:
        return False


def _amount(name: str, nano: int) -> str:
    return f"{nano / 10**9:g} CPUs" if name == "cpu" else f"{nano // 10**9}"
