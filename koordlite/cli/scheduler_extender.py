"""`koordlite scheduler-extender`: the extender as a service."""

from __future__ import annotations

import argparse
import contextlib
import logging
import math
import pathlib
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from koordlite.cli import numa_api, reservation_controller
from koordlite.cli.scheduler_serving import health, listen_address, settled, start_log
from koordlite.clock import ended_by_signals
from koordlite.http import local_token
from koordlite.model.errors import InputError, Problem, reason
from koordlite.threads import Worker

if TYPE_CHECKING:
    from koordlite.http.certificate import Certificate
    from koordlite.http.guard import Guard
    from koordlite.http.server import Server
    from koordlite.scheduler.front import Front
    from koordlite.scheduler.judgement.load import LoadAwareSchedulingArgs
    from koordlite.scheduler.judgement.nodes import JudgeSettings
    from koordlite.scheduler.service import Service
    from koordlite.scheduler.watches import Watches

LOG = logging.getLogger("koordlite.scheduler")
CONNECTIONS = 128
"""A scheduler binds up to twenty pods at a time, each over a connection of its own."""
IDLE_SECONDS = 120.0
BODIES = 3
"""Bodies of the longest kind that are read and answered at one time; all that are shorter fit beside each other."""


def run(args: argparse.Namespace) -> int:
    """Serve until it is stopped."""
    if args.replicas > 1:
        return _run_front(args)
    from koordlite.kube.client.access import connect
    from koordlite.kube.publish.events import Events
    from koordlite.reservation.controller import ReservationMetrics
    from koordlite.scheduler.cluster import Cluster
    from koordlite.scheduler.extender import Extender
    from koordlite.scheduler.loads import Loads
    from koordlite.scheduler.promises import ApiBinder, Promises
    from koordlite.scheduler.service import Service, Warmth
    from koordlite.scheduler.watches import Watches

    address, port = listen_address(args.listen, "--listen")
    levels, stop = start_log(args), ended_by_signals()
    front = _Channel(stop) if args.behind_front else None
    guard, certificate = _guarded(args, address) if front is None else (front.guard, None)
    api = connect(args.kubeconfig, args.context, user_agent="koordlite-scheduler-extender")
    cluster = Cluster(_settings(args), monotonic=time.monotonic)
    loads = Loads(load_aware(args.load_aware), wall=time.time, faults=cluster.faults) if args.load_aware else None
    watches = Watches(
        api, cluster, monotonic=time.monotonic, with_reservations=True, with_crane=args.crane, loads=loads
    )
    binder = ApiBinder(api)
    extender = Extender(cluster, wall=time.time, binder=binder, age=watches.age, loads=loads)
    events = Events.of_process(api, "koordlite.io/scheduler-extender")
    promises = Promises(extender, binder, follows_resizes=args.follow_resizes, tell=events.tell)
    warmth = Warmth(extender)
    with contextlib.ExitStack() as stack:
        service = Service(extender, levels, watches=lambda: _states(watches), promises=promises)
        token = stack.enter_context(local_token.kept(args.state_dir))
        server = _server(address, port, service, guard(token), certificate)
        stack.enter_context(server.serving(LOG))
        if front is not None:
            front.say(server.port)
        stack.enter_context(health(args, api, service.probes))
        stack.enter_context(numa_api.served(args, api, cluster, extender.not_ready, token))
        watches.start()
        stack.callback(watches.stop)
        settled(watches, stop)
        for worker in (warmth, *([events] if args.follow_resizes else ()), promises):
            worker.start()
            stack.callback(worker.stop)
        if not args.reservation_controller:
            stop.wait()
            return 0
        controller = stack.enter_context(reservation_controller.controlling(args, api, cluster))
        service.metrics.registry.register(ReservationMetrics(controller))
        while not stop.wait(1.0):
            if not controller.is_alive:
                return 1
    return 0


def _run_front(args: argparse.Namespace) -> int:
    """Pass questions on to several extenders until it is stopped."""
    from koordlite.kube.client.access import connect
    from koordlite.scheduler.front import Front

    address, port = listen_address(args.listen, "--listen")
    guard, certificate = _guarded(args, address)
    _, stop = start_log(args), ended_by_signals()
    # Credentials that cannot be used are an error here, and not one of every replica for ever.
    api = connect(args.kubeconfig, args.context, user_agent="koordlite-scheduler-extender")
    if args.load_aware:
        load_aware(args.load_aware)
    front = Front([_behind(args, number) for number in range(args.replicas)])
    with contextlib.ExitStack() as stack:
        token = stack.enter_context(local_token.kept(args.state_dir))
        server = _server(address, port, front, guard(token), certificate)
        front.start()
        stack.callback(front.stop)
        stack.enter_context(server.serving(LOG))
        stack.enter_context(health(args, api, front.probes))
        stop.wait()
    return 0


