"""Servers of an agent: its own pages with the log of decisions, and the NUMA exporter, which also runs alone."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import itertools
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from koordlite import config, threads
from koordlite.cli import machine as machines
from koordlite.cli.machine import Machine
from koordlite.cli.options import URL_VARIABLE
from koordlite.clock import ended_by_signals
from koordlite.config import NumaExporter, Settings
from koordlite.host import sysfs
from koordlite.http import local_token
from koordlite.http.answers import JSON, TEXT, Answer, Handler, Request, Router, encoded, plain, well
from koordlite.model.errors import ConfigError, InputError, Problem
from koordlite.ports import Files
from koordlite.report import health
from koordlite.report.history import DecisionEvent
from koordlite.report.terminal.decision_log import DecisionLog, Levels
from koordlite.report.tick import UNSEEN, Tick
from koordlite.threads import Periodic

if TYPE_CHECKING:
    from koordlite.http.server import Server
    from koordlite.model.topology import Topology
    from koordlite.report.history import History, Remembered
    from koordlite.report.metrics.numa import NumaMetrics
    from koordlite.report.night import NightLog
    from koordlite.report.web.endpoints import Page
    from koordlite.report.web.numa_history import NumaHistory

LOG = logging.getLogger(__name__)
DEFAULT_PORT = ("command line", "--port")
"""Place where a port could be named that nothing has named yet."""
Changes = tuple[DecisionEvent, ...]
Listener = Callable[[Tick, Changes], None]
NUMA_PORT = 9201
_ALONE_SECONDS = 5.0
"""Time between two pictures of the exporter alone; the counters of the kernel are read with each scrape."""
_JOIN_SECONDS = 5.0


@contextlib.contextmanager
def served(
    machine: Machine,
    settings: Settings,
    history: History,
    *,
    folder: str,
    record: Path | None,
    port_from: tuple[str, str],
) -> Iterator[Listener]:
    """Log decisions, and serve them where that is wanted. `history` has a tick before it is served. `folder` is for the
    token; empty: there is none. `record` is the folder of the flight record, where one is kept. `port_from`: the file
    and setting, or the option, that named the port; an emulated node for which nothing did takes a free one where the
    default is taken."""
    levels = Levels(settings.strategies)
    log = DecisionLog(levels)
    if not settings.http.enable:
        yield log.write
        return
    from koordlite.http.certificate import Certificate
    from koordlite.http.guard import Guard, by_cluster
    from koordlite.http.server import Server
    from koordlite.report.metrics.collector import KubeletMetrics, Metrics
    from koordlite.report.web.endpoints import Endpoints

    http, remote = settings.http, machine.remote
    metrics = Metrics(started=time.time(), per_cpu=http.metrics_per_cpu, longer_psi=settings.metrics.container_psi)
    if remote:
        metrics.registry.register(KubeletMetrics(remote.kubelet_times.all))
    endpoints = Endpoints(
        period_seconds=settings.agent.interval_seconds,
        stale_seconds=settings.agent.stale_seconds,
        registry=metrics.registry,
        levels=levels,
        # Paths for commands beside this agent.
        folders={
            "machine": machine.name,
            "emulated": machine.sandbox is not None,
            "state": str(Path(settings.agent.state_dir).absolute()),
            "record": str(record.absolute()) if record else "",
        },
    )
    endpoints.add("/explain/numa-memory", _numa_memory(machine))

    def listen(tick: Tick, changes: Changes) -> None:
        log.write(tick, changes)
        metrics.observe_tick(tick)
        endpoints.publish(tick, history.remembered())

    with local_token.kept(folder, required=False) as token:
        at_port = functools.partial(
            Server,
            http.address,
            answer=endpoints.answer,
            change=endpoints.put,
            guard=Guard(
                exposed=not local_token.is_loopback(http.address),
                local_token=token,
                review=by_cluster(remote.api, http.token_audience) if remote else None,
                token_to_read=http.require_token,
            ),
            certificate=Certificate(http.tls_cert_file, http.tls_key_file) if http.tls_cert_file else None,
            in_clear="http.tlsCertFile",
            setting=port_from,
        )
        try:
            server = at_port(http.port)
        except ConfigError:
            if machine.sandbox is None or port_from != DEFAULT_PORT:
                raise
            server = at_port(0)
            ask = f"export {URL_VARIABLE}={server.url}"
            LOG.warning("port %d is taken, so this agent listens on %s: %s", http.port, server.url, ask)
        with server.serving(LOG):
            yield listen


def _numa_memory(machine: Machine) -> Page:
    """Pages of a pod by NUMA node, read when somebody asks: one question at a time, since it takes a second."""
    host, one = machine.host.for_another_thread(), threading.Lock()

    def page(request: Request, tick: Tick, _past: Remembered) -> Answer:
        from koordlite.observe import numa_pages
        from koordlite.report.explain import numa_memory

        pod, output = request.query.get("pod", ""), request.query.get("output", "text")
        if not pod or tick.snapshot is UNSEEN:
            return plain(400, "say which pod: /explain/numa-memory?pod=NAMESPACE/NAME")
        if not one.acquire(blocking=False):
            return plain(503, "another question about memory is being answered: ask again in a second")
        try:
            # The clock of an emulated node is moved by its agent alone.
            memory = numa_pages.of_pod(host, tick.snapshot, pod, wait=time.sleep)
        except ValueError as error:
            return plain(404, str(error))
        finally:
            one.release()
        return Answer(200, JSON if output == "json" else TEXT, numa_memory.answer(memory).show(output).encode())

    return page


def numa_exporter(args: argparse.Namespace) -> int:
    """Serve the NUMA exporter until stopped. Nothing is decided and nothing is written: no strategy, no other server,
    nothing published or recorded."""
    from koordlite.report import log_format

    log_format.start(args.log_format or "text")
    stop = ended_by_signals()
    base = machines.settings(args)
    listen = args.listen or base.numa_exporter.listen or f":{NUMA_PORT}"
    other_names = args.other_names or base.numa_exporter.other_names
    exporter = dataclasses.replace(base.numa_exporter, listen=listen, other_names=other_names)
    if args.node_only:
        with exported(machines.files(args), exporter, node=_node_name(base)):
            stop.wait(args.seconds)
        return 0
    from koordlite.agent import Agent

    settings = msgspec.structs.replace(
        config.with_modes(base, "off", frozenset(base.strategies)),
        agent=dataclasses.replace(base.agent, interval_seconds=_ALONE_SECONDS, reaction="off"),
        publish=dataclasses.replace(base.publish, events=False, node_metric="off", numatopology="off"),
        numa_exporter=exporter,
    )
    machine = machines.machine(args, settings, stop)
    with contextlib.closing(machine):
        machines.need_node(args, machine.cluster)
        with exported(machine.host.files, exporter, node=_node_name(settings), period_seconds=_ALONE_SECONDS) as tell:
            Agent(machine.host, machine.cluster, settings).run(lambda tick: tell(tick, ()), seconds=args.seconds)
    return 0


def _node_name(settings: Settings) -> str:
    """Name for series before the first picture; the Node's own name counts afterwards."""
    return settings.agent.node or os.environ.get("NODE_NAME", "") or socket.gethostname()


