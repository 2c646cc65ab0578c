"""How the kernel reads a write to `schemata`, value by value, and what it says when it refuses.

Follows Linux 6.1 (`arch/x86/kernel/cpu/resctrl/ctrlmondata.c`): the order of the checks and the texts of
`last_cmd_status` are the kernel's.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping

from koordlite.sandbox.machines import RDT

_DECIMAL = re.compile(r"\+?[0-9]+\Z", re.ASCII)
_HEX = re.compile(r"\+?(?:0[xX])?([0-9a-fA-F]+)\Z", re.ASCII)
_BLANKS = " \t\n\v\f\r"


class Rejected(Exception):
    """The kernel answers EINVAL; the message goes to `last_cmd_status` (empty: it says nothing)."""


Values = dict[int, int]
Check = Callable[[int, int], str]
"""(cache id, value) → why this value collides with another group, or empty."""


@dataclasses.dataclass(frozen=True, slots=True)
class Schema:
    """One resource: its cache ids, how a value is read, and what else must hold for it."""

    name: str
    ids: tuple[int, ...]
    read: Callable[[str], int]
    collides: Check = lambda _id, _value: ""


def staged(data: bytes, schemas: Mapping[str, Schema]) -> dict[str, Values]:
    """Every value a write asks for, by resource and cache id; nothing may be applied when it raises Rejected."""
    wanted: dict[str, Values] = {}
    text = data[:-1].split(b"\0")[0].decode("latin-1")
    for line in text.split("\n"):
        name, colon, rest = line.partition(":")
        name = name.strip(_BLANKS)
        if not colon:
            raise Rejected("Missing ':'")
        if not rest:
            raise Rejected(f"Missing '{name}' value")
        if name not in schemas:
            raise Rejected(f"Unknown or unsupported resource name '{name}'")
        _stage_line(rest, schemas[name], wanted.setdefault(name, {}))
    return wanted


def _stage_line(text: str, schema: Schema, into: Values) -> None:
    for cache_id, value in _pieces(text):
        if cache_id not in schema.ids:
            raise Rejected("")
        if cache_id in into:
            raise Rejected(f"Duplicate domain {cache_id}")
        into[cache_id] = schema.read(value)
        collision = schema.collides(cache_id, into[cache_id])
        if collision:
            raise Rejected(collision)


def _pieces(text: str) -> Iterator[tuple[int, str]]:
    """`ID=VALUE;ID=VALUE`; one `;` at the end is fine, an empty piece elsewhere is not."""
    pieces = text.split(";")
    if len(pieces) > 1 and not pieces[-1]:
        pieces.pop()
    for piece in pieces:
        number, equals, value = piece.partition("=")
        if not equals or not _DECIMAL.match(number):
            raise Rejected("Missing '=' or non-numeric domain")
        yield int(number), value.strip(_BLANKS)


def mask(text: str, rdt: RDT) -> int:
    """A cache bit mask that this hardware takes."""
    match = _HEX.match(text)
    value = int(match[1], 16) if match else 0
    if not match or value >= 1 << 64:
        raise Rejected(f"Non-hex character in the mask {text}")
    if value >= 1 << rdt.cbm_bits or (value == 0 and not rdt.amd):
        raise Rejected("Mask out of range")
    if not rdt.amd and value & (value + (value & -value)):
        raise Rejected(f"The mask {value:x} has non-consecutive 1-bits")
    if value.bit_count() < rdt.min_cbm_bits:
        raise Rejected(f"Need at least {rdt.min_cbm_bits} bits in the mask")
    return value


def bandwidth(text: str, rdt: RDT) -> int:
    """A bandwidth within the hardware's range, rounded up to its granularity."""
    value = int(text) if _DECIMAL.match(text) else 1 << 32
    if value >= 1 << 32:
        raise Rejected(f"Invalid MB value {text}")
    if not rdt.mb_min <= value <= rdt.mb_max:
        raise Rejected(f"MB value {value} out of range [{rdt.mb_min},{rdt.mb_max}]")
    return -(-value // rdt.mb_gran) * rdt.mb_gran


def lowest_run(bits: int) -> int:
    """The lowest contiguous run of ones: what a new group is given of the free bits."""
    if not bits:
        return 0
    lowest = bits & -bits
    return bits & ~(bits + lowest)


def shown(values: Mapping[str, Mapping[int, int]], rdt: RDT) -> str:
    """The schemata as the kernel prints them: MB before L3, names padded for CDP, values to one width."""
    width = max(-(-rdt.cbm_bits // 4), 4 if rdt.amd else 3)
    name_width = 6 if rdt.cdp else 2
    forms = {"MB": f"{width}d", "L3": f"0{width}x"}
    return "".join(
        f"{name:>{name_width}}:{';'.join(f'{i}={v:{forms[name]}}' for i, v in values[name].items())}\n"
        for name in ("MB", "L3")
    )
