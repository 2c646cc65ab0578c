"""`koordlite simulate`: scenarios on the emulated node in compressed time."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import logging
import pathlib
import sys
from collections.abc import Iterator

import msgspec

from koordlite import commandline, config
from koordlite.lab.simulation import reading, runner
from koordlite.lab.simulation.reading import Play
from koordlite.model import printable
from koordlite.model.errors import ConfigError, Problem, noting
from koordlite.report import simulation as reports
from koordlite.report.html import simulation as simulation_html
from koordlite.report.json.run_report import encode


def simulate(args: argparse.Namespace) -> int:
    """Play the scenarios. 1 when something that was expected did not come out; never when configurations are compared,
    since what is expected was written for one of them."""
    plays = _plays(args)
    with _quiet(), commandline.progress("simulating"):
        runs = [runner.play(each, seed=args.seed) for each in plays]
    if args.html:
        title = f"{runs[0].name}, simulated"
        pathlib.Path(args.html).write_text(simulation_html.document(runs, title=title), encoding="utf-8")
    if args.output == "json":
        sys.stdout.buffer.write(encode(reports.document(runs)))
        sys.stdout.buffer.flush()
    elif args.compare or args.without:
        print(printable.lines(reports.compared(runs)), end="")
    else:
        print(printable.lines("\n".join(map(reports.text, runs))), end="")
    return 0 if args.compare or all(run.ok for run in runs) else 1


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep quiet about what goes wrong on the emulated node, which is part of the play, and in the report: the agent's
    log says none of it."""
    log = logging.getLogger("koordlite")
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(before)


def _plays(args: argparse.Namespace) -> list[Play]:
    """Every file is read before the first scenario is played, so that all mistakes are reported at once."""
    plays: list[Play] = []
    problems: list[Problem] = []
    for name in args.scenario:
        with noting(problems):
            plays.append(_chosen(reading.load(pathlib.Path(name)), args))
    if problems:
        raise ConfigError(problems)
    option = "--compare" if args.compare else "--without"
    if args.compare and args.without:
        do = "leave one of them out"
        raise ConfigError(Problem("command line", "--without", "", "--compare is there too", do))
    if not args.compare and not args.without:
        return plays
    if len(plays) > 1:
        do = f"name one scenario, or leave {option} out"
        raise ConfigError(Problem("command line", option, " ".join(args.compare or ()), "several scenarios", do))
    if args.without:
        return [msgspec.structs.replace(plays[0], label="with koordlite"), reading.without(plays[0])]
    return [reading.variant(plays[0], pathlib.Path(name)) for name in args.compare]


def _chosen(play: Play, args: argparse.Namespace) -> Play:
    settings = config.load(pathlib.Path(args.config)) if args.config else play.settings
    written = dataclasses.replace(play.scenario, mode=args.mode) if args.mode else play.scenario
    return msgspec.structs.replace(play, settings=settings, scenario=written)
