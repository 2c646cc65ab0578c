"""`koordlite record`: a flight record in one file, of the time to come or out of the agent's own."""

from __future__ import annotations

import argparse
import contextlib
import math
import pathlib
import sys
import tempfile

from koordlite import __version__, commandline, config
from koordlite.agent import Agent
from koordlite.cli import asking, recorded, recording
from koordlite.cli import machine as machines
from koordlite.clock import ended_by_signals
from koordlite.model import printable
from koordlite.model.errors import InputError, Problem
from koordlite.record import store
from koordlite.record.reader import Record
from koordlite.record.segment import Head
from koordlite.replay import verify


def record(args: argparse.Namespace) -> int:
    """Write the file. 1 when it holds no moment."""
    path = pathlib.Path(args.output)
    if path.exists():
        raise InputError(Problem("command line", "--output", args.output, "the file exists", "name another one"))
    count = _observe_for(args, path) if args.seconds is not None else _take_out(args, path)
    if not count:
        path.unlink()  # A file without a moment is no record, and would be in the way of the next try.
        print(printable.lines(f"{path}: not written, there is no moment in that time"), file=sys.stderr)
        return 1
    print(printable.lines(f"{path}: {count} moments, {path.stat().st_size} bytes{', masked' if args.mask else ''}"))
    return 0


def _take_out(args: argparse.Namespace, path: pathlib.Path) -> int:
    """Out of a record that is there, also while its agent writes on."""
    settings, seconds = config.named(args.config), _positive(args.last, "--last")
    found = Record(pathlib.Path(args.source or asking.record_folder(settings.record.folder)))
    since = recorded.period(found)[1] - seconds
    for _ in found.moments(since=since):
        break  # The first one, for the head.
    head = found.head or Head(koordlite=__version__)
    if args.mask:
        return store.masked(path, head, lambda: found.moments(since=since), decide=verify.decided_again())
    return store.write(path, head, found.moments(since=since))


def _observe_for(args: argparse.Namespace, path: pathlib.Path) -> int:
    """With an agent that only observes. To be masked it has to be complete first, so it goes to a private file."""
    seconds = _positive(args.seconds, "--for")
    with contextlib.ExitStack() as stack:
        raw = path
        if args.mask:
            raw = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="koordlite-"))) / "record"
        head = _observe(args, raw, seconds)
        if not args.mask:
            return sum(1 for _ in Record(path).moments()) if path.stat().st_size else 0
        return store.masked(path, head, Record(raw).moments, decide=verify.decided_again())


def _observe(args: argparse.Namespace, path: pathlib.Path, seconds: float) -> Head:
    stop = ended_by_signals()
    settings = config.with_modes(machines.settings(args), "observe")
    machine = machines.machine(args, settings, stop)
    with contextlib.closing(machine):
        machines.need_node(args, machine.cluster)
        head = recording.head(machine, settings)
        agent = Agent(machine.host, machine.cluster, settings)
        recording_for = commandline.progress(f"recording {seconds:.0f} s")
        with contextlib.closing(store.OneFile(path, head)) as file, recording_for:
            agent.run(lambda tick: file.add(agent.last_round) if agent.last_round else None, seconds=seconds)
    return head


def _positive(seconds: float, option: str) -> float:
    if not 0 < seconds < math.inf:
        raise InputError(Problem("command line", option, str(seconds), "out of range", "write more than 0, as in 30m"))
    return seconds
