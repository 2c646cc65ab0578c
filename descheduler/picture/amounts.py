"""Amounts in the units their resources are compared in: millicores for `cpu`, whole units (bytes, counts) for the rest.

Source: upstream `resourceutils`, and the scheduler.
"""

from __future__ import annotations

from collections.abc import Mapping

from koordlite.model.quantity import Quantity

Amounts = Mapping[str, int]
"""Whole units by resource name."""

_NANO_PER_UNIT = 10**9
_NANO_PER_MILLI = 10**6


def whole(resource: str, nano: int) -> int:
    """Nano-units as units of the resource, rounded away from zero.

    >>> whole("cpu", 1_500_000), whole("memory", 1_500_000)
    (2, 1)
    """
    size = _NANO_PER_MILLI if resource == "cpu" else _NANO_PER_UNIT
    return -(-nano // size) if nano > 0 else nano // size


def units(amounts: Mapping[str, Quantity]) -> dict[str, int]:
    """Amounts of several resources."""
    return {name: whole(name, amount.nano) for name, amount in amounts.items()}
