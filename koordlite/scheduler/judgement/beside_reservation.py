"""Room beside a node's reservation (`node.koordinator.sh/reservation`): kube-scheduler does not know of it."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from koordlite.formulas.allocatable import node_room
from koordlite.formulas.allocatable.node_room import NanoAmounts
from koordlite.model import keys
from koordlite.scheduler.judgement.nodes import Row
from koordlite.scheduler.judgement.pods import KnownPod, PodShape

NAME = "beside reservation"


def refusal(shape: PodShape, row: Row) -> str:
    """Reason why the pod does not fit beside what the node keeps back; empty when it does.

    A pod that is judged may get CPUs of its own, which count for more on a node with amplified CPUs: how many it gets
    is not known yet, so it counts as it requests.
    """
    if not row.limits:
        return ""
    requested: dict[str, int] = row.once(NAME, lambda: node_room.total(_counted(row)))
    return "; ".join(
        f"node(s) with too little {name} beside {keys.RESERVATION} (it has {_amount(name, limit)} beside it, "
        f"{_amount(name, requested.get(name, 0))} are requested, the pod requests {_amount(name, nano)})"
        for name, limit in row.limits.items()
        if (nano := shape.total.get(name, 0)) > 0 and requested.get(name, 0) + nano > limit
    )


def _counted(row: Row) -> Iterator[NanoAmounts]:
    amplification = node_room.amplification(row.node.annotations if row.node else {})
    for pod in row.pods:
        yield node_room.counted(pod.shape.total, amplification=amplification, has_cpus=_has_cpus(pod))


class _Status(msgspec.Struct):
    cpuset: str = ""


def _has_cpus(pod: KnownPod) -> bool:
    try:
        return bool(pod.resource_status and msgspec.json.decode(pod.resource_status, type=_Status).cpuset)
    except msgspec.DecodeError:
        return False


def _amount(name: str, nano: int) -> str:
    return f"{nano / 10**9:g} CPUs" if name == "cpu" else f"{nano // 10**9}"
