"""Room beside a node's reservation: most that pods may request, and the amount that each of them counts.

The scheduler's side refuses what does not fit, and the descheduler finds what no longer fits: by the same sums. Source
of the amounts: Koordinator `TrimNodeAllocatableByNodeReservation`, and its scheduler's amplified CPU accounting.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from koordlite.formulas.allocatable import reservation
from koordlite.model import keys
from koordlite.model.node import Reservation
from koordlite.model.quantity import Quantity
from koordlite.numa.koordinator.node_report import read_ratios

NanoAmounts = Mapping[str, int]
"""Nano-units by resource."""
_UNTOUCHED = (keys.BATCH_CPU, keys.BATCH_MEMORY)


def limits(allocatable: Mapping[str, Quantity], written: Reservation | None) -> dict[str, int]:
    """max(allocatable − reserved, 0) of each resource that the reservation takes from; empty when it takes none by
    amount. Batch resources are no part of it: the reservation does not touch them.
    """
    if written is None or written.apply_policy not in ("", "Default"):
        return {}
    names = {name for name, amount in reservation.written_resources(written).items() if amount.nano > 0}
    trimmed = reservation.trim_allocatable(allocatable=allocatable, written=written)
    return {name: trimmed[name].nano for name in sorted((names & set(allocatable)) - set(_UNTOUCHED))}


def counted(requests: NanoAmounts, *, amplification: float, has_cpus: bool) -> NanoAmounts:
    """Requests of one pod as they count. On a node with amplified CPUs, CPUs of its own (`has_cpus`) count as many
    times as they are amplified.

    >>> counted({"cpu": 2}, amplification=1.5, has_cpus=True)
    {'cpu': 3}
    """
    if amplification > 1 and has_cpus and "cpu" in requests:
        return {**requests, "cpu": round(requests["cpu"] * amplification)}
    return requests


def amplification(annotations: Mapping[str, str]) -> float:
    """Factor by which the node amplifies its CPUs, by its annotation; 1 where that cannot be read: the agent writes it,
    and says when it cannot."""
    ratios, _ = read_ratios(annotations.get(keys.AMPLIFICATION_RATIO))
    return (ratios or {}).get("cpu", 1.0)


def total(requests: Iterable[NanoAmounts]) -> dict[str, int]:
    """Sum by resource."""
    sums: dict[str, int] = {}
    for amounts in requests:
        for name, nano in amounts.items():
            sums[name] = sums.get(name, 0) + nano
    return sums
