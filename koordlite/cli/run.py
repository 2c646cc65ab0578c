"""`koordlite run`: the agent with its live view, HTTP server and report files."""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import gc
import logging
import os
import pathlib
import platform
import resource
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Iterator

import msgspec

from koordlite import __version__, commandline
from koordlite.agent import Agent
from koordlite.changes import eviction
from koordlite.cli import machine as machines
from koordlite.cli import record, serving
from koordlite.cli.machine import Machine
from koordlite.cli.options import SANDBOX_FOLDER
from koordlite.cli.serving import Changes, Listener
from koordlite.clock import ended_by_signals
from koordlite.config import Settings
from koordlite.fault_guard import FaultGuard
from koordlite.host import heap, procfs
from koordlite.host.journal import journal, lock
from koordlite.host.journal.journal import Journal
from koordlite.model import node as nodes
from koordlite.model import printable
from koordlite.model.errors import JournalFull, Problem
from koordlite.model.status import Pause
from koordlite.report import log_format, view
from koordlite.report.history import History
from koordlite.report.terminal.decision_log import LineLimit
from koordlite.report.tick import UNSEEN, Tick

LOG = logging.getLogger(__name__)
_CLUSTER_OBJECTS = ("configmap/", "node/", "pod/")
"""Prefixes of problems whose cause is in the cluster, not on this machine."""
_FIRST_TICKS = 10
"""Then all is imported that waits until it is needed, and the first picture is there."""


def run(args: argparse.Namespace) -> int:
    """Run until stopped. 0 when every file that had to be written was."""
    live = sys.stdout.isatty() and not args.quiet and not args.once
    # The live view owns the terminal: only what needs a person goes above it.
    level = logging.WARNING if live else logging.INFO
    log_format.start(args.log_format or "text", level)
    # Hot files stay open: allow as many descriptors as the machine lets us have.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    heap.keep_small()
    stop = ended_by_signals()
    with _folders(args, machines.settings(args)) as settings:
        return _run(args, settings, machines.machine(args, settings, stop))


def _run(args: argparse.Namespace, settings: Settings, machine: Machine) -> int:
    with contextlib.closing(machine), _journal(args, settings, machine) as (undo_journal, unjournaled, open_journal):
        machines.need_node(args, machine.cluster)
        node = machine.cluster.view().node
        for problem in machines.contradictions(nodes.from_wire(node), machine.host.files) if node else ():
            LOG.warning("%s", problem)
        agent = Agent(
            machine.host, machine.cluster, settings, undo_journal, unjournaled=unjournaled, open_journal=open_journal
        )
        code = _look_twice(agent, machine, settings, args) if args.once else _loop(agent, machine, settings, args)
        if agent.journal is not None and not args.quiet:
            print(printable.lines(in_force(agent.journal, args, emulated=machine.sandbox is not None)), end="")
        return code


def in_force(undo_journal: Journal, args: argparse.Namespace, *, emulated: bool) -> str:
    """Traces that a run that could write leaves behind, and the command that undoes it."""
    kinds = collections.Counter(place.metric for place in undo_journal.places)
    if not kinds:
        return "nothing stays in force: every value is as it was found\n"
    listed = ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items()))
    if emulated:
        return f"in force when the emulated node ended: {listed}\n"
    agent_options = (("--config", args.config), ("--state-dir", args.state_dir), ("--published", args.published))
    named = (("--cluster", args.cluster), ("--kubeconfig", args.kubeconfig), ("--node", args.node))
    options = "".join(f" {option} {shlex.quote(value)}" for option, value in (*agent_options, *named) if value)
    return f"still in force: {listed}\nto undo this: koordlite restore{options} (--dry-run lists every value)\n"


def _frozen() -> Listener:
    """Collect what the imports and the first ticks leave behind, 0.6 MiB, and spare the collector the rest, which
    stays: a search of it all stops every thread for 20 ms, also the one that a runtime waits for."""
    remaining = _FIRST_TICKS

    def listen(_tick: Tick, _changes: Changes) -> None:
        nonlocal remaining
        if remaining:
            remaining -= 1
            gc.collect()
            gc.freeze()

    return listen


