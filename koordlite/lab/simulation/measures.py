"""Numbers out of the samples of a simulation, and expectations held against them."""

from __future__ import annotations

import collections
import itertools
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec import structs

from koordlite.changes import eviction
from koordlite.lab.cluster import scenario
from koordlite.lab.cluster.scenario import Expectation
from koordlite.lab.sandbox import Sandbox
from koordlite.report import node_figures, units
from koordlite.report.simulation import ExpectationResult, Figures, Workload
from koordlite.report.tick import Tick

_US_PER_CORE_HOUR = 3600e6


class Amount(msgspec.Struct, frozen=True):
    """CPU-µs a pod has wanted and got so far."""

    wanted_us: int
    used_us: int
    restarts: int = 0
    qos: str = ""


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """A tick. While the agent is dead, only what the machine says."""

    time: float
    """Simulated seconds since the start."""
    pods: Mapping[str, Amount]
    """Amounts by NAMESPACE/NAME."""
    restarts: int
    """Restarts of all pods so far."""
    row: node_figures.Figures | None = None
    status: str = "dead"
    reasons: frozenset[str] = frozenset()
    problems: frozenset[str] = frozenset()
    writes: int = 0
    refused: int = 0
    foreign: int = 0
    evictions: int = 0


def take(sandbox: Sandbox, tick: Tick | None, restarts: dict[str, int]) -> Sample:
    """Note this moment; `tick` is what the agent did in it. `restarts` are those of every pod there was, by
    NAMESPACE/NAME, and are brought up to date."""
    pods: dict[str, Amount] = {}
    for pod in sandbox.kubelet.running.values():
        key, parts = pod.described.key, pod.workloads
        restarts[key] = sum(pod.restarts.values())
        pods[key] = Amount(
            sum(each.wanted_us for each in parts),
            sum(each.used_us for each in parts),
            restarts[key],
            str(pod.described.qos_class),
        )
    machine = Sample(time=sandbox.clock.seconds, pods=pods, restarts=sum(restarts.values()))
    if tick is None:
        return machine
    evictions = sum(step.ok and step.place.kind is eviction.PLACE for step in tick.applied)
    refused = sum(not step.ok for step in tick.applied)
    return structs.replace(
        machine,
        row=tick.figures,
        status=tick.status,
        reasons=frozenset(decision.reason for decision in tick.decisions),
        problems=frozenset(map(str, tick.problems)),
        writes=len(tick.applied) - refused - evictions,
        refused=refused,
        foreign=len(tick.foreign),
        evictions=evictions,
    )


def workloads(samples: Sequence[Sample]) -> tuple[Workload, ...]:
    """Every pod there was, those that protect themselves first."""
    last: dict[str, tuple[float, Amount]] = {}
    wanted, used = collections.Counter[str](), collections.Counter[str]()
    for sample in samples:
        for key, amount in sample.pods.items():
            grown = growth(last[key][1] if key in last else None, amount)
            wanted[key] += grown.wanted_us
            used[key] += grown.used_us
            last[key] = sample.time, amount
    every = (
        Workload(
            pod=key,
            qos=amount.qos,
            wanted_core_hours=wanted[key] / _US_PER_CORE_HOUR,
            used_core_hours=used[key] / _US_PER_CORE_HOUR,
            end=time if time < samples[-1].time else None,
            restarts=amount.restarts,
        )
        for key, (time, amount) in last.items()
    )
    return tuple(sorted(every, key=lambda workload: (workload.qos == "BE", workload.pod)))


def growth(before: Amount | None, after: Amount) -> Amount:
    """Increase since the last sample; a restarted pod counts from zero."""
    if before is None or after.wanted_us < before.wanted_us:
        return after
    return Amount(after.wanted_us - before.wanted_us, after.used_us - before.used_us)


_SERIES: Mapping[str, tuple[str, float]] = {
    "beLimitCores": ("be_limit", 1000),
    "beBudgetCores": ("be_budget", 1000),
    "beCores": ("be_cpu", 1000),
    "lsCores": ("prod_cpu", 1000),
    "nodeCores": ("node_cpu", 1000),
    "batchCores": ("batch_cpu", 1000),
    "batchGiB": ("batch_memory", 2**30),
}
"""Measure → field of a row, and how much of it makes one."""
_VALUES: Mapping[str, Callable[[Sequence[float]], float]] = {
    "min": min,
    "max": max,
    "mean": statistics.fmean,
    "last": lambda values: values[-1],
}
_SUMS: Mapping[str, Callable[[Sample], int]] = {
    "writes": lambda sample: sample.writes,
    "refusedWrites": lambda sample: sample.refused,
    "foreignWrites": lambda sample: sample.foreign,
    "evictions": lambda sample: sample.evictions,
}
_WHOLES: Mapping[str, Callable[[Sequence[Sample]], float]] = {
    "restarts": lambda samples: samples[-1].restarts - samples[0].restarts if samples else 0,
    "beCoreHours": lambda samples: _core_hours((row.be_cpu, seconds) for row, seconds in _timed(samples)),
    "aboveThresholdSeconds": lambda samples: sum(
        seconds for row, seconds in _timed(samples) if node_figures.above(row.node_cpu, row.threshold_milli)
    ),
    "wellAboveThresholdSeconds": lambda samples: sum(
        seconds for row, seconds in _timed(samples) if node_figures.well_above(row.node_cpu, row.threshold_milli)
    ),
}
"""Numbers of a whole stretch of time."""


