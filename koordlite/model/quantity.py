"""Kubernetes quantities (`500m`, `2Gi`, `1e3`) as exact integers of nano-units.

Rules: `resource.Quantity` of Kubernetes (docs/formulas.md, "Quantities"): suffixes n u m k M G T P E and Ki..Ei or a
decimal exponent; finer than nano rounds away from zero; `Value` and `MilliValue` round away from zero.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Literal

from koordlite.model import keys
from koordlite.model.errors import Problem

NANO = 10**9
_BEYOND = 10**100
"""Nano-units. No machine has so much, and parts of it cannot be worked out."""
_LONGEST = 100
"""Characters; nobody writes more digits than those of an int64 and as many behind the point."""
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_SUFFIXES = {power: suffix for suffix, power in _DECIMAL.items()}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_TEXT = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?(?:([eE])([+-]?[0-9]{1,3})|([numkMGTPE]|[KMGTPE]i)?)\Z", re.ASCII)

Format = Literal["DecimalSI", "BinarySI", "DecimalExponent"]


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Quantity:
    """An amount of something; compares by amount, prints in the suffix family it was written in."""

    nano: int
    format: Format = dataclasses.field(default="DecimalSI", compare=False)

    @classmethod
    def parse(cls, text: str | int | float) -> Quantity:
        """The quantity `text` writes; ValueError when it is none. JSON numbers are accepted as Kubernetes does."""
        return _parse(str(text))

    @classmethod
    def of(cls, value: int, fmt: Format = "DecimalSI") -> Quantity:
        """`value` whole units."""
        return cls(value * NANO, fmt)

    @classmethod
    def of_milli(cls, milli: int) -> Quantity:
        """`milli` thousandths."""
        return cls(milli * 10**6)

    @property
    def value(self) -> int:
        """Whole units, rounded away from zero."""
        return _parts(self.nano, NANO)

    @property
    def milli(self) -> int:
        """Thousandths, rounded away from zero."""
        return _parts(self.nano, 10**6)

    def __add__(self, other: Quantity) -> Quantity:
        """The sum, written as its first amount that is not zero."""
        return Quantity(self.nano + other.nano, self.format if self.nano else other.format)

    def __sub__(self, other: Quantity) -> Quantity:
        """The difference, written like a sum."""
        return Quantity(self.nano - other.nano, self.format if self.nano else other.format)

    def __str__(self) -> str:
        if self.nano == 0:
            return "0"
        if self.format == "BinarySI" and self.nano % NANO == 0 and abs(self.nano) >= 1024 * NANO:
            value, power = self.nano // NANO, 0
            while value % 1024 == 0 and power < 6:
                value, power = value // 1024, power + 1
            return f"{value}{['', *_BINARY][power]}"
        nano, power = self.nano, -9
        while nano % 1000 == 0 and power < 18:
            nano, power = nano // 1000, power + 3
        if self.format == "DecimalExponent":
            return f"{nano}e{power}" if power else str(nano)
        return f"{nano}{_SUFFIXES[power]}"


ZERO = Quantity(0)


@functools.lru_cache(maxsize=65536)
def _parse(text: str) -> Quantity:
    """Kept, because a cluster writes the same few amounts over and over."""
    match = _TEXT.match(text.strip(" ")) if len(text) <= _LONGEST else None
    if not match or not (match[2] or match[3]):
        raise ValueError(f"{text[:_LONGEST]!r} is not a quantity like 2, 500m, 1.5, 4Gi or 1e3")
    suffix = match[6] or ""
    fmt: Format = "DecimalSI"
    if match[5] is not None:
        scale, fmt = Fraction(10) ** int(match[5]), "DecimalExponent"
    elif suffix in _BINARY:
        scale, fmt = Fraction(2 ** _BINARY[suffix]), "BinarySI"
    else:
        scale = Fraction(10) ** _DECIMAL[suffix]
    amount = Fraction(int((match[2] or "0") + (match[3] or "")), 10 ** len(match[3] or "")) * scale * NANO
    nano = -(-amount.numerator // amount.denominator)
    if nano >= _BEYOND:
        raise ValueError(f"{text!r} is beyond all that can be counted")
    return Quantity(-nano if match[1] == "-" else nano, fmt)


def _parts(nano: int, size: int) -> int:
    """nano / size, rounded away from zero."""
    return -(-nano // size) if nano >= 0 else nano // size


def parse_resources(
    texts: Mapping[str, str | int | float] | None, owner: str, field: str, problems: list[Problem]
) -> dict[str, Quantity]:
    """Quantities by resource name; one that cannot be read is left out and added to `problems`.
    A deprecated name of an extended resource becomes the one of today, which wins where both are given."""
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
        before = into.get(name)
        into[name] = amount if before is None else before + amount
    return into
