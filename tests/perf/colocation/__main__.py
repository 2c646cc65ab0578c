"""How fast a service is beside batch work, and how much CPU batch work gets: real processes in groups of this kernel.

    python -m tests.perf.colocation [--service memory redis] [--batch compute stream] [--way plain agent:cfsQuota]

Runs are short and many: every way in turns, round by round. Each is added to `--results` when it ends, and those that
are there already are not run again, so that a long measurement can be interrupted, or made in pieces (`--within`). A
run during which other programs used the machine, or another machine took its CPUs, is thrown away and made again.
As root, on cgroup v1 or v2. What ways there are: `--list`.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import math
import os
import pathlib
import signal
import sys
import tempfile
import time
from collections.abc import Iterator

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))

from realnode import tree

from tests.perf.colocation import engine, goals, loads, machine, measure, page, results, ways
from tests.perf.colocation.measure import Plan, Result
from tests.perf.colocation.results import Results

DEFAULT_WAYS = [
    "alone",
    "plain",
    "static",
    "koordinator:cfsQuota",
    "koordinator:cpuset",
    "agent:cfsQuota",
    "agent:cpuset",
    "agent:guided",
]


def main() -> int:
    """The command."""
    options = _options()
    if options.list:
        print(_listing())
        return 0
    found = Results(options.results)
    if not options.report_only:
        _measure(options, found)
    table = results.rows(found.kept())
    if options.brief:
        print(results.brief(results.as_shipped(table), page.words, only=options.load or []))
        return 0
    print(results.table(table))
    verdicts = {True: "met", False: "missed", None: "unclear"}
    for goal in goals.judge(table):
        print(f"{verdicts[goal.met]:<7} {goal.load}: {goal.words}: {goal.figures}")
    if options.html:
        options.html.parent.mkdir(parents=True, exist_ok=True)
        options.html.write_text(page.document(found))
        _say(f"wrote {options.html}")
    if options.figure:
        options.figure.write_text(page.summary(page.TITLE, table, only=options.load or page.LEADING))
        _say(f"wrote {options.figure}")
    print(f"\n{results.trust(found)} {options.results}")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--service", nargs="+", default=["memory"], choices=list(loads.SERVICES))
    parser.add_argument("--pattern", nargs="+", default=["steady"], choices=list(loads.PATTERNS))
    parser.add_argument("--batch", nargs="+", default=["compute", "stream"], choices=list(loads.BATCHES))
    parser.add_argument("--way", nargs="+", default=DEFAULT_WAYS, help="names as --list explains them")
    parser.add_argument(
        "--all", action="store_true", help="every service, pattern and batch work: nearly an hour a round"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--first-round", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=9.0, help="of each run that count")
    parser.add_argument(
        "--settle",
        type=float,
        default=4.0,
        help="seconds of each run before those; 24 where a way learns what services wait by themselves",
    )
    parser.add_argument(
        "--within", type=float, default=math.inf, help="begin no run that would end after so many seconds"
    )
    parser.add_argument("--attempts", type=int, default=3, help="runs until one is not disturbed")
    parser.add_argument("--patience", type=float, default=20.0, help="seconds a run waits for others to become quiet")
    parser.add_argument(
        "--cgroup",
        type=int,
        choices=(1, 2),
        help="refuse unless this version has the cpu controller; else whichever has",
    )
    parser.add_argument("--keep-disturbed", action="store_true", help="do not throw away runs that others disturbed")
    parser.add_argument("--results", type=pathlib.Path, default=pathlib.Path("out/colocation/results.jsonl"))
    parser.add_argument("--report-only", action="store_true", help="measure nothing")
    parser.add_argument("--html", type=pathlib.Path, help="write a page of all results")
    parser.add_argument("--figure", type=pathlib.Path, help="write an SVG of p99 and batch CPUs")
    parser.add_argument("--brief", action="store_true", help="print p99 and batch CPUs only")
    parser.add_argument(
        "--load", nargs="+", help='loads in the figure and in --brief, such as "memory, steady beside stream"'
    )
    parser.add_argument("--list", action="store_true", help="services, batch work and ways")
    options = parser.parse_args()
    for way in options.way:
        try:
            ways.parse(way)
        except ValueError as error:
            parser.error(str(error))
    return options


def _listing() -> str:
    lines = ["services:", *(f"    {name:<14}{each.about}" for name, each in loads.SERVICES.items())]
    lines += ["batch work:", *(f"    {name:<14}{each.about}" for name, each in loads.BATCHES.items())]
    lines += ["patterns:", *(f"    {name:<14}{each[0]}" for name, each in loads.PATTERNS.items())]
    return "\n".join([*lines, "ways:", *(ways.__doc__ or "").splitlines()[2:]])


def _measure(options: argparse.Namespace, found: Results) -> None:
    if os.geteuid() != 0:
        raise SystemExit("this needs root, to make groups and for a client of real-time priority")
    if options.cgroup and options.cgroup != (version := tree.mounts()[0]):
        raise SystemExit(f"the cpu controller of this machine is on cgroup v{version}")
    begun = time.monotonic()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # So that everything is cleaned up.
    program = engine.compile_engine(options.results.parent)
    if found.header is None:
        found.begin(results.this_machine(measure.calibrated(program)))
    assert found.header
    if why := results.refusal(found.header, results.this_machine({})):
        raise SystemExit(f"{options.results} cannot be continued: {why}; name another file with --results")
    done = {run.key for run in found.kept()}
    plans = [plan for plan in _plans(options) if plan.key not in done]
    _say(f"{len(plans)} runs of {sum(plan.seconds + plan.settle_seconds + 2 for plan in plans) / 60:.0f} minutes")
    with tempfile.TemporaryDirectory(prefix="koordlite-colocation-") as scratch:
        for number, plan in enumerate(plans, start=1):
            for attempt in range(1, options.attempts + 1):
                begin = time.monotonic()
                if begin - begun + plan.seconds + plan.settle_seconds + 4 > options.within:
                    _say(f"{len(plans) - number + 1} runs are left: start the command again")
                    return
                folder = pathlib.Path(scratch) / f"{number}-{attempt}"
                folder.mkdir()
                with machine.private(program, folder) as node:
                    _wait_for_others(node, options.patience)
                    result = measure.run(plan, node, found.header.iteration_ns, _alone(found, plan))
                if options.keep_disturbed:
                    result = dataclasses.replace(result, thrown_away="")
                found.add(result)
                _say(f"{number}/{len(plans)} {_line(result)}")
                if not result.thrown_away:
                    break


def _wait_for_others(node: machine.Machine, seconds: float) -> None:
    """Until a moment in which other programs use next to nothing; after so many seconds a run begins all the same."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        before = node.usage()
        time.sleep(0.4)
        after = node.usage()
        if (after.others - before.others) / (after.time - before.time) < measure.MOST_OTHERS:
            return


