"""One run: a service under one load, beside one kind of batch work, in one way."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import math
import os
import pathlib
import statistics
import struct
import subprocess
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from koordlite.formulas.cpu import be_limit
from tests.perf.colocation import loads, ways
from tests.perf.colocation.machine import Machine, Usage
from tests.perf.colocation.ways import Alone

SAMPLE_SECONDS = 0.25
BUDGET_SECONDS = 1.0
"""The formula's budget is that of each second, as the agent's tick and Koordinator's have it."""
BINS_A_DECADE = 400
"""Latencies are counted in bins of 0.6 %."""
MOST_OTHERS = 0.06
"""CPUs that programs outside the groups may have used in the mean of a run, or stolen by other machines."""
MOST_OTHERS_SECOND = 0.25
"""The same in its worst second."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """What to run."""

    service: str
    pattern: str
    batch: str
    way: str
    seed: int
    seconds: float
    settle_seconds: float

    @property
    def key(self) -> tuple[object, ...]:
        """What makes two runs the same measurement."""
        return (self.service, self.pattern, self.batch, self.way, self.seed)


@dataclasses.dataclass(frozen=True)
class Result:
    """What came of it. CPUs are means over the time that counts."""

    service: str
    pattern: str
    batch: str
    way: str
    seed: int
    seconds: float
    requests: int
    unanswered: int
    histogram: dict[int, int]
    """Requests by bin of latency, see `bin_of`."""
    service_cpus: float
    batch_cpus: float
    budget_cpus: float
    """The mean of what the formula allows, never below its least quota."""
    agent_cpus: float
    client_cpus: float
    others_cpus: float
    others_worst: float
    steal_cpus: float
    throttled_cpus: float
    latest_ms: float
    """How late the client itself was at worst."""
    thrown_away: str = ""
    """Why this run is in no figure; empty when it is."""
    batch_by_second: tuple[float, ...] = ()

    @property
    def key(self) -> tuple[object, ...]:
        """As `Plan.key`."""
        return (self.service, self.pattern, self.batch, self.way, self.seed)


def bin_of(latency_ns: int) -> int:
    """The bin of a latency."""
    return round(math.log10(max(latency_ns, 1000) / 1000) * BINS_A_DECADE)


def milliseconds(number: int) -> float:
    """The latency in the middle of a bin."""
    return float(10 ** (number / BINS_A_DECADE) / 1000)


def percentile(histogram: Mapping[int, int], part: float) -> float:
    """Milliseconds that this part of all requests did not exceed; NaN of none."""
    left = math.ceil(sum(histogram.values()) * part)
    for number in sorted(histogram):
        left -= histogram[number]
        if left <= 0:
            return milliseconds(number)
    return math.nan


class Latencies:
    """When each request was due and its latency, as the client has them at any moment: in memory that both share."""

    def __init__(self) -> None:
        self.fileno = os.memfd_create("latencies")
        self.path = f"/proc/self/fd/{self.fileno}"

    def __enter__(self) -> Latencies:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fileno)

    def pairs(self) -> list[tuple[int, int]]:
        """ns from the start to when each request was due, and its latency, 0 of one without an answer."""
        return list(struct.iter_unpack("=QQ", os.pread(self.fileno, os.fstat(self.fileno).st_size // 16 * 16, 0)))

    def p99_ms(self, window_seconds: float) -> float:
        """p99 of the requests that were due in the last so many seconds; NaN of none. One that has no answer yet has
        waited until now."""
        pairs = self.pairs()
        now = max((due + latency for due, latency in pairs if latency), default=0)
        recent = (pair for pair in pairs if now - window_seconds * 1e9 <= pair[0] <= now)
        latencies = sorted(latency or now - due for due, latency in recent)
        return latencies[math.ceil(len(latencies) * 0.99) - 1] / 1e6 if latencies else math.nan


def run(plan: Plan, machine: Machine, iteration_ns: Mapping[str, float], alone: Alone) -> Result:
    """Carry out `plan`."""
    way = ways.parse(plan.way)
    with contextlib.ExitStack() as stack:
        latencies = stack.enter_context(Latencies())
        port = stack.enter_context(loads.serving(plan.service, machine, iteration_ns))
        stack.enter_context(ways.in_force(way, machine, alone, latencies.p99_ms))
        if way.has_batch:
            stack.enter_context(loads.batch_work(plan.batch, machine, slice_us=way.slice_us))
        said, samples = _asked(plan, port, machine, latencies)
        pairs = latencies.pairs()
    start_ns = int(said["start_ns"])
    begin, end = start_ns / 1e9 + plan.settle_seconds, start_ns / 1e9 + plan.settle_seconds + plan.seconds
    within = [sample for sample in samples if begin - SAMPLE_SECONDS <= sample.time <= end + SAMPLE_SECONDS]
    counted = [latency for due, latency in pairs if due >= plan.settle_seconds * 1e9]
    return _result(plan, within, counted, cpus=machine.cpus, latest_ms=float(said["latest_ms"]))


def _asked(plan: Plan, port: int, machine: Machine, latencies: Latencies) -> tuple[dict[str, Any], list[Usage]]:
    """What the client said, and samples of use meanwhile."""
    service = loads.SERVICES[plan.service]
    arrivals = loads.arrivals(plan.pattern, service.rate)
    seconds = plan.settle_seconds + plan.seconds
    words = ["ask", service.protocol, str(port), latencies.path, str(plan.seed), f"{seconds:g}", arrivals]
    command = [*machine.beside("client"), str(machine.program), *words]
    samples = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, pass_fds=[latencies.fileno]
    ) as client:
        machine.watch_client(client.pid)
        while client.poll() is None:
            samples.append(machine.usage())
            time.sleep(SAMPLE_SECONDS)
        out, errors = client.communicate()
    if client.returncode:
        raise RuntimeError(f"{' '.join(command)}: {errors.strip()}")
    return json.loads(out), samples


def _result(plan: Plan, samples: Sequence[Usage], latencies: Sequence[int], *, cpus: int, latest_ms: float) -> Result:
    way = ways.parse(plan.way)
    first, last = samples[0], samples[-1]
    seconds = last.time - first.time

    def mean(name: str) -> float:
        return float((getattr(last, name) - getattr(first, name)) / seconds)

    windows = list(_windows(samples))
    budgets = [ways.budget_milli(a, b, cpus, way.threshold_percent) / 1000 for a, b in windows]
    least = be_limit.MIN_QUOTA_US / be_limit.PERIOD_US
    worst = max((b.others + b.steal - a.others - a.steal) / (b.time - a.time) for a, b in windows)
    answered = [latency for latency in latencies if latency]
    result = Result(
        service=plan.service,
        pattern=plan.pattern,
        batch=plan.batch if way.has_batch else "",
        way=plan.way,
        seed=plan.seed,
        seconds=plan.seconds,
        requests=len(latencies),
        unanswered=len(latencies) - len(answered),
        histogram=dict(sorted(Counter(map(bin_of, answered)).items())),
        service_cpus=mean("service"),
        batch_cpus=mean("batch"),
        budget_cpus=statistics.fmean(max(budget, least) for budget in budgets),
        agent_cpus=mean("agent"),
        client_cpus=mean("client"),
        others_cpus=mean("others"),
        others_worst=worst,
        steal_cpus=mean("steal"),
        throttled_cpus=mean("throttled"),
        latest_ms=latest_ms,
        batch_by_second=tuple(round((b.batch - a.batch) / (b.time - a.time), 3) for a, b in windows),
    )
    return dataclasses.replace(result, thrown_away=why_thrown_away(result))


def _windows(samples: Sequence[Usage]) -> list[tuple[Usage, Usage]]:
    """Pairs of samples about a second apart."""
    chosen = [samples[0]]
    for sample in samples[1:]:
        if sample.time - chosen[-1].time >= BUDGET_SECONDS - SAMPLE_SECONDS / 2:
            chosen.append(sample)
    return list(itertools.pairwise(chosen)) or [(samples[0], samples[-1])]


def why_thrown_away(result: Result) -> str:
    """Why the figures of a run say nothing about its way; empty when they do."""
    disturbed = result.others_cpus + result.steal_cpus
    if disturbed > MOST_OTHERS:
        return f"others used {result.others_cpus:.3f} CPUs and {result.steal_cpus:.3f} were stolen"
    if result.others_worst > MOST_OTHERS_SECOND:
        return f"others used {result.others_worst:.2f} CPUs within a second"
    if result.unanswered > result.requests * 0.01:
        return f"{result.unanswered} of {result.requests} requests had no answer three seconds after the end"
    return ""


def calibrated(program: pathlib.Path) -> dict[str, float]:
    """Nanoseconds of a step of each kind of work, the least of several: others only make it slower."""
    from tests.perf.colocation.engine import iteration_ns

    return {f"{work} {kib}": min(iteration_ns(program, work, kib) for _ in range(3)) for work, kib in loads.CALIBRATED}
