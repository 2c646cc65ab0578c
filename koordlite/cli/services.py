"""Services beside a kube-scheduler: the extender, the NUMA page with its REST interface, and the controller for
Reservations; each alone, or the others in the extender's process."""

from __future__ import annotations

import argparse
import contextlib
import logging
import math
import pathlib
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import msgspec

from koordlite.clock import ended_by_signals
from koordlite.http import local_token
from koordlite.model.errors import InputError, Problem, reason
from koordlite.threads import Periodic, Worker

if TYPE_CHECKING:
    from koordlite.http.certificate import Certificate
    from koordlite.http.server import Ask, Server
    from koordlite.kube.client.access import Api
    from koordlite.report.log_levels import LogLevels
    from koordlite.reservation.controller import Controller
    from koordlite.reservation.placeholder import PlaceholderSettings
    from koordlite.scheduler.cluster import Cluster
    from koordlite.scheduler.front import Front
    from koordlite.scheduler.judgement.load import LoadAwareSchedulingArgs
    from koordlite.scheduler.judgement.nodes import JudgeSettings
    from koordlite.scheduler.service import Service
    from koordlite.scheduler.watches import Watches

LOG = logging.getLogger("koordlite.scheduler")
CONNECTIONS = 128
"""A scheduler binds up to twenty pods at a time, each over a connection of its own."""
IDLE_SECONDS = 120.0
MOST_BYTES = 10 << 20
"""Longest body that is read. 5,000 whole Node objects are 13 MiB: a scheduler of so many has to send names."""
BODIES = 3
"""Bodies of the longest kind that are read and answered at one time; all that are shorter fit beside each other."""
LEASE = "koordlite-reservation-controller"
WARM_SECONDS = 0.05
VIEW_SECONDS = 5.0
_JOIN_SECONDS = 5.0


def extender(args: argparse.Namespace) -> int:
    """Serve the extender until it is stopped. 1 when its reservation controller ended by itself."""
    _address(args.listen, "--listen")  # A mistake there is said before anything is opened.
    if args.replicas > 1:
        return _front(args)
    from koordlite.kube.client.access import connect
    from koordlite.kube.publish.events import Events
    from koordlite.reservation.controller import ReservationMetrics
    from koordlite.scheduler.cluster import Cluster
    from koordlite.scheduler.extender import Extender
    from koordlite.scheduler.loads import Loads
    from koordlite.scheduler.promises import ApiBinder, Promises
    from koordlite.scheduler.retries import Retries
    from koordlite.scheduler.service import Service
    from koordlite.scheduler.watches import Watches

    levels, stop = _start_log(args), ended_by_signals()
    channel = _Channel(stop) if args.behind_front else None
    api = connect(args.kubeconfig, args.context, user_agent="koordlite-scheduler-extender")
    cluster = Cluster(_judge_settings(args), monotonic=time.monotonic)
    loads = Loads(load_aware(args.load_aware), wall=time.time, faults=cluster.faults) if args.load_aware else None
    watches = Watches(
        api, cluster, monotonic=time.monotonic, with_reservations=True, with_crane=args.crane, loads=loads
    )
    binder = ApiBinder(api)
    judge = Extender(cluster, wall=time.time, binder=binder, age=watches.age, loads=loads)
    events = Events.of_process(api, "koordlite.io/scheduler-extender")
    promises = Promises(judge, binder, follows_resizes=args.follow_resizes, tell=events.tell)
    retries = Retries(judge, binder.annotate, wall=time.time)
    warmth = Periodic("warmth", judge.warm, lambda: WARM_SECONDS)

    def states() -> list[dict[str, object]]:
        return [
            {"name": s.name, "objects": s.objects, "ageSeconds": s.age_seconds, "error": s.error, "absent": s.absent}
            for s in watches.states()
        ]

    with contextlib.ExitStack() as stack:
        service = Service(judge, levels, watches=states, promises=promises, retries=retries)
        token = stack.enter_context(local_token.kept(args.state_dir))
        server = extender_listener(args, service, token, channel)
        stack.enter_context(server.serving(LOG))
        if channel is not None:
            channel.say(server.port)
        stack.enter_context(_health(args, api, service.probes))
        stack.enter_context(numa_page(args, api, cluster, judge.not_ready, token))
        watches.start()
        stack.callback(watches.stop)
        _settle(watches, stop)
        for worker in (warmth, *([events] if args.follow_resizes else ()), promises.worker, retries.worker):
            worker.start()
            stack.callback(worker.stop)
        if not args.reservation_controller:
            stop.wait()
            return 0
        controller = stack.enter_context(_controlling(args, api, cluster))
        service.metrics.registry.register(ReservationMetrics(controller))
        return _while_alive(controller, stop)