def _behind(args: argparse.Namespace, number: int) -> list[str]:
    """The command of a replica: these options, but the listeners are the front's. The NUMA page is served by one."""
    own = ["--behind-front", "--replicas=1", "--listen=127.0.0.1:0", "--health-listen=", "--state-dir="]
    own += ["--tls-cert-file=", "--client-ca-file=", *(["--numa-listen="] if number else [])]
    return [sys.executable, "-m", "koordlite", *sys.argv[1:], *own]


class _Channel:
    """A replica's connection to its front: it brings the token that the front shows, and its end ends the replica."""

    def __init__(self, stop: threading.Event) -> None:
        self._socket = socket.socket(fileno=sys.stdin.fileno())
        self._token = self._socket.makefile("r").readline().strip()
        self._thread = Worker("front", lambda: self._wait(stop))
        self._thread.start()

    def guard(self, token: str) -> Guard:
        """Only the front may ask."""
        from koordlite.http.guard import Guard

        del token
        return Guard(exposed=False, local_token=self._token, token_to_read=True, token_to_post=True)

    def say(self, port: int) -> None:
        """Tell the front where to ask."""
        self._socket.sendall(f"{port}\n".encode())

    def _wait(self, stop: threading.Event) -> None:
        self._thread.beat(math.inf)
        with contextlib.suppress(OSError):
            while self._socket.recv(64):
                pass
        stop.set()


def load_aware(file: str) -> LoadAwareSchedulingArgs:
    """The arguments in the file; InputError with all of its mistakes."""
    from koordlite.model.reading import strict
    from koordlite.scheduler.judgement.load import LoadAwareSchedulingArgs

    try:
        text = pathlib.Path(file).read_text()
    except (OSError, UnicodeDecodeError) as error:
        do = "name a file with LoadAwareSchedulingArgs"
        raise InputError(Problem("command line", "--load-aware", file, reason(error), do)) from error
    read = strict.load(text, LoadAwareSchedulingArgs, file)
    if problems := read.problems(file):
        raise InputError(problems)
    return read


def _settings(args: argparse.Namespace) -> JudgeSettings:
    from koordlite.scheduler.judgement.nodes import JudgeSettings

    given = JudgeSettings(
        strategy=args.strategy,
        cache=args.cache,
        foreign_pods=args.foreign_pods,
        check_restricted=not args.skip_restricted,
        max_age_seconds=args.max_age,
        max_numa_nodes=args.max_numa_nodes,
    )
    return msgspec.structs.replace(given, profiles=frozenset(args.profile)) if args.profile else given


def _guarded(args: argparse.Namespace, address: str) -> tuple[Callable[[str], Guard], Certificate | None]:
    """Permission to ask: on loopback everybody on this machine, from elsewhere who shows a certificate."""
    from koordlite.http.certificate import Certificate
    from koordlite.http.guard import Guard
    from koordlite.http.local_token import is_loopback

    exposed = not is_loopback(address)
    if exposed and not (args.tls_cert_file and args.client_ca_file):
        do = "listen on 127.0.0.1 beside the scheduler, or give --tls-cert-file and --client-ca-file"
        why = "other machines could ask here without showing who they are"
        raise InputError(Problem("command line", "--listen", args.listen, why, do))
    certificate = None
    if args.tls_cert_file:
        setting = ("command line", "--tls-cert-file")
        files = (args.tls_cert_file, args.tls_private_key_file)
        certificate = Certificate(*files, setting=setting, client_ca_file=args.client_ca_file)
    clients = frozenset(args.client_name) if args.client_ca_file else None
    return lambda token: Guard(exposed=exposed, local_token=token, clients=clients), certificate


def _server(address: str, port: int, service: Service | Front, guard: Guard, certificate: Certificate | None) -> Server:
    from koordlite.http.connections import Limits
    from koordlite.http.server import Server
    from koordlite.scheduler.protocol import MOST_BYTES

    limits = Limits(
        CONNECTIONS,
        CONNECTIONS,
        body_bytes=MOST_BYTES,
        idle_seconds=IDLE_SECONDS,
        all_body_bytes=BODIES * MOST_BYTES,
        certified=certificate is not None and certificate.asks_clients,
    )
    return Server(
        address,
        port,
        service.answer,
        change=service.put,
        post=service.post,
        guard=guard,
        certificate=certificate,
        limits=limits,
    )


def _states(watches: Watches) -> list[dict[str, Any]]:
    return [
        {"name": s.name, "objects": s.objects, "ageSeconds": s.age_seconds, "error": s.error, "absent": s.absent}
        for s in watches.states()
    ]
