"""Least change: of all CPU sets that are spread alike, the one that keeps most of the CPUs held so far.

Every CPU that changes hands costs cold caches and a migration of whoever runs there, so a set moves no more than the
spread asks for. "Spread alike" is defined by `Shape`; docs/formulas.md, "BE CPUs", has the rule in words.
"""

from __future__ import annotations

import collections
import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from koordlite.model.cpuset import CPUSet
from koordlite.model.topology import CPU

Bucket = Sequence[CPU]
"""CPUs of one place (socket and NUMA node), sorted by core."""


class Shape(NamedTuple):
    """Number of CPUs taken of one place: whole pairs of hyperthreads, and single CPUs."""

    pairs: int
    singles: int


def least_change(buckets: Sequence[Bucket], picked: CPUSet, current: CPUSet) -> CPUSet:
    """max |answer ∩ current| over all sets with the shapes of `picked`; `picked` itself where nothing is gained.

    A set is spread like `picked` when each place has as many pairs and single CPUs in it, or when places that are
    alike (as many cores, with as many CPUs each) have exchanged theirs. The rule is ours; Koordinator's
    `adjustByCPUSet` picks afresh every time.
    """
    if not current or picked <= current:
        return picked
    alike: dict[tuple[int, ...], list[Bucket]] = collections.defaultdict(list)
    for bucket in buckets:
        alike[tuple(sorted(len(core) for core in _cores(bucket)))].append(bucket)
    retained = current & CPUSet(cpu.id for bucket in buckets for cpu in bucket)
    if all(_shapes(same, retained) == _shapes(same, picked) for same in alike.values()):
        return retained  # The usual case by far, and cheap: nothing has to move.
    cpus = list[int]()
    for same in alike.values():
        # Each place gets one of the shapes that `picked` has among those that are alike.
        shapes = [_shape(bucket, picked) for bucket in same]
        kinds = sorted(set(shapes), key=shapes.index)
        choices = [{kind: _within(bucket, kind, current) for kind in kinds} for bucket in same]
        gains = [{kind: len(subset & current) for kind, subset in each.items()} for each in choices]
        counts = tuple(shapes.count(kind) for kind in kinds)
        for choice, kind in zip(choices, _share_out(gains, shapes, kinds, counts), strict=True):
            cpus += choice[kind]
    best = CPUSet(cpus)
    return best if len(best & current) > len(picked & current) else picked


def _cores(bucket: Bucket) -> list[list[CPU]]:
    return [list(cpus) for _, cpus in itertools.groupby(bucket, key=lambda cpu: cpu.core)]


def _shape(bucket: Bucket, picked: CPUSet) -> Shape:
    per_core = [sum(cpu.id in picked for cpu in core) for core in _cores(bucket)]
    return Shape(sum(count // 2 for count in per_core), sum(count % 2 for count in per_core))


def _shapes(buckets: Sequence[Bucket], picked: CPUSet) -> collections.Counter[Shape]:
    return collections.Counter(_shape(bucket, picked) for bucket in buckets)


def _share_out(
    gains: Sequence[Mapping[Shape, int]], own: Sequence[Shape], kinds: Sequence[Shape], counts: tuple[int, ...]
) -> Iterator[Shape]:
    """Assign shapes to places, so that the sum of gains is largest; its own one where that is as good."""

    @functools.cache
    def best(number: int, counts: tuple[int, ...]) -> int:
        if number == len(gains):
            return 0
        return max(gains[number][kinds[k]] + best(number + 1, _less(counts, k)) for k, n in enumerate(counts) if n)

    for number, shape in enumerate(own):
        totals = (
            (gains[number][kinds[k]] + best(number + 1, _less(counts, k)), kinds[k] == shape, k)
            for k, n in enumerate(counts)
            if n
        )
        *_, index = max(totals)
        counts = _less(counts, index)
        yield kinds[index]


def _less(counts: tuple[int, ...], k: int) -> tuple[int, ...]:
    return (*counts[:k], counts[k] - 1, *counts[k + 1 :])


def _within(bucket: Bucket, shape: Shape, current: CPUSet) -> CPUSet:
    """CPUs of one place in this shape, as many held ones as possible; else the first cores."""
    cores = [sorted(core, key=lambda cpu: (cpu.id not in current, cpu.id)) for core in _cores(bucket)]
    tables = _tables(cores, shape, current)
    answer: list[int] = []
    for core, later in zip(cores, tables[1:], strict=True):
        # How many CPUs of this core to take, and the shape that is left for the later ones.
        tails = ((n, Shape(shape.pairs - n // 2, shape.singles - n % 2)) for n in range(len(core) + 1))
        steps = ((later[tail] + sum(c.id in current for c in core[:n]), n, tail) for n, tail in tails if tail in later)
        _, size, shape = max(steps)
        answer += [cpu.id for cpu in core[:size]]
    return CPUSet(answer)


Table = dict[Shape, int]
"""Shape still wanted → how many held CPUs the cores from here on can give; shapes they cannot give are missing."""


def _tables(cores: Sequence[Sequence[CPU]], shape: Shape, current: CPUSet) -> list[Table]:
    """A table for each core, and one behind the last."""
    tables: list[Table] = [{Shape(0, 0): 0}]
    for core in reversed(cores):
        gains = [0, *itertools.accumulate(cpu.id in current for cpu in core)]
        table: Table = {}
        for (pairs, singles), gain in tables[-1].items():
            for size, more in enumerate(gains):
                wider = Shape(pairs + size // 2, singles + size % 2)
                if wider.pairs <= shape.pairs and wider.singles <= shape.singles:
                    table[wider] = max(table.get(wider, 0), gain + more)
        tables.append(table)
    return tables[::-1]
