"""Resource lists of the wire, `{cpu: 500m, memory: 1Gi}`, as exact quantities."""

from __future__ import annotations

from collections.abc import Mapping

from koordlite.model import keys
from koordlite.model.errors import Problem
from koordlite.model.quantity import Quantity


def parse_resources(
    texts: Mapping[str, str | int | float] | None, owner: str, field: str, problems: list[Problem]
) -> dict[str, Quantity]:
    """Quantities by resource name; one that cannot be read is left out and added to `problems`.

    A deprecated name of an extended resource becomes the one of today, which wins where both are given.
    """
    parsed: dict[str, Quantity] = {}
    for resource, text in (texts or {}).items():
        try:
            parsed[resource] = Quantity.parse(text)
        except ValueError as error:
            do = "write a quantity; counted as 0"
            problems.append(Problem(owner, f"{field}.{resource}", str(text), str(error), do))
    for old, new in keys.DEPRECATED_RESOURCES.items():
        if old in parsed:
            amount = parsed.pop(old)
            parsed.setdefault(new, amount)
    return parsed


def add_resources(into: dict[str, Quantity], more: Mapping[str, Quantity]) -> dict[str, Quantity]:
    """Add `more` to `into`, key by key."""
    for name, amount in more.items():
        held = into.get(name)
        into[name] = Quantity(held.nano + amount.nano, held.format) if held else amount
    return into
