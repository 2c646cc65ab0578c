"""Requests that no longer fit beside what a node keeps back: how much too many, and which few pods would cure it.

A reservation made or raised after the pods came leaves a node with more requested than may be handed out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from descheduler.framework import NodeView, PodView
from koordlite.formulas.allocatable import node_room
from koordlite.formulas.allocatable.node_room import NanoAmounts


def excess(node: NodeView) -> dict[str, int]:
    """max(requests − (allocatable − reserved), 0) for each resource that the reservation takes from; empty when all
    fits, or nothing is reserved by amount."""
    return node.once(excess, lambda: _excess(node))


def _excess(node: NodeView) -> dict[str, int]:
    limits = node_room.limits(node.node.allocatable, node.reservation)
    if not limits:
        return {}
    requested = node_room.total(request(pod, node) for pod in node.pods)
    over = {name: requested.get(name, 0) - limit for name, limit in limits.items()}
    return {name: nano for name, nano in over.items() if nano > 0}


def request(pod: PodView, node: NodeView) -> NanoAmounts:
    """Amount that one pod counts."""
    return node_room.counted(
        {name: amount.nano for name, amount in pod.pod.requests.items()},
        amplification=node_room.amplification(node.node.annotations),
        has_cpus=bool(pod.pod.resource_status.cpuset),
    )


def fewest(candidates: Sequence[tuple[PodView, NanoAmounts]], over: NanoAmounts) -> list[PodView]:
    """Pods, taken in the order given, whose leaving brings every excess to 0; without those that prove needless.

    Where all together are too little, those that help at all.
    """
    left, chosen = dict(over), list[tuple[PodView, NanoAmounts]]()
    for pod, amounts in candidates:
        if any(amounts.get(name, 0) > 0 for name, nano in left.items() if nano > 0):
            chosen.append((pod, amounts))
            _take(left, amounts, 1)
        if not _short(left.values()):
            break
    for pod, amounts in tuple(chosen):
        _take(left, amounts, -1)
        if _short(left.values()):
            _take(left, amounts, 1)
        else:
            chosen.remove((pod, amounts))
    return [pod for pod, _ in chosen]


def _take(left: dict[str, int], amounts: NanoAmounts, sign: int) -> None:
    for name in left:
        left[name] -= sign * amounts.get(name, 0)


def _short(amounts: Iterable[int]) -> bool:
    return any(nano > 0 for nano in amounts)