def _loop(agent: Agent, machine: Machine, settings: Settings, args: argparse.Namespace) -> int:
    history = _history(settings, machine)
    with contextlib.ExitStack() as stack:
        recorded = stack.enter_context(record.recording(agent, machine, settings, named=args.record))
        token = "" if args.recorded and not args.state_dir else settings.agent.state_dir
        file = args.config or os.environ.get("KOORDLITE_CONFIG")
        port = (file, "http.port") if file else serving.DEFAULT_PORT
        port = ("koordlite run", "--port") if args.port is not None else port
        listeners = [
            stack.enter_context(
                serving.served(machine, settings, history, folder=token, record=recorded.folder, port_from=port)
            ),
            stack.enter_context(serving.exporter_of_agent(machine.host.files, settings)),
            stack.enter_context(_view(machine, args, history)),
            _problems(),
            _cluster(agent, machine),
            recorded.listen,
            _frozen(),
        ]

        def on_tick(tick: Tick) -> None:
            changes = history.add(tick)
            for listen in listeners:
                listen(tick, changes)

        # Where no view shows that the agent runs, and for how long.
        quiet = commandline.progress(f"running {args.seconds:.0f} s") if args.quiet and args.seconds else None
        with quiet or contextlib.nullcontext():
            agent.run(on_tick, seconds=args.seconds, guard=_guard(machine, args))
    if args.record:
        print(printable.lines(f"flight record: {args.record}"))
    if args.report and history.last:
        _write_report(history, pathlib.Path(args.report), machine)
    return 0


def _guard(machine: Machine, args: argparse.Namespace) -> FaultGuard | None:
    """The guard of the loop; on an emulated machine a fault should be seen at once."""
    return None if machine.sandbox is not None or args.recorded else FaultGuard()


def _look_twice(agent: Agent, machine: Machine, settings: Settings, args: argparse.Namespace) -> int:
    """Usage needs two ticks, a second apart. A record is kept only where a folder was named for it."""
    from koordlite.report.terminal import status

    history = _history(settings, machine)
    with contextlib.ExitStack() as stack:
        named = record.recording(agent, machine, settings, named=args.record) if args.record else None
        keep = stack.enter_context(named).listen if named else None
        agent.take_over()
        for second in (0.0, 1.0):
            machine.host.clock.wait(second)
            tick = agent.tick()
            changes = history.add(tick)
            if keep:
                keep(tick, changes)
    print(printable.lines(status.screen(tick)), end="")
    if args.report:
        _write_report(history, pathlib.Path(args.report), machine)
    if settings.agent.on_stop == "restore":
        agent.put_back()
    return 0


@contextlib.contextmanager
def _journal(
    args: argparse.Namespace, settings: Settings, machine: Machine
) -> Iterator[tuple[Journal | None, str, Callable[[], Journal] | None]]:
    """The undo journal: when something may be written, or an earlier run left something to undo. On a full disk there
    is none, and why, and how to try again: until then the agent observes."""
    if args.recorded:
        yield None, "", None
        return
    folder, boot = settings.agent.state_dir, procfs.boot_id(machine.host.files)
    writes = any(section.mode == "enforce" for section in settings.strategies.values())
    if not writes and not journal.read(folder, boot_id=boot):
        yield None, "", None
        return
    with contextlib.ExitStack() as stack:

        def opened() -> Journal:
            with contextlib.ExitStack() as own:
                undo_journal = own.enter_context(Journal.open(folder, boot_id=boot))
                if machine.sandbox is None:
                    group = machine.host.cgroups.folder(machine.host.cgroups.layout.kubepods, "cpu")
                    own.callback(lock.take_machine(pathlib.Path(group)).release)
                for problem in journal.damaged(folder):
                    LOG.error("%s", problem)
                stack.push(own.pop_all())
            return undo_journal

        try:
            undo_journal, why = opened(), ""
        except JournalFull as error:
            undo_journal, why = None, f"nothing can be journaled, so nothing is written: {error}"
            LOG.error("%s", why)
        yield undo_journal, why, opened


