"""Requests that no longer fit beside what a node keeps back: how much too many, and which few pods would cure it.

A reservation made or raised after the pods came leaves a node with more requested than may be handed out. Source of
the amounts: Koordinator `TrimNodeAllocatableByNodeReservation`, and its scheduler's amplified CPU accounting.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from descheduler.framework import NodeView, PodView
from koordlite.formulas.allocatable import reservation
from koordlite.model import keys

NanoAmounts = Mapping[str, int]
"""Nano-units by resource."""


def excess(node: NodeView) -> dict[str, int]:
    """max(requests − (allocatable − reserved), 0) for each resource that the reservation takes from; empty when all
    fits, or nothing is reserved by amount.

    Batch resources are no part of it: the reservation does not touch them.
    """
    return node.once(excess, lambda: _excess(node))


def _excess(node: NodeView) -> dict[str, int]:
    written = node.reservation
    if written is None or written.apply_policy not in ("", "Default"):
        return {}
    kept = {name for name, amount in reservation.written_resources(written).items() if amount.nano > 0}
    limits = reservation.trim_allocatable(allocatable=node.node.allocatable, written=written)
    total = requested(node)
    named = sorted((kept & set(node.node.allocatable)) - set(_UNTOUCHED))
    over = {name: total.get(name, 0) - limits[name].nano for name in named}
    return {name: nano for name, nano in over.items() if nano > 0}


_UNTOUCHED = (keys.BATCH_CPU, keys.BATCH_MEMORY)


def requested(node: NodeView) -> dict[str, int]:
    """Requests of the node's pods."""
    total: dict[str, int] = {}
    for pod in node.pods:
        for name, nano in request(pod, node).items():
            total[name] = total.get(name, 0) + nano
    return total


def request(pod: PodView, node: NodeView) -> dict[str, int]:
    """Amount that one pod counts. On a node with amplified CPUs, CPUs of its own count as many times as they are
    amplified.

    >>> 2 * 1.5  # two CPUs of its own where one CPU is sold as one and a half
    3.0
    """
    amounts = {name: amount.nano for name, amount in pod.pod.requests.items()}
    ratio = _amplification(node)
    if ratio > 1 and pod.pod.resource_status.cpuset and "cpu" in amounts:
        amounts["cpu"] = round(amounts["cpu"] * ratio)
    return amounts


def _amplification(node: NodeView) -> float:
    text = node.node.annotations.get(keys.AMPLIFICATION_RATIO, "")
    try:
        return msgspec.json.decode(text, type=dict[str, float]).get("cpu", 1.0) if text else 1.0
    except msgspec.DecodeError:
        return 1.0  # The agent writes it and says when it cannot: without it nothing is amplified.


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