def _loads(options: argparse.Namespace) -> list[tuple[str, str, str]]:
    """Service, pattern and batch work of each load. With `--all`: each service beside arithmetic and copies, one beside
    every kind of batch work, and one in every pattern."""
    if not options.all:
        return list(itertools.product(options.service, options.pattern, options.batch))
    each_service = itertools.product(loads.SERVICES, ["steady"], ["compute", "stream"])
    each_batch = itertools.product(["memory"], ["steady"], loads.BATCHES)
    each_pattern = itertools.product(["compute"], loads.PATTERNS, ["compute"])
    return list(dict.fromkeys([*each_service, *each_batch, *each_pattern]))


def _plans(options: argparse.Namespace) -> Iterator[Plan]:
    """Round by round, all ways of a load beside each other; `alone` once a round for all batch work of a service."""
    chosen = _loads(options)
    names = dict.fromkeys(name for service, _, batch in chosen for name in (service, batch))
    missing = {name: why for name in names if (why := loads.why_missing(name))}
    for why in missing.values():
        _say(f"skipped: {why}")
    for seed in range(options.first_round, options.first_round + options.rounds):
        alone = set()
        for service, pattern, batch in chosen:
            if {service, batch} & missing.keys():
                continue
            seconds = loads.whole_periods(pattern, options.seconds)
            for way in options.way:
                is_alone = way == "alone"
                if is_alone and (service, pattern) in alone:
                    continue
                alone |= {(service, pattern)} if is_alone else set()
                yield Plan(service, pattern, "" if is_alone else batch, way, seed, seconds, options.settle)


def _alone(found: Results, plan: Plan) -> ways.Alone:
    """The service alone, in the same round if it was measured there; in the beginning, what it is made to use.
    SystemExit where an objective lacks it."""
    runs = [run for run in found.kept() if (run.service, run.pattern, run.way) == (plan.service, plan.pattern, "alone")]
    alone = ways.Alone(0.46, math.nan)
    if runs:
        run = next((run for run in runs if run.seed == plan.seed), runs[-1])
        alone = ways.Alone(run.service_cpus, measure.percentile(run.histogram, 0.99))
    if ways.parse(plan.way).has_objective and math.isnan(alone.p99_ms):
        raise SystemExit(f"{plan.way} goes by the p99 of the service alone: name the way alone before it")
    return alone


def _line(result: Result) -> str:
    p50, p99 = (measure.percentile(result.histogram, part) for part in (0.5, 0.99))
    what = f"{result.service} {result.pattern} {result.batch or '-'} {result.way} #{result.seed}"
    figures = f"p50 {p50:.2f} p99 {p99:.2f} ms, batch {result.batch_cpus:.2f} of {result.budget_cpus:.2f} CPUs"
    return f"{what}: {figures}" + (f"; thrown away: {result.thrown_away}" if result.thrown_away else "")


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
