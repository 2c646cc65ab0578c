"""The agent's HTTP server for `koordlite run`: what it answers from, who may ask, and the log of decisions."""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from koordlite.cli.asking import URL_VARIABLE
from koordlite.cli.machine import Machine
from koordlite.config import Http, Settings
from koordlite.http import local_token
from koordlite.http.answers import JSON, TEXT, Answer, Request, plain
from koordlite.kube.cluster import KubeCluster
from koordlite.model.errors import ConfigError
from koordlite.report.history import DecisionEvent
from koordlite.report.terminal.decision_log import DecisionLog, Levels
from koordlite.report.tick import UNSEEN, Tick

if TYPE_CHECKING:
    from koordlite.http.certificate import Certificate
    from koordlite.http.guard import Guard
    from koordlite.report.history import Remembered
    from koordlite.report.metrics.collector import Metrics
    from koordlite.report.web.endpoints import Page

LOG = logging.getLogger(__name__)
DEFAULT_PORT = ("command line", "--port")
"""Where a port is named that nothing has named yet."""
News = tuple[DecisionEvent, ...]
Listener = Callable[[Tick, News], None]


@contextlib.contextmanager
def served(
    machine: Machine, settings: Settings, *, folder: str, record: Path | None, port_from: tuple[str, str]
) -> Iterator[Listener]:
    """Log decisions, and serve them where that is wanted. `folder` is for the token; empty: there is none. `record` is
    the folder of the flight record, where one is kept. `port_from`: the file and setting, or the option, that named the
    port; an emulated node for which nothing did takes a free one where the default is taken."""
    levels = Levels(settings.strategies)
    log = DecisionLog(levels)
    with contextlib.ExitStack() as stack:
        publish: Listener | None = None
        if settings.http.enable:
            folders = _folders(machine, settings, record)
            publish = stack.enter_context(
                _server(machine, settings, levels, folder=folder, folders=folders, port_from=port_from)
            )

        def listen(tick: Tick, news: News) -> None:
            log.write(tick, news)
            if publish:
                publish(tick, news)

        yield listen


@contextlib.contextmanager
def _server(
    machine: Machine,
    settings: Settings,
    levels: Levels,
    *,
    folder: str,
    folders: dict[str, str | bool],
    port_from: tuple[str, str],
) -> Iterator[Listener]:
    from koordlite.http.server import Server
    from koordlite.report.history import Past
    from koordlite.report.web.endpoints import Endpoints

    metrics = _metrics(machine.remote, settings)
    endpoints = Endpoints(
        period_seconds=settings.agent.interval_seconds,
        stale_seconds=settings.agent.stale_seconds,
        registry=metrics.registry,
        levels=levels,
        folders=folders,
    )
    endpoints.add("/explain/numa-memory", _numa_memory(machine))
    with local_token.kept(folder, required=False) as token:
        http = settings.http
        listen = functools.partial(
            Server,
            http.address,
            answer=endpoints.answer,
            change=endpoints.put,
            guard=_guard(http, token, machine.remote),
            certificate=_certificate(http),
            setting=port_from,
        )
        try:
            server = listen(http.port)
        except ConfigError:
            if machine.sandbox is None or port_from != DEFAULT_PORT:
                raise
            server = listen(0)
            ask = f"export {URL_VARIABLE}={server.url}"
            LOG.warning("port %d is taken, so this agent listens on %s: %s", http.port, server.url, ask)
        past = Past()

        def publish(tick: Tick, news: News) -> None:
            past.add(tick, news)
            metrics.observe_tick(tick)
            endpoints.publish(tick, past.remembered())

        with server.serving(LOG):
            yield publish


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


def _folders(machine: Machine, settings: Settings, record: Path | None) -> dict[str, str | bool]:
    """Paths for commands beside this agent."""
    return {
        "machine": machine.name,
        "emulated": machine.sandbox is not None,
        "state": str(Path(settings.agent.state_dir).absolute()),
        "record": str(record.absolute()) if record else "",
    }


def _metrics(remote: KubeCluster | None, settings: Settings) -> Metrics:
    from koordlite.report.metrics.collector import Metrics
    from koordlite.report.metrics.events import KubeletMetrics

    per_cpu, longer_psi = settings.http.metrics_per_cpu, settings.metrics.container_psi
    metrics = Metrics(started=time.time(), per_cpu=per_cpu, longer_psi=longer_psi)
    if remote:
        metrics.registry.register(KubeletMetrics(remote.kubelet_times.all))
    return metrics


def _guard(http: Http, token: str, remote: KubeCluster | None) -> Guard:
    from koordlite.http.guard import Guard, by_cluster
    from koordlite.http.local_token import is_loopback

    exposed = not is_loopback(http.address)
    if exposed and not http.tls_cert_file:
        LOG.warning("tokens are sent to %s in the clear: name a certificate with http.tlsCertFile", http.address)
    review = by_cluster(remote.api, http.token_audience) if remote else None
    return Guard(exposed=exposed, local_token=token, review=review, token_to_read=http.require_token)


def _certificate(http: Http) -> Certificate | None:
    from koordlite.http.certificate import Certificate

    return Certificate(http.tls_cert_file, http.tls_key_file) if http.tls_cert_file else None
