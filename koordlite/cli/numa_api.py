"""REST and monitoring page of NUMA nodes: in the extender's process, and `koordlite numa-api` alone."""

from __future__ import annotations

import argparse
import contextlib
import logging
import pathlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from koordlite.cli import scheduler_serving as serving
from koordlite.clock import ended_by_signals
from koordlite.http import local_token
from koordlite.model.errors import InputError, Problem
from koordlite.threads import Worker

if TYPE_CHECKING:
    from koordlite.kube.client.access import Api
    from koordlite.report.log_levels import LogLevels
    from koordlite.scheduler.cluster import Cluster

LOG = logging.getLogger("koordlite.scheduler")
_JOIN_SECONDS = 5.0


def run(args: argparse.Namespace) -> int:
    """Serve until stopped."""
    from koordlite.kube.client.access import connect
    from koordlite.scheduler.cluster import Cluster
    from koordlite.scheduler.judgement.nodes import JudgeSettings
    from koordlite.scheduler.watches import Watches

    levels = serving.start_log(args, flows=())
    stop = ended_by_signals()
    api = connect(args.kubeconfig, args.context, user_agent="koordlite-numa-api")
    settings = JudgeSettings(max_age_seconds=args.max_age, max_numa_nodes=args.max_numa_nodes)
    cluster = Cluster(settings, monotonic=time.monotonic)
    watches = Watches(api, cluster, monotonic=time.monotonic)
    with contextlib.ExitStack() as stack:
        token = stack.enter_context(local_token.kept(args.state_dir))
        not_ready = lambda: _not_ready(watches.age(), args.max_age)  # noqa: E731
        stack.enter_context(served(args, api, cluster, not_ready, token, levels=levels))
        watches.start()
        stack.callback(watches.stop)
        serving.settled(watches, stop)
        stop.wait()
    return 0


def _not_ready(age: float | None, most: float) -> str:
    if age is None:
        return "the cluster has not been listed yet"
    return f"what is known is older than {most:g} s; the API server does not answer" if age > most else ""


@contextlib.contextmanager
def served(
    args: argparse.Namespace,
    api: Api,
    cluster: Cluster,
    not_ready: Callable[[], str],
    token: str,
    *,
    levels: LogLevels | None = None,
) -> Iterator[None]:
    """Serve on the address for it, nothing without one. InputError when it is beyond loopback and not TLS: tokens would
    be sent in the clear."""
    from koordlite.http.certificate import Certificate
    from koordlite.http.guard import by_cluster
    from koordlite.http.local_token import is_loopback
    from koordlite.http.server import Server
    from koordlite.kube.client.prometheus import Prometheus
    from koordlite.scheduler.numa_api.charts import Agents
    from koordlite.scheduler.numa_api.rest import RestGuard
    from koordlite.scheduler.numa_api.service import NumaService
    from koordlite.scheduler.numa_api.switches import Switches

    if not args.numa_listen:
        yield
        return
    option = "--listen" if args.command == "numa-api" else "--numa-listen"
    address, port = serving.listen_address(args.numa_listen, option)
    exposed = not is_loopback(address)
    if exposed and not args.tls_cert_file:
        do = "listen on 127.0.0.1 and use kubectl port-forward, or give --tls-cert-file"
        why = "bearer tokens would be sent in the clear"
        raise InputError(Problem("command line", option, args.numa_listen, why, do))
    certificate = None
    if exposed:
        files = (args.tls_cert_file, args.tls_private_key_file)
        certificate = Certificate(*files, setting=("command line", "--tls-cert-file"))
    prometheus = None
    if args.prometheus_url:
        file = args.prometheus_token_file

        def bearer() -> str:
            return pathlib.Path(file).read_text(encoding="ascii").strip() if file else ""

        prometheus = Prometheus(args.prometheus_url, bearer, args.prometheus_ca_file)
    service = NumaService(
        cluster,
        wall=time.time,
        not_ready=not_ready,
        prometheus=prometheus,
        agents=Agents(api),
        switches=Switches(api),
        may_switch=args.allow_policy_changes,
        levels=levels,
    )
    guard = RestGuard(exposed=exposed, local_token=token, review=by_cluster(api, args.token_audience))
    server = Server(address, port, service.answer, change=service.put, guard=guard, certificate=certificate)
    stop = threading.Event()
    views = Worker("numa views", lambda: service.keep_ready(stop, views.beat))
    with server.serving(LOG, "NUMA page on %s/numa"):
        views.start()
        try:
            yield
        finally:
            stop.set()
            views.join(_JOIN_SECONDS)
