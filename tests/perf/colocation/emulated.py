"""Ways to share nodes of 2 to 192 CPUs, in the model of `model.py`; and how far the model is from measurements.

    python -m tests.perf.colocation.emulated [--cpus 32 64 128 192] [--load 0.3 0.6]
    python -m tests.perf.colocation.emulated --validate out/colocation/results.jsonl

Each CPU has one service of 100 requests a second, unless `--load` of the node is reached with fewer. Policies of
koordlite and Koordinator are the formulas of koordlite, a round a second, without debt and without the reaction between
rounds; `agent:guided` goes by what the model's services waited.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import pathlib
import statistics
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))

from koordlite.formulas.cpu import be_limit, contention, suppress
from koordlite.model.topology import CPU
from koordlite.strategies import cpu_suppress
from tests.perf.colocation import loads, results, ways
from tests.perf.colocation.model import Limits, Node, ServiceLoad
from tests.perf.colocation.results import Results, Row
from tests.perf.colocation.ways import Way

SYSTEM_CPUS = 0.03
"""What the client, kernel threads and daemons use on a measured machine."""
SECOND = 1e6


@dataclasses.dataclass(frozen=True)
class Outcome:
    """One way on one node."""

    way: str
    p50: float
    p99: float
    p999: float
    batch_cpus: float
    budget_cpus: float
    service_cpus: float


Control = Callable[[Node, float], Limits]
"""From the node and the CPUs that services used in the last second, the limits of the next."""


def simulate(
    cpus: int, services: Sequence[ServiceLoad], way: Way, *, seconds: int = 10, settle: int = 3, seed: int = 1
) -> Outcome:
    """Play `settle` and then `seconds` that count."""
    mean = sum(each.rate * each.work_us for each in services) / SECOND
    limits, control = _begin(way, cpus, mean)
    node = Node(cpus, services, limits, batch=way.has_batch, seed=seed)
    used, batch, budgets = 0.0, 0.0, []
    before = 0.0
    for second in range(1, settle + seconds + 1):
        node.advance(second * SECOND)
        last, used = node.service_us / SECOND - used, node.service_us / SECOND
        if second == settle:
            batch, before = node.batch_us, node.service_us
        if second > settle:
            budgets.append(max(_budget_milli(cpus, way, last) / 1000, be_limit.MIN_QUOTA_US / be_limit.PERIOD_US))
        node.limit(control(node, last))
    taken = sorted(latency / 1000 for due, latency in node.latencies if due >= settle * SECOND)
    return Outcome(
        way.name,
        *(taken[min(len(taken) - 1, math.ceil(len(taken) * part) - 1)] for part in (0.5, 0.99, 0.999)),
        (node.batch_us - batch) / SECOND / seconds,
        statistics.fmean(budgets),
        (node.service_us - before) / SECOND / seconds,
    )


def _budget_milli(cpus: int, way: Way, service_cpus: float) -> int:
    return suppress.be_cpu_budget(
        capacity_milli=cpus * 1000,
        threshold_percent=way.threshold_percent,
        prod_milli=round(service_cpus * 1000),
        host_milli=0,
        system_milli=round(SYSTEM_CPUS * 1000),
    )


def _begin(way: Way, cpus: int, service_cpus: float) -> tuple[Limits, Control]:
    everything = Limits(frozenset(range(cpus)), is_idle=way.kind == "idle")
    if way.kind == "agent" and way.word == "guided":
        return everything, _Guided(way, cpus)
    if way.has_objective:
        raise ValueError(f"there is no model of {way.name}: it goes by a p99 that the model knows only at its end")
    if way.kind == "static":
        budget = cpus * way.threshold_percent / 100 - service_cpus - SYSTEM_CPUS
        period_us = float(way.settings.get("period", 100)) * 1000
        quota_us = float(way.word or max(budget, 0.02)) * period_us
        return dataclasses.replace(everything, quota_us=quota_us, period_us=period_us), lambda node, _: node.limits
    if way.kind in ("koordinator", "agent"):
        follow = _quota if way.word == "cfsQuota" else _set
        return everything, lambda node, used: follow(node.limits, _budget_milli(cpus, way, used), cpus)
    return everything, lambda node, _: node.limits


class _Guided:
    """The policy `guided`: a quota that follows what services waited in the last five seconds."""

    def __init__(self, way: Way, cpus: int) -> None:
        self._way, self._cpus = way, cpus
        self._guidance, self._batch_us = contention.Guidance(), 0.0
        self._past: deque[tuple[float, list[tuple[float, float]]]] = deque(maxlen=6)

    def __call__(self, node: Node, used: float) -> Limits:
        now = node.now / SECOND
        self._past.append((now, list(node.waits)))
        since, before = self._past[0]
        services, tolerance = [], cpu_suppress.Config().wait_percent / 100
        for number, ((ran, waited), (ran_before, waited_before)) in enumerate(zip(node.waits, before, strict=True)):
            wanted = ran - ran_before + waited - waited_before
            if now - since >= cpu_suppress.MIN_WINDOW_SECONDS and wanted > 0:
                services.append(contention.Service(str(number), (waited - waited_before) / wanted, since, tolerance))
        batch_us, self._batch_us = node.batch_us - self._batch_us, node.batch_us
        most_us = self._cpus * be_limit.PERIOD_US
        guided = contention.guided(
            services,
            self._guidance,
            time=now,
            present_milli=round(min(node.limits.quota_us, most_us) / be_limit.PERIOD_US * 1000),
            used_milli=round(batch_us / 1000),
            floor_milli=max(_budget_milli(self._cpus, self._way, used), 20),
            capacity_milli=self._cpus * 1000,
        )
        self._guidance = guided.guidance
        return _quota(node.limits, guided.limit_milli, self._cpus)


def _quota(limits: Limits, budget_milli: int, cpus: int) -> Limits:
    current = be_limit.UNLIMITED if math.isinf(limits.quota_us) else int(limits.quota_us)
    target = be_limit.quota_target(budget_milli=budget_milli, current_us=current, capacity_milli=cpus * 1000)
    return limits if target is None else dataclasses.replace(limits, quota_us=float(target))


def _set(limits: Limits, budget_milli: int, cpus: int) -> Limits:
    count = be_limit.cpu_target(budget_milli=budget_milli, present=len(limits.cpus), cpus=cpus)
    pool = [CPU(id=number, core=number, socket=0, node=0) for number in range(cpus)]
    return dataclasses.replace(limits, cpus=frozenset(be_limit.spread(count, pool)))


# Against measurements


def load_of(row: Row) -> ServiceLoad:
    """A measured service as the model takes it: as much work for a request as it used when it was alone."""
    service = loads.SERVICES[row.service]
    return ServiceLoad(service.rate, row.service_cpus / service.rate * SECOND, service.threads, service.is_divided)


def compared(table: Sequence[Row]) -> Iterator[tuple[Row, Row, Outcome, Outcome]]:
    """Each measured way with `alone` of its load, and the model's outcomes of both."""
    for alone in [row for row in table if row.way == "alone" and row.pattern == "steady"]:
        if loads.SERVICES[alone.service].protocol != "work":
            continue
        service = load_of(alone)
        base = simulate(2, [service], ways.parse("alone"), seconds=60)
        for row in table:
            same = (row.service, row.pattern, row.batch) == (alone.service, alone.pattern, alone.batch)
            if same and ways.parse(row.way).kind in ("plain", "idle", "static", "koordinator"):
                yield row, alone, simulate(2, [service], ways.parse(row.way), seconds=60), base


