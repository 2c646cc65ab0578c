"""A set of CPU ids as a value: `0-3,8` in and out.

Grammar and printing follow `pkg/util/cpuset` of Koordinator (docs/formulas.md, "CPU lists"): no white space, ids up to
int32, the upper end of a range at most 4096, `3-1` is an empty range, two neighbours print as a range.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator

_PART = re.compile(r"([+]?[0-9]+)(?:-([+]?[0-9]+))?\Z", re.ASCII)
_MAX_ID = 2**31 - 1
_MAX_RANGE_END = 4096


class CPUSet:
    """An immutable set of CPU ids with set algebra; falsy when empty."""

    __slots__ = ("ids",)
    ids: frozenset[int]

    def __init__(self, ids: Iterable[int] = ()) -> None:
        object.__setattr__(self, "ids", frozenset(ids))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a CPUSet is a value and never changes")

    @classmethod
    def parse(cls, text: str, within: CPUSet | None = None) -> CPUSet:
        """The set that `text` lists, as far as it is `within` one; ValueError names the part that is not a CPU list."""
        if not text:
            return cls()
        runs = _merged(_parse_part(part, text) for part in text.split(","))
        if within is None:
            return cls(cpu for run in runs for cpu in run)
        # Whatever the text lists, it costs no more than its length and the CPUs there are.
        listed = tuple(within)
        return cls(
            cpu for run in runs for cpu in listed[bisect_left(listed, run.start) : bisect_left(listed, run.stop)]
        )

    def __str__(self) -> str:
        runs: list[list[int]] = []
        for cpu in self:
            if runs and cpu == runs[-1][1] + 1:
                runs[-1][1] = cpu
            else:
                runs.append([cpu, cpu])
        return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in runs)

    def __repr__(self) -> str:
        return f"CPUSet({str(self)!r})"

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(self.ids))

    def __len__(self) -> int:
        return len(self.ids)

    def __contains__(self, cpu: object) -> bool:
        return cpu in self.ids

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CPUSet) and self.ids == other.ids

    def __hash__(self) -> int:
        return hash(self.ids)

    def __reduce__(self) -> tuple[type[CPUSet], tuple[frozenset[int]]]:
        return CPUSet, (self.ids,)

    def __or__(self, other: CPUSet) -> CPUSet:
        return CPUSet(self.ids | other.ids)

    def __and__(self, other: CPUSet) -> CPUSet:
        return CPUSet(self.ids & other.ids)

    def __sub__(self, other: CPUSet) -> CPUSet:
        return CPUSet(self.ids - other.ids)

    def __le__(self, other: CPUSet) -> bool:
        return self.ids <= other.ids


EMPTY = CPUSet()


def union(sets: Iterable[CPUSet]) -> CPUSet:
    """All CPUs that are in any of `sets`."""
    return CPUSet(frozenset[int]().union(*(s.ids for s in sets)))


def _parse_part(part: str, whole: str) -> range:
    match = _PART.match(part)
    if not match:
        raise ValueError(f"{part[:40]!r} in {whole[:80]!r} is neither a CPU id nor a range like 0-3")
    first = int(match[1])
    last = first if match[2] is None else int(match[2])
    if first > _MAX_ID or last > _MAX_ID or (match[2] is not None and last > _MAX_RANGE_END):
        raise ValueError(f"{part[:40]!r} in {whole[:80]!r} is beyond the largest CPU id")
    return range(first, last + 1)


def _merged(runs: Iterable[range]) -> Iterator[range]:
    """The same ids in runs that do not overlap: a text of many wide ranges costs no more than its length."""
    first, end = 0, 0
    for run in sorted(runs, key=lambda run: run.start):
        if run.start > end:
            yield range(first, end)
            first = run.start
        end = max(end, run.stop) if run.start <= end else run.stop
    yield range(first, end)
