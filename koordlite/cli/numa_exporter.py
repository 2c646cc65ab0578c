"""The NUMA exporter: a part of `koordlite run`, and `koordlite numa-exporter` alone."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from koordlite import threads
from koordlite.cli import machine as machines
from koordlite.cli.serving import Listener, News
from koordlite.clock import ended_by_signals
from koordlite.config import NumaExporter, Settings
from koordlite.host import sysfs
from koordlite.http.answers import Handler, Router, encoded, well
from koordlite.model.errors import ConfigError, InputError, Problem
from koordlite.model.topology import Topology
from koordlite.ports import Files
from koordlite.report import health
from koordlite.report.tick import UNSEEN, Tick
from koordlite.threads import Worker

if TYPE_CHECKING:
    from koordlite.http.server import Server
    from koordlite.model.picture.usage import NumaCounters
    from koordlite.report.metrics.numa import NumaMetrics
    from koordlite.report.night import NightLog
    from koordlite.report.web.numa_history import NumaHistory

LOG = logging.getLogger(__name__)
PORT = 9201
_ALONE_SECONDS = 5.0
"""Between two pictures of the exporter alone; the counters of the kernel are read with each scrape."""
_JOIN_SECONDS = 5.0


def numa_exporter(args: argparse.Namespace) -> int:
    """Serve until stopped. Nothing is decided and nothing is written."""
    from koordlite.report import log_format

    log_format.start(args.log_format or "text")
    stop = ended_by_signals()
    settings = _observing(machines.settings(args), args)
    if args.node_only:
        with served(machines.files(args), settings.numa_exporter, node=_node_name(settings)):
            stop.wait(args.seconds)
        return 0
    from koordlite.agent import Agent

    machine = machines.machine(args, settings, stop)
    with contextlib.closing(machine):
        machines.need_node(args, machine.cluster)
        name, period = _node_name(settings), settings.agent.interval_seconds
        with served(machine.host.files, settings.numa_exporter, node=name, period_seconds=period) as listen:
            Agent(machine.host, machine.cluster, settings).run(lambda tick: listen(tick, ()), seconds=args.seconds)
    return 0


def _observing(chosen: Settings, args: argparse.Namespace) -> Settings:
    """No strategy, no other server, nothing published or recorded."""
    from koordlite import config

    listen = args.listen or chosen.numa_exporter.listen or f":{PORT}"
    other_names = args.other_names or chosen.numa_exporter.other_names
    return msgspec.structs.replace(
        config.with_modes(chosen, "off", frozenset(chosen.strategies)),
        agent=dataclasses.replace(chosen.agent, interval_seconds=_ALONE_SECONDS, reaction="off"),
        publish=dataclasses.replace(chosen.publish, events=False, node_metric="off", numatopology="off"),
        numa_exporter=dataclasses.replace(chosen.numa_exporter, listen=listen, other_names=other_names),
    )


def _node_name(settings: Settings) -> str:
    """For series before the first picture; the Node's own name counts afterwards."""
    return settings.agent.node or os.environ.get("NODE_NAME", "") or socket.gethostname()


@contextlib.contextmanager
def of_agent(files: Files, settings: Settings) -> Iterator[Listener]:
    """The exporter beside an agent, where its settings name an address."""
    if not settings.numa_exporter.listen:
        yield lambda tick, news: None
        return
    from koordlite.report.night import NightLog

    with served(files, settings.numa_exporter, node=_node_name(settings), night=NightLog()) as listen:
        yield listen


