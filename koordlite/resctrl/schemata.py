"""The text of resctrl's `schemata` files as a value: read what kernels print, print what kernels take.

Source: Linux resctrl document; the forms were compared with Linux 6.1 and 6.12, whose order and padding differ.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from koordlite.resctrl.values import BANDWIDTHS, CACHES, Values


@dataclasses.dataclass(frozen=True, slots=True)
class Schemata:
    """Schemata of a group, or a part of them: a line and a cache id that are not in here are left as they are."""

    values: Mapping[str, Values] = dataclasses.field(default_factory=dict)
    """Masks of caches and numbers of bandwidths, by resource and cache id."""
    unknown: tuple[str, ...] = ()
    """Lines of resources this library does not know, and of groups that are about to be locked, stripped of blanks."""

    def __str__(self) -> str:
        """Whole lines as the kernel takes them, resources in the order they were given."""
        return "".join(
            f"{text}\n" for text in (*(line(name, self.values[name]) for name in self.values), *self.unknown)
        )

    def difference(self, target: Mapping[str, Values]) -> dict[str, Values]:
        """The part of `target` that has to be written: values that differ, of resources and cache ids that are here."""
        differences = {name: changed(self.values[name], ids) for name, ids in target.items() if name in self.values}
        return {name: ids for name, ids in differences.items() if ids}


def parse(text: str) -> Schemata:
    """Parse the text of a schemata file, or some lines of one; ValueError names the line it cannot read.

    Masks are hexadecimal, bandwidths decimal. Kernels pad differently. Lines of unknown resources are kept as text.
    """
    values: dict[str, Values] = {}
    unknown: list[str] = []
    for each in text.splitlines():
        name, colon, domains = each.partition(":")
        if not each.strip():
            continue
        if not colon or not name.strip():
            raise _unreadable(each, "no resource name before a colon")
        if name.strip() in (*CACHES, *BANDWIDTHS) and domains.strip() != "uninitialized":
            values[name.strip()] = _domains(each, name.strip(), domains)
        else:
            unknown.append(each.strip())
    return Schemata(values, tuple(unknown))


def line(resource: str, values: Values) -> str:
    """`L3:0=f;1=f`: what to write for one resource, ids ascending, without the newline."""
    return f"{resource}:" + ";".join(f"{cache}={format_value(resource, values[cache])}" for cache in sorted(values))


def format_value(resource: str, value: int) -> str:
    """One value as schemata write it: bandwidths decimal, masks hexadecimal."""
    return f"{value:d}" if resource in BANDWIDTHS else f"{value:x}"


def writes(values: Mapping[str, Values], *, longest: int) -> list[str]:
    """The texts to write for these values: one, or as few as can be when a write may have `longest` bytes only."""
    pieces: list[str] = []
    for text in (each for name, ids in values.items() for each in _lines(name, ids, longest)):
        if pieces and len(pieces[-1]) + len(text) <= longest:
            pieces[-1] += text
        else:
            pieces.append(text)
    return pieces


def changed(present: Values, target: Values) -> dict[int, int]:
    """The part of `target` that differs from `present`; ids that `present` lacks are left out.

    The kernel refuses a whole write for one id it does not know, and ids go away with their last CPU.
    """
    return {cache: value for cache, value in target.items() if cache in present and present[cache] != value}


def _lines(resource: str, values: Values, longest: int) -> Iterator[str]:
    """One line for a resource, or several where one would be longer than a write may be."""
    text = f"{line(resource, values)}\n"
    if len(text) <= longest or len(values) == 1:
        yield text
        return
    ids = sorted(values)
    for half in (ids[: len(ids) // 2], ids[len(ids) // 2 :]):
        yield from _lines(resource, {cache: values[cache] for cache in half}, longest)


def _domains(each: str, resource: str, text: str) -> dict[int, int]:
    """Values by cache id; an id that is written twice is a mistake, as it is to the kernel."""
    values: dict[int, int] = {}
    try:
        for cache, value in _pairs(text, 10 if resource in BANDWIDTHS else 16):
            if cache in values:
                raise ValueError(f"cache id {cache} is there twice")
            values[cache] = value
    except ValueError as error:
        raise _unreadable(each, str(error)) from error
    return values


def _pairs(text: str, base: int) -> Iterator[tuple[int, int]]:
    for domain in text.strip().rstrip(";").split(";"):
        if domain.strip():
            cache, equals, value = domain.partition("=")
            if not equals:
                raise ValueError(f"{domain.strip()!r} has no =")
            yield _number(cache, 10), _number(value, base)


def _number(text: str, base: int) -> int:
    number = int(text.strip(), base)
    if number < 0:
        raise ValueError(f"{text.strip()} is negative")
    return number


def _unreadable(text: str, why: str) -> ValueError:
    return ValueError(f"schemata line {text.strip()!r} is not like L3:0=f;1=f: {why}")
