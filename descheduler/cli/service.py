"""`descheduler run` at work: one cycle, or one after the other until stopped, with all that listens to them."""

from __future__ import annotations

import argparse
import contextlib
import logging
import pathlib
import secrets
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from descheduler.cli import run as options
from descheduler.cli import source
from descheduler.cli.run import LEASE, LISTEN, lease_option
from descheduler.cli.source import PictureSource
from descheduler.evictors.executor import LeaderApi, PlanExecutor, waiting
from descheduler.history.configmap import ConfigMapStore
from descheduler.history.past_evictions import CycleMemory
from descheduler.policy import reader
from descheduler.policy.koordinator import LeaderElection
from descheduler.policy.watched_file import PolicyFile
from descheduler.serve import events
from descheduler.serve import report_folder as folder
from descheduler.serve.log import CycleLog, JobLog
from descheduler.serve.loop import CycleResult, Loop, Tell
from koordlite.clock import RealClock, SignalEvent
from koordlite.fault_guard import FaultGuard
from koordlite.kube.client.access import Api
from koordlite.kube.client.lease import Candidate, Election, LeaseSettings
from koordlite.kube.publish.events import Events
from koordlite.model import duration
from koordlite.model.errors import ConfigError, InputError, Problem, refusing
from koordlite.report import log_format
from koordlite.report.log_format import Fields
from koordlite.report.log_levels import LogLevels

if TYPE_CHECKING:
    from descheduler.serve.endpoints import Endpoints
    from koordlite.http.certificate import Certificate, SelfSigned
    from koordlite.http.server import Server

LOG = logging.getLogger("descheduler")
FAILED = 1
"""Exit code of a single cycle that came to no plan."""