def check(
    expected: Expectation, samples: Sequence[Sample], *, text: str = "", not_put_back: int = 0
) -> ExpectationResult:
    """The expectation and what was found; `text` is what it is about at the end of its time."""
    words = _words(expected)
    if expected.is_text:
        # Without blanks: the kernel fills up columns with them.
        texts = {each.replace(" ", "").strip() for each in (text, expected.equals or "")}
        return ExpectationResult(words, repr(text), len(texts) == 1)
    result = float(not_put_back) if expected.measure == "notPutBack" else measure(expected, samples)
    if result is None:
        return ExpectationResult(words, "nothing was measured", False)
    high = expected.most is None or result <= expected.most
    return ExpectationResult(words, f"{result:.6g}", high and (expected.least is None or result >= expected.least))


def measure(expectation: Expectation, samples: Sequence[Sample]) -> float | None:
    """The number that an expectation is about; None when there is no sample of it."""
    end = float("inf") if expectation.to is None else scenario.seconds(expectation.to)
    begin = scenario.seconds(expectation.start)
    stretch = [sample for sample in samples if begin <= sample.time <= end]
    match expectation.measure:
        case name if name in _SERIES:
            values = list(_series(name, stretch))
            return _VALUES[expectation.value](values) if values else None
        case "unmetPercent" | "usedCores":
            return _of_pods(expectation.measure, stretch, lambda key: key.startswith(expectation.of))
        case name if name in _SUMS or name in _WHOLES:
            return sum(map(_SUMS[name], stretch)) if name in _SUMS else _WHOLES[name](stretch)
        case "ticksWith":
            return sum(expectation.of in sample.reasons for sample in stretch)
        case "problems":
            return len({words for sample in stretch for words in sample.problems if expectation.of in words})
    word = expectation.measure.removesuffix("Seconds")
    return sum(seconds for sample, seconds in _spans(stretch) if sample.status == word)


def figures(samples: Sequence[Sample], best_effort: frozenset[str]) -> Figures:
    """The numbers that runs are compared by. Limit and budget of a stretch of time are those of the tick at its
    beginning; a negative budget is none."""
    limits = list(_series("beLimitCores", samples))
    batch = list(_series("batchCores", samples))
    stretches = [
        (row, after.time - before.time)
        for before, after in itertools.pairwise(samples)
        if after.row and (row := before.row or after.row)
    ]
    budget = _core_hours((max(0, row.be_budget or 0), seconds) for row, seconds in stretches)
    used = _WHOLES["beCoreHours"](samples)
    return {
        "beCoreHoursUsed": used,
        "beCoreHoursAllowed": _core_hours((row.be_limit, seconds) for row, seconds in stretches),
        "beCoreHoursBudget": budget,
        "beOfBudgetPercent": 100 * used / budget if budget else None,
        "beLimitCoresMin": min(limits, default=None),
        "beLimitCoresMean": statistics.fmean(limits) if limits else None,
        "batchCoresMean": statistics.fmean(batch) if batch else None,
        "unmetPercent": _of_pods("unmetPercent", samples, lambda key: key not in best_effort),
        "aboveThresholdSeconds": _WHOLES["aboveThresholdSeconds"](samples),
        "wellAboveThresholdSeconds": _WHOLES["wellAboveThresholdSeconds"](samples),
        "lsAboveThresholdSeconds": sum(
            seconds for row, seconds in _timed(samples) if node_figures.above(row.prod_cpu, row.threshold_milli)
        ),
        **{name: sum(map(count, samples)) for name, count in _SUMS.items()},
        "restarts": _WHOLES["restarts"](samples),
    }


def _core_hours(amounts: Iterable[tuple[float | None, float]]) -> float:
    """Core hours of millicores and seconds."""
    return sum(seconds * (milli or 0) for milli, seconds in amounts) / 3.6e6


def _series(measure: str, samples: Sequence[Sample]) -> Iterator[float]:
    field, unit = _SERIES[measure]
    values = (getattr(sample.row, field) for sample in samples if sample.row)
    return (value / unit for value in values if value is not None)


def _spans(samples: Sequence[Sample]) -> Iterator[tuple[Sample, float]]:
    """Each sample and the time since the one before; use is a mean over that time."""
    for before, sample in itertools.pairwise(samples):
        yield sample, sample.time - before.time


def _timed(samples: Sequence[Sample]) -> Iterator[tuple[node_figures.Figures, float]]:
    return ((sample.row, seconds) for sample, seconds in _spans(samples) if sample.row)


def _of_pods(measure: str, samples: Sequence[Sample], is_meant: Callable[[str], bool]) -> float | None:
    """Shares of the pods that are meant: the part of what they wanted that they did not get, or cores they
    used."""
    demand = used = 0
    measured, last = False, dict[str, Amount]()
    for number, sample in enumerate(samples):
        for key in filter(is_meant, sample.pods):
            grown = growth(last.get(key), sample.pods[key])
            last[key] = sample.pods[key]
            if number:  # The first sample only says where the counting begins.
                demand, used, measured = demand + grown.wanted_us, used + grown.used_us, True
    if not measured:
        return None
    if measure == "usedCores":
        return used / 1e6 / (samples[-1].time - samples[0].time)
    return 100 * (demand - used) / demand if demand else 0.0


def _words(expected: Expectation) -> str:
    of = f" of {expected.of}" if expected.of else ""
    which = f"{expected.value} of " if expected.measure in _SERIES else ""
    begin, end = scenario.seconds(expected.start), expected.to
    when = f" from {units.clock(begin)}" if begin else ""
    when += f" to {units.clock(scenario.seconds(end))}" if end is not None else ""
    bounds = [f"at least {expected.least:g}" if expected.least is not None else ""]
    bounds.append(f"at most {expected.most:g}" if expected.most is not None else "")
    bounds.append(f"is {expected.equals!r}" if expected.equals is not None else "")
    return f"{which}{expected.measure}{of}{when} {' and '.join(filter(None, bounds))}"