def _front(args: argparse.Namespace) -> int:
    """Pass questions on to several extenders until it is stopped."""
    from koordlite.kube.client.access import connect
    from koordlite.scheduler.front import Front

    _, stop = _start_log(args), ended_by_signals()
    # Credentials that cannot be used are an error here, and not one of every replica for ever.
    api = connect(args.kubeconfig, args.context, user_agent="koordlite-scheduler-extender")
    if args.load_aware:
        load_aware(args.load_aware)
    # A replica has these options, but the listeners are the front's. The NUMA page is served by one.
    own = ["--behind-front", "--replicas=1", "--listen=127.0.0.1:0", "--health-listen=", "--state-dir="]
    own += ["--tls-cert-file=", "--client-ca-file="]
    replica = [sys.executable, "-m", "koordlite", *sys.argv[1:], *own]
    front = Front([[*replica, *(["--numa-listen="] if number else [])] for number in range(args.replicas)])
    with contextlib.ExitStack() as stack:
        token = stack.enter_context(local_token.kept(args.state_dir))
        server = extender_listener(args, front, token)
        front.start()
        stack.callback(front.stop)
        stack.enter_context(server.serving(LOG))
        stack.enter_context(_health(args, api, front.probes))
        stop.wait()
    return 0


class _Channel:
    """A replica's connection to its front: it brings the token that the front shows, and its end ends the replica."""

    def __init__(self, stop: threading.Event) -> None:
        self._socket = socket.socket(fileno=sys.stdin.fileno())
        self.token = self._socket.makefile("r").readline().strip()
        self._thread = Worker("front", lambda: self._wait(stop))
        self._thread.start()

    def say(self, port: int) -> None:
        """Tell the front where to ask."""
        self._socket.sendall(f"{port}\n".encode())

    def _wait(self, stop: threading.Event) -> None:
        self._thread.beat(math.inf)
        with contextlib.suppress(OSError):
            while self._socket.recv(64):
                pass
        stop.set()


def extender_listener(
    args: argparse.Namespace, service: Service | Front, token: str, channel: _Channel | None = None
) -> Server:
    """The listener for the scheduler: on loopback everybody on this machine may ask, from elsewhere who shows a
    certificate, and behind a front the front alone."""
    from koordlite.http.connections import Limits
    from koordlite.http.guard import Guard
    from koordlite.http.server import Server

    address, port = _address(args.listen, "--listen")
    certificate = _certificate(args, args.client_ca_file) if args.tls_cert_file else None
    do = "listen on 127.0.0.1 beside the scheduler, or give --tls-cert-file and --client-ca-file"
    why = "other machines could ask here without showing who they are"
    return Server(
        address,
        port,
        service.answer,
        change=service.put,
        post=service.post,
        guard=Guard(
            exposed=not local_token.is_loopback(address),
            local_token=token if channel is None else channel.token,
            token_to_read=channel is not None,
            token_to_post=channel is not None,
            clients=frozenset(args.client_name) if args.client_ca_file else None,
        ),
        certificate=certificate,
        in_clear=Problem("command line", "--listen", args.listen, why, do),
        limits=Limits(
            CONNECTIONS,
            CONNECTIONS,
            body_bytes=MOST_BYTES,
            idle_seconds=IDLE_SECONDS,
            all_body_bytes=BODIES * MOST_BYTES,
            certified=certificate is not None and certificate.asks_clients,
        ),
    )


def load_aware(file: str) -> LoadAwareSchedulingArgs:
    """The arguments in the file; InputError with all of its mistakes."""
    from koordlite.model.reading import strict
    from koordlite.scheduler.judgement.load import LoadAwareSchedulingArgs

    try:
        text = pathlib.Path(file).read_text()
    except (OSError, UnicodeDecodeError) as error:
        do = "name a file with LoadAwareSchedulingArgs"
        raise InputError(Problem("command line", "--load-aware", file, reason(error), do)) from error
    arguments = strict.load(text, LoadAwareSchedulingArgs, file)
    if problems := arguments.problems(file):
        raise InputError(problems)
    return arguments