@contextlib.contextmanager
def _folders(args: argparse.Namespace, settings: Settings) -> Iterator[Settings]:
    """Settings with the folders of this run: an emulated machine ends with this process, and so do its journal and its
    record, unless a folder was named. This machine's are never touched by it."""
    if not args.sandbox or args.state_dir:
        yield settings
        return
    with tempfile.TemporaryDirectory(prefix=SANDBOX_FOLDER) as folder:
        agent = dataclasses.replace(settings.agent, state_dir=folder)
        record = dataclasses.replace(settings.record, folder=f"{folder}/record")
        yield msgspec.structs.replace(settings, agent=agent, record=record)


def _problems() -> Listener:
    """Logs what is wrong with the input when it comes up, not on each tick while it lasts."""
    logged: frozenset[Problem] = frozenset()
    limit = LineLimit(time.monotonic)

    def listen(tick: Tick, changes: Changes) -> None:
        nonlocal logged
        if tick.snapshot is UNSEEN:
            return  # It shows nothing, not that all is well.
        problems = frozenset(tick.problems)
        for problem in sorted(problems - logged, key=str):
            left_out = limit.take(problem.object)
            if left_out is not None:
                LOG.warning("%s%s", problem, f" ({left_out} more lines were left out)" if left_out else "")
        logged = problems

    return listen


def _cluster(agent: Agent, machine: Machine) -> Listener:
    """Listener to rounds that tells an API server what was used, and which of its objects cannot be understood when
    that comes up."""
    announced: frozenset[Problem] = frozenset()
    pause: Pause | None = None

    def listen(tick: Tick, changes: Changes) -> None:
        nonlocal announced, pause
        if machine.remote is None:
            return
        problems = frozenset(problem for problem in tick.problems if problem.object.startswith(_CLUSTER_OBJECTS))
        machine.remote.tell(sorted(problems - announced, key=str))
        announced = problems
        if tick.pause and tick.pause != pause:
            machine.remote.announce("Paused", view.pause(tick.pause, wall=tick.wall), "Pause", warning=True)
        elif pause and not tick.pause:
            machine.remote.announce("Resumed", f"the pause has ended: {pause.because}", "Resume")
        pause = tick.pause
        # An Event for each pod whose containers were killed.
        dead = (step for step in tick.applied if step.ok and step.place.kind is eviction.KILL)
        pods = {(s.place.part("namespace"), s.place.part("pod"), s.place.part("uid")): s.value for s in dead}
        for (namespace, pod, uid), note in pods.items():
            machine.remote.killed(namespace=namespace, pod=pod, uid=uid, note=note)
        if agent.snapshot and not tick.woken:
            machine.remote.saw(agent.snapshot)

    return listen


@contextlib.contextmanager
def _view(machine: Machine, args: argparse.Namespace, history: History) -> Iterator[Listener]:
    if args.quiet:
        yield lambda tick, changes: None
        return
    from koordlite.report.terminal.live import LiveView

    view = LiveView(history, title=machine.name)
    try:
        yield view.update
    finally:
        view.close()


def _write_report(history: History, folder: pathlib.Path, machine: Machine) -> None:
    from koordlite.report import summary
    from koordlite.report.html import run_report as html
    from koordlite.report.json import run_report as json

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.json").write_bytes(json.encode(json.document(history)))
    (folder / "run.html").write_text(html.document(history, title=f"koordlite on {machine.name}"), encoding="utf-8")
    print(printable.lines(summary.text(history.summary())), end="")
    print(printable.lines(f"report: {folder / 'run.json'}\n        {folder / 'run.html'}"))


def _history(settings: Settings, machine: Machine) -> History:
    """An empty history, with what its report says of this run."""
    layout = machine.host.cgroups.layout
    environment = {
        "machine": machine.name,
        "cgroups": f"v{layout.version}, {layout.driver} driver",
        "koordlite": __version__,
        "python": platform.python_version(),
    }
    sections = {name: dataclasses.asdict(section) for name, section in settings.strategies.items()}
    return History({"agent": dataclasses.asdict(settings.agent), "strategies": sections}, environment)