@contextlib.contextmanager
def exporter_of_agent(files: Files, settings: Settings) -> Iterator[Listener]:
    """The exporter beside an agent, where its settings name an address."""
    if not settings.numa_exporter.listen:
        yield lambda tick, changes: None
        return
    from koordlite.report.night import NightLog

    with exported(files, settings.numa_exporter, node=_node_name(settings), night=NightLog()) as listen:
        yield listen


@contextlib.contextmanager
def exported(
    files: Files,
    settings: NumaExporter,
    *,
    node: str,
    period_seconds: float | None = None,
    night: NightLog | None = None,
) -> Iterator[Listener]:
    """Serve /metrics and the last hour to everyone; what is yielded takes each tick. InputError when that address
    cannot be had.

    `night`: of an agent, which decides; it is served as well. `period_seconds`: how often a tick is due, where no other
    server of this process says that none comes."""
    from koordlite.observe import numa
    from koordlite.report.metrics.numa import NumaMetrics
    from koordlite.report.web.numa_history import EVERY_SECONDS, NumaHistory

    topology, history = sysfs.topology(files), NumaHistory()

    def present() -> Topology:
        """The machine as it can be read; a reading that fails leaves the last one."""
        nonlocal topology
        with contextlib.suppress(OSError, ValueError):
            topology = sysfs.topology(files)
        return topology

    metrics = NumaMetrics(lambda topology: numa.counters(files, topology), present, node=node)
    metrics.other_names = settings.other_names
    loop = Loop(period_seconds)
    server = exporter_listener(settings.listen, exporter_pages(loop, metrics, history, night))

    def sample() -> None:
        history.add(time.monotonic(), time.time(), numa.counters(files, present()))

    pauses = itertools.chain([0.0], itertools.repeat(EVERY_SECONDS))
    sampler = Periodic("NUMA history", sample, lambda: next(pauses))

    def listen(tick: Tick, changes: Changes) -> None:
        loop.turned()
        if tick.snapshot is not UNSEEN:
            metrics.snapshot = tick.snapshot
        if night is not None:
            night.add(tick)

    with server.serving(LOG, "NUMA exporter: listening on %s"):
        sampler.start()
        try:
            yield listen
        finally:
            sampler.stop(_JOIN_SECONDS)


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
        """Reason why it does not turn; empty when it does."""
        if self._period_seconds is None:
            return ""
        age = None if self._last is None else self._now() - self._last
        return health.failing(health.alive(age_seconds=age, period_seconds=self._period_seconds))


def exporter_pages(loop: Loop, metrics: NumaMetrics, history: NumaHistory, night: NightLog | None = None) -> Router:
    """Metrics, /history and /night for the pages of the cluster, and probes that hear of a loop that hangs."""
    pages: dict[str, Handler] = {
        "/history": lambda request: encoded(history.document(metrics.node)),
        "/healthz": lambda request: well(loop.hung or threads.unhealthy()),
    }
    if night is not None:
        pages["/night"] = lambda request: encoded(msgspec.to_builtins(night.night()))
    return Router(pages, ready=lambda: loop.hung, registry=metrics.registry)


def exporter_listener(listen: str, pages: Router) -> Server:
    """The listener of the exporter, where everyone may read."""
    from koordlite.http.server import Server, address_of

    setting, do = ("numaExporter", "listen"), "write ADDRESS:PORT, or :9201 for all addresses"
    address, port = address_of(listen, setting, why="there is no port", do=do)
    why = ""
    # Without an address: IPv6, which takes IPv4 as well, and IPv4 alone where the machine has no IPv6.
    for each in (address,) if address else ("::", "0.0.0.0"):
        try:
            return Server(each, port, pages.answer)
        except ConfigError as error:
            why = error.problems[0].why
    raise InputError(Problem(*setting, listen, why, "choose another address or port"))
