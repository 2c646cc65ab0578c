"""`koordlite explain SUBJECT`: ask a running agent, a flight record, or the machine that is named.

To ask a running agent costs next to nothing: what judges a machine or reads a record is imported where it is needed.
"""

from __future__ import annotations

import argparse
import pathlib
import time
import urllib.parse
from collections.abc import Callable
from typing import TYPE_CHECKING

from koordlite import commandline
from koordlite.cli import asking, options
from koordlite.model import printable
from koordlite.model.errors import InputError, Problem

if TYPE_CHECKING:
    from koordlite.report.history import Remembered
    from koordlite.report.tick import Tick

SUBJECTS = (
    "node, pod NAME, numa NAMESPACE/POD, cpu N, cpus, file PATH, allocatable, config[.KEY], resctrl, besteffort, "
    "pools, a strategy, a reason, or part of a file name"
)

_UNTIL_RATES_SECONDS = 10.0
"""How long after the start of a record use is known: it is a rate."""


def explain(args: argparse.Namespace) -> int:
    """Print the answer. 2 when there is nothing of that name."""
    subject = " ".join(args.subject)
    if args.why_pending:
        from koordlite.cli import scheduler_command

        return scheduler_command.why_pending(args, subject)
    if args.memory:
        _show(_memory(subject, args), args)
        return 0
    if args.record or args.at or args.since:
        _show(_of_record(subject, args), args)
    elif asking.of_machine(args):
        from koordlite.cli import machine
        from koordlite.report.explain.subject import explain as explained
        from koordlite.report.history import NOTHING

        tick = machine.tick(args)
        _show(_answer(subject, lambda: explained(subject, tick, NOTHING, output=args.output, who=args.who)), args)
    else:
        who = {"who": "true"} if args.who else {}
        query = urllib.parse.urlencode({"subject": subject, "output": args.output, **who})
        _show(asking.get(f"{(args.url or asking.default_url()).rstrip('/')}/explain?{query}"), args)
    return 0


def _show(text: str, args: argparse.Namespace) -> None:
    if args.output == "json":
        print(printable.in_json(text), end="")
    else:
        commandline.show(text)


def numa(args: argparse.Namespace) -> int:
    """`numa explain POD`. 2 when there is no such pod."""
    args.subject, args.record, args.at, args.since, args.who = ["numa", args.pod], None, None, None, False
    args.why_pending = False
    return explain(args)


def _memory(subject: str, args: argparse.Namespace) -> str:
    """`numa NAMESPACE/POD --memory`: only the machine itself can tell, now."""
    kind, _, pod = subject.partition(" ")
    if kind != "numa" or not pod or args.record or args.at or args.since:
        do = "write `explain numa NAMESPACE/POD --memory`, without --record, --at or --since"
        raise InputError(Problem("command line", "--memory", subject, "it is about the memory of one pod, now", do))
    if not asking.of_machine(args):
        query = urllib.parse.urlencode({"pod": pod, "output": args.output})
        return asking.get(f"{(args.url or asking.default_url()).rstrip('/')}/explain/numa-memory?{query}")
    from koordlite.cli import machine as machines
    from koordlite.observe import numa_pages
    from koordlite.report.explain import numa_memory

    with machines.taken(args) as (machine, tick):
        picture = tick.snapshot
        return _answer(
            subject,
            lambda: numa_memory.answer(
                numa_pages.of_pod(machine.host, picture, pod, wait=machine.host.clock.wait)
            ).show(args.output),
        )


def _of_record(subject: str, args: argparse.Namespace) -> str:
    import msgspec

    from koordlite.cli import machine as machines
    from koordlite.cli import recorded
    from koordlite.record.reader import Record
    from koordlite.report.explain import since, squeeze
    from koordlite.report.json.run_report import encode

    path = args.record or asking.record_folder(machines.settings(args).record.folder, args.url or "")
    tick, past = recorded.at(path, _when(args.at, "--at", time.time()))
    if not args.since:
        return _at(subject, tick, past, args)
    covered = recorded.beginning(Record(pathlib.Path(path))), tick.wall
    wall, note = recorded.begin(args.since, covered)
    if note:
        wall = min(wall + _UNTIL_RATES_SECONDS, tick.wall)
    then, _ = recorded.at(path, wall)
    night = squeeze.of(Record(pathlib.Path(path)).moments(since=wall), tick.wall) if subject == "besteffort" else None
    if args.output == "json":
        whole = {"heldBack": msgspec.to_builtins(night)} if night else {}
        return _answer(
            subject, lambda: encode({"version": 1, **since.answer(subject, then, tick).document, **whole}).decode()
        )
    first = (note and f"{note}\n") + (f"{squeeze.text(night)}\n" if night else "")
    return first + _answer(subject, lambda: "\n".join(since.answer(subject, then, tick, past).lines))


def _at(subject: str, tick: Tick, past: Remembered, args: argparse.Namespace) -> str:
    from koordlite.report import units
    from koordlite.report.explain.subject import explain as explained

    head = "" if args.output == "json" else f"as recorded at {units.moment(tick.wall)}\n\n"
    return head + _answer(subject, lambda: explained(subject, tick, past, output=args.output, who=args.who))


def _when(text: str | None, option: str, now: float) -> float | None:
    return None if text is None else options.time_of(text, option, now=now)


def _answer(subject: str, say: Callable[[], str]) -> str:
    try:
        return say()
    except ValueError as error:
        do = f"ask for {SUBJECTS}"
        raise InputError(Problem("command line", "SUBJECT", subject, str(error), do)) from error