def validate(path: pathlib.Path) -> None:
    """Print measured and modelled p99, as multiples of `alone`, and CPUs of batch work."""
    print(f"{'load':<34}{'way':<26}{'p99 x alone':>14}{'model':>8}{'batch CPUs':>12}{'model':>8}")
    for row, alone, outcome, base in compared(results.rows(Results(path).kept())):
        measured, modelled = row.p99 / alone.p99, outcome.p99 / base.p99
        load = f"{row.service}, {row.pattern}, {row.batch}"
        print(
            f"{load:<34}{row.way:<26}{measured:>14.2f}{modelled:>8.2f}{row.batch_cpus:>12.2f}{outcome.batch_cpus:>8.2f}"
        )


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cpus", nargs="+", type=int, default=[32, 64, 128, 192])
    parser.add_argument("--load", nargs="+", type=float, default=[0.3, 0.6], help="part of the node that services use")
    parser.add_argument("--threads", type=int, default=1, help="threads that each request is divided among")
    parser.add_argument("--seconds", type=int, default=5)
    names = ["alone", "plain", "idle", "static", "koordinator:cfsQuota", "koordinator:cpuset"]
    parser.add_argument("--way", nargs="+", default=names)
    parser.add_argument(
        "--validate", type=pathlib.Path, metavar="RESULTS", help="compare the model with measured results"
    )
    options = parser.parse_args()
    if options.validate:
        validate(options.validate)
        return
    print("milliseconds, CPUs")
    print(f"{'CPUs':>5}{'load':>6}  {'way':<24}{'p50':>7}{'p99':>8}{'p99.9':>8}{'batch':>8}{'budget':>8}")
    for cpus in options.cpus:
        for load in options.load:
            services = [ServiceLoad(100.0, load * SECOND / 100.0, options.threads, is_divided=True)] * cpus
            for name in options.way:
                out = simulate(cpus, services, ways.parse(name), seconds=options.seconds)
                figures = f"{out.p50:>7.2f}{out.p99:>8.2f}{out.p999:>8.2f}{out.batch_cpus:>8.1f}{out.budget_cpus:>8.1f}"
                print(f"{cpus:>5}{load:>6.0%}  {name:<24}{figures}", flush=True)


if __name__ == "__main__":
    main()
