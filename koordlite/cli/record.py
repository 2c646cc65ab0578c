"""Flight records in the making: every round of `koordlite run`, a file by `koordlite record`, or one snapshot with the
files it came from by `koordlite capture`. What the agent itself has no use for is imported where it is needed."""

from __future__ import annotations

import argparse
import contextlib
import logging
import math
import pathlib
import sys
import tempfile
from collections.abc import Callable, Iterator

import msgspec

from koordlite import __version__, commandline, config
from koordlite.agent import Agent
from koordlite.cli import machine as machines
from koordlite.cli.machine import Machine
from koordlite.clock import ended_by_signals
from koordlite.config import Settings
from koordlite.host import bundle
from koordlite.host.files import RealFiles
from koordlite.model import printable
from koordlite.model.errors import InputError, KoordliteError, Problem
from koordlite.record import store
from koordlite.record.round_record import RoundRecord
from koordlite.record.segment import Head
from koordlite.record.store import Recorder
from koordlite.report.history import DecisionEvent
from koordlite.report.tick import Tick

LOG = logging.getLogger(__name__)
MIB = 1 << 20


class Recording(msgspec.Struct, frozen=True):
    """A flight record in the making."""

    listen: Callable[[Tick, tuple[DecisionEvent, ...]], None]
    folder: pathlib.Path | None
    """None when there is no record."""


@contextlib.contextmanager
def recording(agent: Agent, machine: Machine, settings: Settings, *, named: str | None) -> Iterator[Recording]:
    """Listens to ticks and keeps what they judged; a folder that fails stops nothing. `named` is a folder given for
    this run: it is required then.

    A captured machine is recorded only where a folder was named, an emulated one also while it can be asked over HTTP.
    """
    worthwhile = isinstance(machine.host.files, RealFiles) or (machine.sandbox is not None and settings.http.enable)
    recorder, folder = None, pathlib.Path(named or settings.record.folder)
    if named or (settings.record.mode != "off" and worthwhile):
        try:
            recorder = Recorder(folder, _head(machine, settings), max_bytes=settings.record.max_mib * MIB)
        except (OSError, KoordliteError) as error:
            if named or settings.record.mode == "required":
                raise
            LOG.warning("there is no flight record: %s", error)
    if recorder is None:
        yield Recording(lambda tick, changes: None, None)
        return
    keep = keeper(recorder)

    def listen(tick: Tick, changes: tuple[DecisionEvent, ...]) -> None:
        if agent.last_round is not None:
            keep(agent.last_round)

    try:
        yield Recording(listen, folder)
    finally:
        recorder.close()


def keeper(recorder: Recorder) -> Callable[[RoundRecord], None]:
    """Adds rounds; why one could not be kept is logged when it comes up, not each tick it lasts."""
    logged = ""

    def keep(round_record: RoundRecord) -> None:
        nonlocal logged
        try:
            recorder.add(round_record)
            logged = ""
        except OSError as error:
            if str(error) != logged:
                LOG.error("the flight record has a gap: %s", error)
            logged = str(error)

    return keep


def _head(machine: Machine, settings: Settings) -> Head:
    """Headers of the pieces."""
    return Head(koordlite=__version__, node=settings.agent.node, machine=machine.name)


def record(args: argparse.Namespace) -> int:
    """Write the file. 1 when it holds no round."""
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
    from koordlite.cli import asking, recorded
    from koordlite.record.reader import Record
    from koordlite.replay import verify

    settings, seconds = config.named(args.config), _positive(args.last, "--last")
    source = Record(pathlib.Path(args.source or asking.record_folder(settings.record.folder)))
    since = recorded.period(source)[1] - seconds
    next(iter(source.rounds(since=since)), None)  # For the head.
    head = source.head or Head(koordlite=__version__)
    if args.mask:
        return store.masked(path, head, lambda: source.rounds(since=since), decide=verify.decided_again())
    return store.write(path, head, source.rounds(since=since))


def _observe_for(args: argparse.Namespace, path: pathlib.Path) -> int:
    """Record with an agent that only observes. To be masked the record has to be complete first, so it goes to a
    private file."""
    from koordlite.record.reader import Record
    from koordlite.replay import verify

    seconds = _positive(args.seconds, "--for")
    with contextlib.ExitStack() as stack:
        raw = path
        if args.mask:
            raw = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="koordlite-"))) / "record"
        stop = ended_by_signals()
        settings = config.with_modes(machines.settings(args), "observe")
        with contextlib.closing(machines.machine(args, settings, stop)) as machine:
            machines.need_node(args, machine.cluster)
            head, agent = _head(machine, settings), Agent(machine.host, machine.cluster, settings)
            with (
                contextlib.closing(store.OneFile(raw, head)) as file,
                commandline.progress(f"recording {seconds:.0f} s"),
            ):
                agent.run(lambda tick: file.add(agent.last_round) if agent.last_round else None, seconds=seconds)
        if not args.mask:
            return file.count
        return store.masked(path, head, Record(raw).rounds, decide=verify.decided_again())


def _positive(seconds: float, option: str) -> float:
    if not 0 < seconds < math.inf:
        raise InputError(Problem("command line", option, str(seconds), "out of range", "write more than 0, as in 30m"))
    return seconds


def capture(args: argparse.Namespace) -> int:
    """Observe twice, a second apart, and keep what was read. Nothing on the machine is changed."""
    from koordlite.record import capture as captures
    from koordlite.record.mask import Mask, Names
    from koordlite.replay import verify

    folder = pathlib.Path(args.output)
    if folder.exists():
        raise InputError(Problem("command line", "--output", args.output, "it exists", "name a folder to be made"))
    settings = config.with_modes(machines.settings(args), "observe")
    machine = machines.machine(args, settings)
    with contextlib.closing(machine):
        machines.need_node(args, machine.cluster)
        watching = captures.Watching(machine.host.files)
        host = bundle.bind(watching, machine.host.clock, kubepods=settings.agent.kubepods)
        host = msgspec.structs.replace(host, cookies=machine.host.cookies)
        agent = Agent(host, machine.cluster, settings)
        tick, round_record = machines.two_ticks(agent, host), agent.last_round
        if round_record is None:
            raise KoordliteError(tick.because)
        path, head, names = folder / captures.MOMENT, _head(machine, settings), Names()
        if args.mask:
            names.take_in(round_record.snapshot)
            captures.write(folder, watching, machine.cluster.view(), Mask(names).value)
            store.masked(path, head, lambda: [round_record], decide=verify.decided_again())
        else:
            captures.write(folder, watching, machine.cluster.view(), None)
            store.write(path, head, [round_record])
    print(printable.lines(f"{folder}: {len(watching.items)} files, one moment{', masked' if args.mask else ''}"))
    return 0
