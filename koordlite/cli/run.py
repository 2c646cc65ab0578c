"""`koordlite run`: the agent with its live view, HTTP server and report files."""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import logging
import pathlib
import platform
import resource
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import TextIO

from koordlite import __version__
from koordlite.agent import Agent
from koordlite.cli import machine as machines
from koordlite.cli.machine import Machine
from koordlite.config import Settings
from koordlite.host import journal, procfs
from koordlite.host.journal import Journal
from koordlite.model.errors import Problem
from koordlite.report.history import DecisionEvent, History
from koordlite.report.tick import Tick

LOG = logging.getLogger(__name__)
_CLUSTER_OBJECTS = ("configmap/", "node/", "pod/")
"""How problems begin that somebody made in the cluster, and not on this machine."""
News = tuple[DecisionEvent, ...]
Listener = Callable[[Tick, News], None]


class _Stderr(logging.StreamHandler[TextIO]):
    """Writes to whatever stderr is at the moment: the live view puts its own in place while it is drawn."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


def run(args: argparse.Namespace) -> int:
    """Run until told to stop. 0 when every file that had to be written was."""
    live = sys.stdout.isatty() and not args.quiet and not args.once
    # The live view owns the terminal: only what needs a person goes above it.
    level = logging.WARNING if live else logging.INFO
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(message)s", handlers=[_Stderr()])
    _keep_files_open()
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    settings = machines.settings(args)
    machine = machines.machine(args, settings, stop)
    with contextlib.closing(machine), _journal(args, settings, machine) as held:
        agent = Agent(machine.host, machine.cluster, settings, held)
        return (
            _look_twice(agent, machine, settings.agent.on_stop) if args.once else _loop(agent, machine, settings, args)
        )


def _keep_files_open() -> None:
    """Hot files stay open: allow as many descriptors as the machine lets us have."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _loop(agent: Agent, machine: Machine, settings: Settings, args: argparse.Namespace) -> int:
    history = History(_settings_view(settings), _environment(machine))
    with contextlib.ExitStack() as stack:
        listeners = [
            stack.enter_context(_http(agent, settings)),
            stack.enter_context(_view(machine, args)),
            _cluster(agent, machine),
        ]

        def on_tick(tick: Tick) -> None:
            news = history.add(tick)
            for listen in listeners:
                listen(tick, news)

        agent.run(on_tick, seconds=args.seconds)
    if args.report and history.last:
        _write_report(history, pathlib.Path(args.report), machine)
    return 0


def _look_twice(agent: Agent, machine: Machine, on_stop: str) -> int:
    """Usage needs two looks, a second apart."""
    from koordlite.report import text

    agent.heal()
    agent.tick()
    machine.host.clock.wait(1.0)
    print(text.status(agent.tick()), end="")
    if on_stop == "restore":
        agent.put_back()
    return 0


@contextlib.contextmanager
def _journal(args: argparse.Namespace, settings: Settings, machine: Machine) -> Iterator[Journal | None]:
    """The undo journal: when something is to be written, or an earlier run left something to undo.

    An emulated machine dies with this process, and so does its journal unless a folder was named.
    """
    with contextlib.ExitStack() as stack:
        folder = settings.agent.state_dir
        if args.recorded:
            yield None
            return
        if machine.sandbox and not args.state_dir:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="koordlite-"))
        boot = procfs.boot_id(machine.host.files)
        writes = any(section.mode == "enforce" for section in settings.strategies.values())
        if not writes and not journal.read(folder, boot_id=boot):
            yield None
            return
        yield stack.enter_context(Journal.open(folder, boot_id=boot))


@contextlib.contextmanager
def _http(agent: Agent, settings: Settings) -> Iterator[Listener]:
    if not settings.http.enable:
        yield lambda tick, news: None
        return
    from koordlite.http import Server
    from koordlite.report.endpoints import Endpoints
    from koordlite.report.metrics import Metrics

    metrics = Metrics(started=time.time())
    endpoints = Endpoints(period_seconds=settings.agent.interval_seconds, registry=metrics.registry)
    server = Server(settings.http.address, settings.http.port, endpoints.answer)
    recent: collections.deque[DecisionEvent] = collections.deque(maxlen=2000)

    def listen(tick: Tick, news: News) -> None:
        recent.extend(news)
        metrics.observe_tick(tick)
        endpoints.publish(tick, tuple(recent))

    server.start()
    LOG.info("listening on %s", server.url)
    try:
        yield listen
    finally:
        server.close()


def _cluster(agent: Agent, machine: Machine) -> Listener:
    """Tells an API server what was used, and which of its objects cannot be understood when that comes up."""
    told: frozenset[Problem] = frozenset()

    def listen(tick: Tick, news: News) -> None:
        nonlocal told
        if machine.remote is None:
            return
        found = frozenset(problem for problem in tick.problems if problem.object.startswith(_CLUSTER_OBJECTS))
        machine.remote.tell(sorted(found - told, key=str))
        told = found
        if agent.seen and not tick.woken:
            machine.remote.saw(agent.seen)

    return listen


@contextlib.contextmanager
def _view(machine: Machine, args: argparse.Namespace) -> Iterator[Listener]:
    if args.quiet:
        yield lambda tick, news: None
        return
    from koordlite.report.live import LiveView

    view = LiveView(title=machine.name)
    try:
        yield view.update
    finally:
        view.close()


def _write_report(history: History, folder: pathlib.Path, machine: Machine) -> None:
    from koordlite.report import html, json, text

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.json").write_bytes(json.encode(json.document(history)))
    (folder / "run.html").write_text(html.document(history, title=f"koordlite on {machine.name}"), encoding="utf-8")
    print(text.summary(history.summary()), end="")
    print(f"report: {folder / 'run.json'}\n        {folder / 'run.html'}")


def _settings_view(settings: Settings) -> dict[str, object]:
    sections = {name: dataclasses.asdict(section) for name, section in settings.strategies.items()}
    return {"agent": dataclasses.asdict(settings.agent), "strategies": sections}


def _environment(machine: Machine) -> dict[str, str]:
    layout = machine.host.cgroups.layout
    return {
        "machine": machine.name,
        "cgroups": f"v{layout.version}, {layout.driver} driver",
        "koordlite": __version__,
        "python": platform.python_version(),
    }