def _judge_settings(args: argparse.Namespace) -> JudgeSettings:
    from koordlite.scheduler.judgement.nodes import JudgeSettings

    settings = JudgeSettings(
        strategy=args.strategy,
        cache=args.cache,
        foreign_pods=args.foreign_pods,
        check_restricted=not args.skip_restricted,
        max_age_seconds=args.max_age,
        max_numa_nodes=args.max_numa_nodes,
    )
    return msgspec.structs.replace(settings, profiles=frozenset(args.profile)) if args.profile else settings


def numa_api(args: argparse.Namespace) -> int:
    """Serve the NUMA page until stopped."""
    from koordlite.kube.client.access import connect
    from koordlite.scheduler.cluster import Cluster
    from koordlite.scheduler.judgement.nodes import JudgeSettings
    from koordlite.scheduler.watches import Watches

    levels = _start_log(args, has_flows=False)
    stop = ended_by_signals()
    api = connect(args.kubeconfig, args.context, user_agent="koordlite-numa-api")
    settings = JudgeSettings(max_age_seconds=args.max_age, max_numa_nodes=args.max_numa_nodes)
    cluster = Cluster(settings, monotonic=time.monotonic)
    watches = Watches(api, cluster, monotonic=time.monotonic)

    def not_ready() -> str:
        age = watches.age()
        if age is None:
            return "the cluster has not been listed yet"
        late = f"what is known is older than {args.max_age:g} s; the API server does not answer"
        return late if age > args.max_age else ""

    with contextlib.ExitStack() as stack:
        token = stack.enter_context(local_token.kept(args.state_dir))
        stack.enter_context(numa_page(args, api, cluster, not_ready, token, levels=levels))
        watches.start()
        stack.callback(watches.stop)
        _settle(watches, stop)
        stop.wait()
    return 0