class Wakeable:
    """Waits that a stop ends for good, and a request to reload ends early."""

    def __init__(self) -> None:
        self.stop = SignalEvent()
        self._woken = SignalEvent()

    def listen(self) -> None:
        """Take SIGTERM and SIGINT for a stop, and SIGHUP for a request to reload: the policy, and so a cycle at
        once."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: self.end())
        signal.signal(signal.SIGHUP, lambda *_: self.wake())

    def end(self) -> None:
        """Stop."""
        self.stop.set()
        self._woken.set()

    def wake(self) -> None:
        """End the wait that is, or the next one."""
        self._woken.set()

    def wait(self, seconds: float) -> bool:
        """Pass so many seconds, or fewer; True when it is time to stop."""
        self._woken.wait(seconds)
        self._woken.clear()
        return self.stop.is_set()


def run(args: argparse.Namespace) -> int:
    """Cycles until stopped; 0, or 1 when the only cycle failed."""
    policy = PolicyFile(args.policy, args.state_dir)
    interval_option = duration.of_option(args.descheduling_interval, "--descheduling-interval")
    schedule = policy.schedule
    if interval_option and schedule:
        why, do = "the policy has a schedule", "leave one of them out"
        raise InputError(Problem("command line", "--descheduling-interval", args.descheduling_interval, why, do))
    gap = schedule.longest_gap(RealClock().wall()) if schedule else 0.0
    interval = interval_option or policy.interval_seconds or gap
    _check(args, interval)
    levels = _start_log(args)
    wakeable = Wakeable()
    wakeable.listen()
    pictures = PictureSource(
        args, kubeconfig=reader.kubeconfig(policy.document), repeated=bool(interval), watch=args.watch == "auto"
    )
    for notice in policy.notices:
        LOG.warning("%s", Fields(event="policy", result="note", text=str(notice)))
    with contextlib.ExitStack() as stack:
        stack.callback(pictures.close)
        leads = stack.enter_context(_elected(args, pictures, wakeable, policy, interval))
        evict = stack.enter_context(_evictor(args, pictures, wakeable, leads, policy, single=not interval))
        # What cycles remember is on the cluster when pods are evicted, else it lasts as long as this process.
        api = pictures.api if args.dry_run == "false" else None
        store = ConfigMapStore(api, args.memory_namespace) if api else None
        memory = CycleMemory(store, leads=leads, single=not interval)
        moving, requests = (evict.moving, evict.requests) if evict is not None else (dict, None)
        clock = RealClock(wakeable.stop)
        loop = Loop(pictures, policy, clock, evict=evict, leads=leads, memory=memory, moving=moving, requests=requests)
        tell = stack.enter_context(_listeners(args, pictures, policy, interval, levels))
        if interval:
            guard = FaultGuard()
            loop.run(tell, interval_seconds=interval, wait=wakeable.wait, around=_without_collection, guard=guard)
            return 0
        result = _without_collection(loop.once)
        tell(result)
        return FAILED if result.error else 0


def _check(args: argparse.Namespace, interval: float) -> None:
    problems = []
    if args.leader_elect and not interval:
        do = "set --descheduling-interval, or leave --leader-elect out"
        why = "leaderElection must be used with deschedulingInterval"
        problems.append(Problem("command line", "--leader-elect", "", why, do))
    if args.snapshot and (args.dry_run == "false" or args.leader_elect):
        option = "--leader-elect" if args.leader_elect else "--dry-run"
        do = "leave it out, or name a cluster by --kubeconfig"
        problems.append(Problem("command line", option, args.dry_run, "files have no API server to ask", do))
    if problems:
        raise InputError(problems)


def _start_log(args: argparse.Namespace) -> LogLevels:
    verbose = args.verbose or args.v >= options.VERBOSE
    levels = LogLevels(
        now=RealClock().monotonic, default="debug" if verbose else "info", logger="descheduler", flows=()
    )
    log_format.start(args.log_format, logging.DEBUG if verbose else logging.INFO, levels)
    logging.getLogger("urllib3").setLevel(logging.INFO)
    for notice in options.notices(args):
        LOG.warning("%s", Fields(event="options", result="note", text=notice))
    return levels


@contextlib.contextmanager
def _elected(
    args: argparse.Namespace, pictures: PictureSource, wakeable: Wakeable, policy: PolicyFile, interval: float
) -> Iterator[Callable[[], bool]]:
    """Take part in the election, and yield whether this process leads; always True where no Lease is asked for.

    A policy of Koordinator asks for one unless it says no. It guards evictions: a dry run, or a single cycle by hand,
    has nothing to guard.
    """
    written = policy.leader_election
    evicts = args.dry_run == "false" and not policy.dry_run
    takes_part = args.leader_elect or (written and written.leader_elect and evicts and interval)
    if pictures.api is None or not takes_part:
        yield lambda: True
        return
    settings, clock, ending = _settings(args, written), RealClock(), False

    def gained() -> None:
        LOG.info("%s", Fields(event="lease", result="gained", lease=f"{settings.namespace}/{settings.name}"))
        wakeable.wake()

    def lost() -> None:
        if ending:
            LOG.info("%s", Fields(event="lease", result="given back"))
        else:
            LOG.warning("%s", Fields(event="lease", result="lost", text="nothing more is evicted"))

    candidate = Candidate(pictures.api, settings, monotonic=clock.monotonic, wall=clock.wall)
    election = Election(candidate, gained=gained, lost=lost)
    election.start()
    try:
        yield candidate.is_leader
    finally:
        ending = True
        election.stop()


def _settings(args: argparse.Namespace, written: LeaderElection | None) -> LeaseSettings:

    def setting(name: str) -> str:
        return str(getattr(args, f"leader_elect_{name}") or getattr(written or LEASE, name))

    def seconds(name: str) -> float:
        return duration.of_option(setting(name), lease_option(name))

    do = "make the retry period shorter than the renew deadline, and that shorter than the lease duration"
    with refusing("command line", lease_option("lease_duration"), "", do):
        return LeaseSettings(
            namespace=setting("resource_namespace"),
            name=setting("resource_name"),
            identity=f"{socket.gethostname()}_{secrets.token_hex(8)}",
            duration_seconds=round(seconds("lease_duration")),
            renew_seconds=seconds("renew_deadline"),
            retry_seconds=seconds("retry_period"),
        )


@contextlib.contextmanager
def _evictor(
    args: argparse.Namespace,
    pictures: PictureSource,
    wakeable: Wakeable,
    leads: Callable[[], bool],
    policy: PolicyFile,
    *,
    single: bool,
) -> Iterator[PlanExecutor | None]:
    """Evicts by the API, or by migration jobs, which are worked on until the end; None in a dry run."""
    if args.dry_run == "true":
        yield None
        return

    assert pictures.api is not None
    gate, wait = LeaderApi(pictures.api, leads), waiting(wakeable.stop.wait, leads)
    rules = reader.setup(policy.document).migration
    stopped = wakeable.stop.is_set
    executor = PlanExecutor(
        gate,
        wait,
        wall=RealClock().wall,
        tell=JobLog().job,
        rules=rules,
        stopped=stopped,
        leads=leads,
        drop_claims=options.gates(args.feature_gates).get("DisablePVCReservation", False),
    )
    if single:
        yield executor
        executor.settle()
        return
    executor.start()
    try:
        yield executor
    finally:
        executor.stop()


@contextlib.contextmanager
def _listeners(
    args: argparse.Namespace, pictures: PictureSource, policy: PolicyFile, interval: float, levels: LogLevels
) -> Iterator[Tell]:
    """All that receive the result of a cycle, one after the other."""
    with contextlib.ExitStack() as stack:
        listeners: list[Tell] = [CycleLog().tell]
        if args.report:
            reports = folder.Folder(pathlib.Path(args.report))
            listeners.append(reports.tell_on if interval else reports.tell)
        places = _addresses(args, policy)
        if interval and places:
            listeners.append(stack.enter_context(_served(args, places, interval, pictures.api, levels)))
        if pictures.api is not None and not args.no_events:
            listeners.append(stack.enter_context(_events(pictures)))

        def tell(result: CycleResult) -> None:
            for listener in listeners:
                listener(result)

        yield tell


@contextlib.contextmanager
def _served(
    args: argparse.Namespace,
    places: Sequence[tuple[str, int]],
    interval: float,
    api: Api | None,
    levels: LogLevels | None = None,
) -> Iterator[Tell]:
    """Serve the same at each address; beyond loopback all but health needs a token, which the API server reviews."""
    from descheduler.serve.endpoints import Endpoints  # Most runs of a single cycle serve nothing.
    from descheduler.serve.metrics import Metrics

    metrics = Metrics()
    registry = metrics.registry if args.disable_metrics == "false" else None
    endpoints = Endpoints(registry, interval_seconds=interval, monotonic=RealClock().monotonic, levels=levels)

    def tell(result: CycleResult) -> None:
        metrics.observe(result)
        endpoints.publish(result)

    with contextlib.ExitStack() as stack:
        for server in [_server(args, address, port, endpoints, api) for address, port in places]:
            stack.enter_context(server.serving(LOG))
        yield tell


def _server(args: argparse.Namespace, address: str, port: int, endpoints: Endpoints, api: Api | None) -> Server:
    from koordlite.http.guard import Guard, by_cluster
    from koordlite.http.local_token import is_loopback
    from koordlite.http.server import Server

    certificate, review = _certificate(args), by_cluster(api, args.token_audience) if api else None
    try:
        return Server(
            address,
            port,
            endpoints.answer,
            change=endpoints.put,
            guard=Guard(exposed=not is_loopback(address), review=review),
            certificate=certificate,
            in_clear="--tls-cert-file",
        )
    except ConfigError as error:
        do = "choose another port, 0 for any free one, or off"
        option = "--secure-port" if options.address(args) else "--listen"
        why = error.problems[0].why
        raise InputError(Problem("command line", option, f"{address}:{port}", why, do)) from error


def _addresses(args: argparse.Namespace, policy: PolicyFile) -> tuple[tuple[str, int], ...]:
    """Addresses to listen on: as the options say, else the policy, else the default; empty: nowhere."""
    secure = options.address(args)
    if secure:
        return (secure,) if secure[1] else ()
    if args.listen == "off":
        return ()
    if args.listen is None and policy.bind_addresses:
        return policy.bind_addresses
    from koordlite.http.server import address_of

    where = ("command line", "--listen")
    return (address_of(args.listen or LISTEN, where, why="no port", do="write ADDRESS:PORT, or off"),)


def _certificate(args: argparse.Namespace) -> Certificate | SelfSigned | None:
    """InputError when it cannot be used, or a key is named without it."""
    from koordlite.http.certificate import Certificate, SelfSigned

    if args.tls_cert_file:
        return Certificate(args.tls_cert_file, args.tls_private_key_file, setting=("command line", "--tls-cert-file"))
    if args.tls_private_key_file:
        do = "name the certificate with --tls-cert-file, or leave both out for plain HTTP"
        problem = Problem("command line", "--tls-private-key-file", args.tls_private_key_file, "no certificate", do)
        raise InputError(problem)
    return SelfSigned() if options.address(args) else None


@contextlib.contextmanager
def _events(pictures: PictureSource) -> Iterator[Tell]:
    assert pictures.api is not None
    publisher = Events.of_process(pictures.api, events.CONTROLLER)
    publisher.start()

    def tell(result: CycleResult) -> None:
        for event in events.events(result):
            publisher.tell(event)

    try:
        yield tell
    finally:
        publisher.stop()


def _without_collection(once: Callable[[], CycleResult]) -> CycleResult:
    with source.no_collection():
        return once()
