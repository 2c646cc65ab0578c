"""Sums and differences of amounts; a result prints in the suffix family Kubernetes would print it in."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from koordlite.model.quantity import Quantity
from koordlite.numa.koordinator.values import Amounts, Zones

ZERO = Quantity(0)
Ratios = Mapping[str, float]
"""How many times a node sells a resource, by name."""


def plus(a: Quantity, b: Quantity) -> Quantity:
    """a + b."""
    return Quantity(a.nano + b.nano, a.format if a.nano else b.format)


def minus(a: Quantity, b: Quantity) -> Quantity:
    """a - b."""
    return Quantity(a.nano - b.nano, a.format if a.nano else b.format)


def added(a: Amounts, b: Amounts) -> dict[str, Quantity]:
    """a + b, name by name."""
    return {**a, **{name: plus(a[name], amount) if name in a else amount for name, amount in b.items()}}


def left(a: Amounts, b: Amounts) -> dict[str, Quantity]:
    """max(a - b, 0), name by name; names that only `b` has are 0. Source: quota `SubtractWithNonNegativeResult`."""
    rest = {name: minus(amount, b[name]) if name in b else amount for name, amount in a.items()}
    return {**dict.fromkeys(b, ZERO), **{name: amount if amount.nano > 0 else ZERO for name, amount in rest.items()}}


def zones_added(parts: Iterable[Zones]) -> dict[int, Amounts]:
    """The sum of amounts by NUMA node."""
    found: dict[int, Amounts] = {}
    for part in parts:
        for zone, amounts in part.items():
            found[zone] = added(found.get(zone, {}), amounts)
    return found


def total(zones: Zones, chosen: Iterable[int]) -> dict[str, Quantity]:
    """The sum over the chosen NUMA nodes."""
    found: dict[str, Quantity] = {}
    for zone in chosen:
        found = added(found, zones.get(zone, {}))
    return found


def amplify(amount: int, ratio: float) -> int:
    """⌈amount × ratio⌉ where the ratio is above 1. Source: Koordinator `Amplify`."""
    return math.ceil(amount * ratio) if ratio > 1 else amount


def amplified(amounts: Amounts, ratios: Ratios) -> dict[str, Quantity]:
    """Amounts times their ratios: cpu in thousandths, everything else in whole units."""
    return {name: _amplified(name, amount, ratios.get(name, 1.0)) for name, amount in amounts.items()}


def _amplified(name: str, amount: Quantity, ratio: float) -> Quantity:
    if ratio <= 1 or not amount.nano:
        return amount
    if name == "cpu":
        return Quantity.of_milli(amplify(amount.milli, ratio))
    binary = name in ("memory", "ephemeral-storage")
    return Quantity.of(amplify(amount.value, ratio), "BinarySI" if binary else "DecimalSI")
