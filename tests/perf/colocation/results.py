"""The file of results: a line a run, read again by whoever goes on with it or makes a report of it."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import pathlib
import platform
import statistics
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from realnode import tree

from tests.perf.colocation import measure
from tests.perf.colocation.measure import Result


@dataclasses.dataclass(frozen=True)
class Header:
    """The machine of all results of a file; a result of another one belongs into another file."""

    cpus: int
    kernel: str
    processor: str
    iteration_ns: Mapping[str, float]
    cgroup: int = 1
    """Version of the hierarchy that has the cpu controller."""


def refusal(of_file: Header, here: Header) -> str:
    """Why results of `here` may not be added to the file; empty when they may."""
    differences = [
        f"{name} {theirs} there, {ours} here"
        for name in ("cpus", "kernel", "processor", "cgroup")
        for theirs, ours in ((getattr(of_file, name), getattr(here, name)),)
        if theirs != ours
    ]
    return f"it has results of another machine ({'; '.join(differences)})" if differences else ""


def this_machine(iteration_ns: Mapping[str, float]) -> Header:
    """The header of a new file."""
    names = [line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    processor, version = names[0] if names else "", tree.mounts()[0]
    return Header(len(os.sched_getaffinity(0)), platform.release(), processor, iteration_ns, version)


def _lines(path: str) -> list[str]:
    return pathlib.Path(path).read_text().splitlines()


class Results:
    """A file of results, to which each run is added when it ends."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self.header: Header | None = None
        self.runs: list[Result] = []
        if path.exists():
            for number, line in enumerate(path.read_text().splitlines(), start=1):
                self._take(line, f"{path}:{number}")

    def _take(self, line: str, place: str) -> None:
        try:
            document: dict[str, Any] = json.loads(line)
            if "kernel" in document:
                self.header = Header(**document)
                return
            bins = {int(number): count for number, count in document["histogram"].items()}
            seconds = tuple(document["batch_by_second"])
            self.runs.append(Result(**{**document, "histogram": bins, "batch_by_second": seconds}))
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{place}: not a result of this version of the benchmark: {error}") from error

    def begin(self, header: Header) -> None:
        """Write the header of a new file."""
        self.header = header
        self._append(dataclasses.asdict(header))

    def add(self, result: Result) -> None:
        """Keep a result, a thrown-away one too: it shows what was tried."""
        self.runs.append(result)
        self._append({name: _short(value) for name, value in dataclasses.asdict(result).items()})

    def _append(self, document: Mapping[str, Any]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(json.dumps(document) + "\n")

    def kept(self) -> list[Result]:
        """The runs that count."""
        return [run for run in self.runs if not run.thrown_away]


def _short(value: Any) -> Any:
    return round(value, 4) if isinstance(value, float) else value


@dataclasses.dataclass(frozen=True)
class Row:
    """All kept runs of one way under one load, together."""

    service: str
    pattern: str
    batch: str
    way: str
    rounds: int
    p50: float
    p99: float
    p999: float
    p99_span: tuple[float, float]
    """The least and the greatest p99 of a round."""
    p99_ratio: float
    """Median over rounds of p99 over that of `alone` in the same round; NaN where there is none."""
    batch_cpus: float
    budget_cpus: float
    service_cpus: float
    agent_cpus: float
    lulls_cpus: float
    """What batch work got in the better half of the seconds: with a service that comes in bursts, between these."""
    histogram: Mapping[int, int]

    @property
    def of_budget(self) -> float:
        """The share of the formula's budget that batch work got."""
        return self.batch_cpus / self.budget_cpus


def rows(runs: Sequence[Result]) -> list[Row]:
    """One row for each load and way, in the order of their first runs; `alone` belongs to all batch work."""
    alone = {(run.service, run.pattern, run.seed): run for run in runs if run.way == "alone"}
    loads = dict.fromkeys((run.service, run.pattern, run.batch) for run in runs if run.batch)
    loads |= dict.fromkeys(
        (run.service, run.pattern, "")
        for run in runs
        if not any(key[:2] == (run.service, run.pattern) for key in loads)
    )
    table = []
    for service, pattern, batch in loads:
        here = [run for run in runs if (run.service, run.pattern) == (service, pattern) and run.batch in ("", batch)]
        for way in dict.fromkeys(sorted((run.way for run in here), key=lambda way: way != "alone")):
            table.append(_row(batch, [run for run in here if run.way == way], alone))
    return table


def _row(batch: str, runs: Sequence[Result], alone: Mapping[tuple[object, ...], Result]) -> Row:
    histogram: Counter[int] = Counter()
    for run in runs:
        histogram.update(run.histogram)
    p99s = [measure.percentile(run.histogram, 0.99) for run in runs]
    bases = (alone.get((run.service, run.pattern, run.seed)) for run in runs)
    ratios = [
        p99 / measure.percentile(base.histogram, 0.99)
        for p99, base in zip(p99s, bases, strict=True)
        if base is not None
    ]
    return Row(
        service=runs[0].service,
        pattern=runs[0].pattern,
        batch=batch,
        way=runs[0].way,
        rounds=len(runs),
        p50=measure.percentile(histogram, 0.5),
        p99=measure.percentile(histogram, 0.99),
        p999=measure.percentile(histogram, 0.999),
        p99_span=(min(p99s), max(p99s)),
        p99_ratio=statistics.median(ratios) if ratios else math.nan,
        batch_cpus=_mean(run.batch_cpus for run in runs),
        budget_cpus=_mean(run.budget_cpus for run in runs),
        service_cpus=_mean(run.service_cpus for run in runs),
        agent_cpus=_mean(run.agent_cpus for run in runs),
        lulls_cpus=_mean(_mean(sorted(run.batch_by_second)[len(run.batch_by_second) // 2 :]) for run in runs),
        histogram=histogram,
    )


def _mean(values: Iterable[float]) -> float:
    return statistics.fmean(found) if (found := list(values)) else math.nan


def table(lines: Sequence[Row]) -> str:
    """The rows as text."""
    text, load = [], None
    for row in lines:
        if (row.service, row.pattern, row.batch) != load:
            load = (row.service, row.pattern, row.batch)
            text.append(f"\n{row.service}, {row.pattern}" + (f", beside {row.batch}" if row.batch else ""))
            text.append(
                f"  {'way':<44}{'p50':>7}{'p99':>8}{'p99.9':>8}  {'rounds p99':<14}{'x alone':>8}"
                f"{'batch':>7}{'budget':>8}{'of it':>7}{'agent':>7}  rounds"
            )
        span = f"{row.p99_span[0]:.2f}-{row.p99_span[1]:.2f}"
        got = f"{row.batch_cpus:>7.2f}{row.budget_cpus:>8.2f}{row.of_budget:>7.0%}" if row.way != "alone" else " " * 22
        text.append(
            f"  {row.way:<44}{row.p50:>7.2f}{row.p99:>8.2f}{row.p999:>8.2f}  {span:<14}{row.p99_ratio:>8.2f}"
            f"{got}{row.agent_cpus:>7.3f}  {row.rounds}"
        )
    return "\n".join(text)


OVERVIEW = ("alone", "plain", "koordinator", "agent")
"""Kinds of ways in an overview: the kernel's own means and a quota that never changes are in the whole table."""


def as_shipped(lines: Sequence[Row]) -> list[Row]:
    """The rows of an overview: ways that set no option, of these kinds."""
    return [row for row in lines if "," not in row.way and row.way.partition(":")[0] in OVERVIEW]


def load_name(row: Row) -> str:
    """The load of a row in words."""
    return f"{row.service}, {row.pattern}" + (f" beside {row.batch}" if row.batch else "")


def brief(lines: Sequence[Row], words: Callable[[str], str], *, only: Collection[str]) -> str:
    """p99 and CPUs of batch work, a line a way, of the loads named in `only`, or of all."""
    text, load = [], ""
    for row in lines:
        if only and load_name(row) not in only:
            continue
        if load_name(row) != load:
            load = load_name(row)
            text.append(f"{load:<52}{'p99 of the service':>20}{'batch work got':>18}")
        got = "" if row.way == "alone" else f"{row.batch_cpus:.2f} CPUs"
        text.append(f"  {words(row.way):<50}{row.p99:>17.2f} ms{got:>18}")
    return "\n".join(text)


def trust(found: Results) -> str:
    """What says how far the figures can be trusted: runs thrown away, and the client's own part in them."""
    kept = found.kept()
    thrown = len(found.runs) - len(kept)
    if not kept:
        return f"No run is kept, {thrown} are thrown away."
    client, late = _mean(run.client_cpus for run in kept), sorted(run.latest_ms for run in kept)
    others = _mean(run.others_cpus for run in kept)
    return (
        f"{len(kept)} runs, {thrown} more thrown away because others used the machine; in those that count others used "
        f"{others:.3f} CPUs, the client {client:.3f}, and its latest request of a run was late by "
        f"{late[len(late) // 2]:.2f} ms in the median, {late[-1]:.2f} ms at worst."
    )