@contextlib.contextmanager
def served(
    files: Files,
    settings: NumaExporter,
    *,
    node: str,
    period_seconds: float | None = None,
    night: NightLog | None = None,
) -> Iterator[Listener]:
    """Serve /metrics and the last hour to everyone; what is yielded takes each tick. ConfigError when that address
    cannot be had.

    `night`: of an agent, which decides; it is served as well. `period_seconds`: how often a tick is due, where no other
    server of this process says that none comes."""
    from koordlite.observe import numa
    from koordlite.report.metrics.numa import NumaMetrics
    from koordlite.report.web.numa_history import NumaHistory

    read = lambda topology: numa.counters(files, topology)  # noqa: E731
    topology, history, stop = _last_good(lambda: sysfs.topology(files)), NumaHistory(), threading.Event()
    metrics = NumaMetrics(read, topology, node=node)
    metrics.other_names = settings.other_names
    loop = Loop(period_seconds)
    server = _server(settings.listen, router(loop, metrics, history, night))

    def sample() -> None:
        _sample(history, lambda: numa.counters(files, topology()), stop, sampler.beat)

    sampler = Worker("NUMA history", sample)

    def listen(tick: Tick, news: News) -> None:
        loop.turned()
        if tick.snapshot is not UNSEEN:
            metrics.picture = tick.snapshot
        if night is not None:
            night.add(tick)

    with server.serving(LOG, "NUMA exporter: listening on %s"):
        sampler.start()
        try:
            yield listen
        finally:
            stop.set()
            sampler.join(_JOIN_SECONDS)


def _sample(
    history: NumaHistory, read: Callable[[], Sequence[NumaCounters]], stop: threading.Event, beat: Callable[[], None]
) -> None:
    """Until `stop`."""
    from koordlite.report.web.numa_history import EVERY_SECONDS

    while True:
        beat()
        history.add(time.monotonic(), time.time(), read())
        if stop.wait(EVERY_SECONDS):
            return


def _last_good(read: Callable[[], Topology]) -> Callable[[], Topology]:
    """The machine as it can be read; a reading that fails leaves the last one."""
    last = read()

    def topology() -> Topology:
        nonlocal last
        with contextlib.suppress(OSError, ValueError):
            last = read()
        return last

    return topology


class Loop:
    """The loop that takes pictures, for probes. `period_seconds`: how often a tick is due; None: nobody asks."""

    def __init__(self, period_seconds: float | None, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._period_seconds, self._now = period_seconds, monotonic
        self._last: float | None = None

    def turned(self) -> None:
        """A tick has ended."""
        self._last = self._now()

    @property
    def hung(self) -> str:
        """Why it does not turn; empty when it does."""
        if self._period_seconds is None:
            return ""
        age = None if self._last is None else self._now() - self._last
        return health.failing(health.alive(age_seconds=age, period_seconds=self._period_seconds))


def router(loop: Loop, metrics: NumaMetrics, history: NumaHistory, night: NightLog | None = None) -> Router:
    """Metrics, /history and /night for the pages of the cluster, and probes that hear of a loop that hangs."""
    pages: dict[str, Handler] = {
        "/history": lambda request: encoded(history.document(metrics.node)),
        "/healthz": lambda request: well(loop.hung or threads.unhealthy()),
    }
    if night is not None:
        pages["/night"] = lambda request: encoded(msgspec.to_builtins(night.night()))
    return Router(pages, ready=lambda: loop.hung, registry=metrics.registry)


def _server(listen: str, pages: Router) -> Server:
    from koordlite.http.server import Server

    address, _, port = listen.rpartition(":")
    if not (port.isascii() and port.isdigit()) or int(port) > 65535:
        do = "write ADDRESS:PORT, or :9201 for all addresses"
        raise InputError(Problem("numaExporter", "listen", listen, "there is no port", do))
    last: ConfigError | None = None
    # Without an address: IPv6, which takes IPv4 as well, and IPv4 alone where the machine has no IPv6.
    for each in (address.strip("[]"),) if address else ("::", "0.0.0.0"):
        try:
            return Server(each, int(port), pages.answer)
        except ConfigError as error:
            last = error
    why = last.problems[0].why if last else ""
    raise InputError(Problem("numaExporter", "listen", listen, why, "choose another address or port"))