@contextlib.contextmanager
def numa_page(
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
    if not args.numa_listen:
        yield
        return
    from koordlite.http.guard import by_cluster
    from koordlite.http.server import Server
    from koordlite.kube.client.prometheus import Prometheus
    from koordlite.scheduler.numa_api.charts import Agents
    from koordlite.scheduler.numa_api.rest import RestGuard
    from koordlite.scheduler.numa_api.service import NumaService
    from koordlite.scheduler.numa_api.switches import Switches

    option = "--listen" if args.command == "numa-api" else "--numa-listen"
    address, port = _address(args.numa_listen, option)
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
    do = "listen on 127.0.0.1 and use kubectl port-forward, or give --tls-cert-file"
    server = Server(
        address,
        port,
        service.answer,
        change=service.put,
        guard=RestGuard(
            exposed=not local_token.is_loopback(address),
            local_token=token,
            review=by_cluster(api, args.token_audience),
        ),
        certificate=_certificate(args) if args.tls_cert_file and not local_token.is_loopback(address) else None,
        in_clear=Problem("command line", option, args.numa_listen, "bearer tokens would be sent in the clear", do),
    )
    # Nodes that have changed are worked out before anybody asks: no page has to wait for a thousand of them.
    views = Periodic("numa views", service.nodes, lambda: VIEW_SECONDS)
    with server.serving(LOG, "NUMA page on %s/numa"):
        views.start()
        try:
            yield
        finally:
            views.stop(_JOIN_SECONDS)


def reservation_controller(args: argparse.Namespace) -> int:
    """Work until stopped. 1 when the controller ended by itself: faults that stay."""
    from koordlite.kube.client.access import connect
    from koordlite.reservation.controller import Service

    _start_log(args)
    stop = ended_by_signals()
    api = connect(args.kubeconfig, args.context, user_agent="koordlite-reservation-controller")
    with _controlling(args, api) as controller, _health(args, api, Service(controller).answer):
        return _while_alive(controller, stop)


@contextlib.contextmanager
def _controlling(args: argparse.Namespace, api: Api, cluster: Cluster | None = None) -> Iterator[Controller]:
    """The controller at work, beside whatever else this process does; it writes while it holds the lease. `cluster`:
    what an extender in this process knows of NUMA nodes; without it the controller keeps its own."""
    from koordlite.kube.client.lease import Candidate, Election, LeaseSettings
    from koordlite.kube.publish.events import Events
    from koordlite.reservation.controller import Controller
    from koordlite.scheduler.cluster import Cluster
    from koordlite.scheduler.judgement.nodes import JudgeSettings

    # Whoever waits for a Reservation waits for the takeover, too: five seconds, at two requests a second.
    lease = LeaseSettings(
        namespace=args.lease_namespace,
        name=LEASE,
        identity=f"{socket.gethostname()}_{secrets.token_hex(8)}",
        duration_seconds=3,
        renew_seconds=2.0,
        retry_seconds=0.5,
    )
    candidate = Candidate(api, lease, monotonic=time.monotonic, wall=time.time)
    events = Events.of_process(api, "koordlite.io/reservation-controller")
    controller = Controller(
        api,
        placeholder_settings(args),
        leads=candidate.is_leader,
        tell=events.tell,
        judge=cluster or Cluster(JudgeSettings(), monotonic=time.monotonic),
        feeds_judge=cluster is None,
    )
    election = Election(candidate, gained=controller.gained, lost=controller.lost)
    with contextlib.ExitStack() as stack:
        for worker in (events, election, controller):
            worker.start()
            stack.callback(worker.stop)
        yield controller


def placeholder_settings(args: argparse.Namespace) -> PlaceholderSettings:
    """Inputs of the controller's placeholders."""
    from koordlite.reservation.placeholder import PlaceholderSettings

    guarded = {"guarded": frozenset(args.guarded_scheduler)} if args.guarded_scheduler else {}
    return PlaceholderSettings(
        image=args.placeholder_image,
        priority_class=args.placeholder_priority_class,
        scheduler=args.placeholder_scheduler,
        namespaces=frozenset(args.placeholder_namespace),
        **guarded,
    )


def _while_alive(controller: Controller, stop: threading.Event) -> int:
    """Wait until stopped; 1 when the controller has ended by itself."""
    while not stop.wait(1.0):
        if not controller.is_alive:
            return 1
    return 0


def _settle(watches: Watches, stop: threading.Event) -> None:
    """Wait until everything was listed."""
    from koordlite.scheduler.service import settle_memory

    while not stop.is_set() and watches.age() is None:
        stop.wait(0.05)
    settle_memory()
    LOG.info("ready")


@contextlib.contextmanager
def _health(args: argparse.Namespace, api: Api, answer: Ask) -> Iterator[None]:
    """A listener of its own for probes, which come from outside the pod, and for Prometheus, where one is asked for."""
    if not args.health_listen:
        yield
        return
    from koordlite.http.guard import Guard, by_cluster
    from koordlite.http.server import Server

    address, port = _address(args.health_listen, "--health-listen")
    guard = Guard(exposed=not local_token.is_loopback(address), review=by_cluster(api, args.token_audience))
    with Server(address, port, answer, guard=guard).serving(LOG, "health on %s"):
        yield


def _address(text: str, option: str) -> tuple[str, int]:
    """Address and port in the value of `option`; InputError without either."""
    from koordlite.http.server import address_of

    do = "write it like 127.0.0.1:9318, or [::1]:9318"
    where = ("command line", option)
    return address_of(text, where, why="no address with a port", do=do, everywhere=False)


def _certificate(args: argparse.Namespace, client_ca_file: str = "") -> Certificate:
    from koordlite.http.certificate import Certificate

    files, setting = (args.tls_cert_file, args.tls_private_key_file), ("command line", "--tls-cert-file")
    return Certificate(*files, setting=setting, client_ca_file=client_ca_file)


def _start_log(args: argparse.Namespace, *, has_flows: bool = True) -> LogLevels:
    """Log to standard error as the options say."""
    from koordlite.report import log_format
    from koordlite.report.log_levels import EXTENDER_FLOWS, LogLevels

    levels = LogLevels(now=time.monotonic, default=args.log_level, flows=EXTENDER_FLOWS if has_flows else ())
    log_format.start(args.log_format, logging.INFO, levels)
    return levels
