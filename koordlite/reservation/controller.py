"""The controller's loop, with its probes and metrics: watch, plan, write, and again. It writes only while it leads, and
only where no scheduler of Koordinator does the same work."""

from __future__ import annotations

import collections
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from http import HTTPStatus
from typing import Any, Protocol

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from koordlite import threads
from koordlite.fault_guard import FaultGuard, SubjectFaults
from koordlite.http.answers import Answer, Request, Router, well
from koordlite.kube.client.access import Api, ApiError
from koordlite.kube.client.answers import ApiUnreachable
from koordlite.kube.publish.events import Event, EventType
from koordlite.kube.watch import watcher
from koordlite.kube.watch.reflector import Source
from koordlite.kube.watch.sources import NODES, PODS, REPORTS, RESERVATIONS
from koordlite.kube.watch.watcher import Watching
from koordlite.model import times
from koordlite.model.wire.objects import PodObject
from koordlite.model.wire.reservation import (
    AVAILABLE,
    FAILED,
    PENDING,
    SUCCEEDED,
    WAITING,
    ObjectReference,
    ReservationObject,
)
from koordlite.report.metrics import families
from koordlite.reservation import step
from koordlite.reservation.placeholder import PlaceholderSettings
from koordlite.reservation.step import Say, Step
from koordlite.reservation.world import World
from koordlite.reservation.writer import GROUP_VERSION, Refused, Writer
from koordlite.threads import Worker

LOG = logging.getLogger(__name__)
LEASE_NAMESPACE, LEASE = "koordinator-system", "koord-scheduler"
FRESH_SECONDS = 60.0
"""A lease that was renewed within this time has a holder that lives; its own renewals come each 2 s."""
LEASE_PATH = f"/apis/coordination.k8s.io/v1/namespaces/{LEASE_NAMESPACE}/leases/{LEASE}"
IDLE_SECONDS = 3.0
"""Longest time between two rounds: ends and pauses come by time."""
LEAST_SECONDS, MOST_SECONDS = 0.02, 0.5
"""Least and greatest pause between two rounds: what comes together is planned together. A long round is followed by as
long a pause, up to a limit."""
FIRST_PAUSE_SECONDS, LAST_PAUSE_SECONDS = 1.0, 60.0
"""Pauses after requests about one Reservation failed; doubled after each failure in a row."""
TOGETHER = 4
"""Maximum number of steps under way at once, of those that take no room another Reservation counts on."""
RIVAL_SECONDS, DENIED_SECONDS = 10.0, 60.0
"""Time between two looks at the lease of Koordinator's scheduler, and where it may not be read."""
SAID_AGAIN_SECONDS = 600.0
"""The same Event or log line about the same object is not repeated within this time."""


class Judge(Protocol):
    """Whoever knows the NUMA nodes of the cluster, as far as the controller asks or tells it."""

    def lacks(self, obj: PodObject, name: str) -> str:
        """Reason why a pod could not take the Reservation even without its placeholders; empty when it could."""

    def synced(self) -> None:
        """Everything was listed once."""

    @property
    def takers(self) -> Mapping[str, tuple[Callable[[Any], None], Callable[[str], None]]]:
        """Takers of objects that came, and of keys that went, by name of their source."""

    def remove_pod(self, key: str) -> None:
        """The pod `namespace/name` is gone, by our own request."""


class Controller:
    """Runs in a thread of its own, from `start` to `stop`."""

    def __init__(
        self,
        api: Api,
        settings: PlaceholderSettings,
        *,
        leads: Callable[[], bool],
        tell: Callable[[Event], None],
        judge: Judge,
        feeds_judge: bool,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`leads`: whether this process may write now. `tell` writes an Event. `feeds_judge`: no other watches of this
        process keep the judge up to date."""
        self._api, self._settings, self.leads, self._tell = api, settings, leads, tell
        self._monotonic, self._wall = monotonic, wall
        self._judge, self._judge_takers = judge, judge.takers if feeds_judge else {}
        self.world, self.lock = World(lacks=judge.lacks, fault=self._fault), threading.RLock()
        self.faults = SubjectFaults("reservations")
        self._stop, self._wake = threading.Event(), threading.Event()
        sources: list[Source[Any]] = [RESERVATIONS, NODES, PODS, *([REPORTS] if feeds_judge else [])]
        self._watches = {source.name: self._watching(source) for source in sources}
        self._writer = Writer(api, wrote=self._wrote, deleted=self._deleted, say=self._emit, may=leads)
        self._refused: dict[str, str] = {}
        self._together = TOGETHER
        self._paused: dict[str, tuple[int, float]] = {}
        """Number of failed steps in a row, and time until which no other is tried, by uid of the Reservation."""
        self._emitted: dict[tuple[str, str, str], float] = {}
        self.rival, self._next_look = "", float("-inf")
        """`rival`: sign that Koordinator's scheduler runs; empty when it does not."""
        self.error = ""
        """Error of the last request that failed in the last round."""
        self._rival_lease: dict[str, Any] | None = None
        self.events: collections.Counter[str] = collections.Counter()
        """Events by reason."""
        self._thread = Worker("reservations", self._run, restarts=False)

    def start(self) -> None:
        """Begin to watch and to work."""
        for watch in self._watches.values():
            watch.start()
        self._thread.start()

    def stop(self) -> None:
        """End. Places stay held: another process goes on."""
        self._stop.set()
        self._wake.set()
        self._thread.join(10.0)
        for watch in self._watches.values():
            watch.stop()

    @property
    def is_alive(self) -> bool:
        """Tell whether its thread runs. Faults that stay end it, and then its process should end."""
        return self._thread.is_alive()

    def not_ready(self) -> str:
        """Reason why it cannot work; empty when it can, or another process does."""
        states = {name: watch.state() for name, watch in self._watches.items()}
        if states["reservations"].absent:
            return "the API server serves no Reservations: apply manifests/crds/koordinator"
        # Without permission to read reports nothing is known of NUMA nodes, and everything else goes on.
        beside = {name for name, state in states.items() if state.absent or (name == REPORTS.name and state.denied)}
        waiting = [name for name, state in states.items() if state.age_seconds is None and name not in beside]
        if not waiting:
            self._judge.synced()
        return f"not listed yet: {', '.join(waiting)}" if waiting else ""

    def gained(self) -> None:
        """This process leads now."""
        LOG.info("lease gained: this process works on Reservations")
        self._wake.set()

    def lost(self) -> None:
        """It does not lead any more."""
        LOG.info("lease lost or given back: another process works on Reservations")

    def round(self) -> None:
        """Do what can be done now."""
        if not self.leads() or self.not_ready():
            return
        self._look_for_rival()
        self.error = ""
        together, self._together = self._together, TOGETHER
        with ThreadPoolExecutor(TOGETHER, "reservation") as pool:
            under_way: collections.deque[tuple[Step, Future[str]]] = collections.deque()
            for each in self._steps():
                self._thread.beat()
                if self._monotonic() < self._paused.get(each.uid, (0, 0.0))[1]:
                    continue
                if under_way and not each.is_independent:
                    # It was planned without what these write; it is planned again, and then nothing is under way.
                    self._together = 1
                    self._wake.set()
                    continue
                under_way.append((each, pool.submit(self._writer.run, each)))
                while len(under_way) >= (together if each.is_independent else 1):
                    if not self._ended(*under_way.popleft()):
                        return  # The others would wait for an answer in vain, each for itself.
            while under_way and self._ended(*under_way.popleft()):
                pass

    def _ended(self, step: Step, answer: Future[str]) -> bool:
        """Wait for the end of a step, and note what went wrong; False when nobody answers."""
        count, _ = self._paused.get(step.uid, (0, 0.0))
        try:
            failed = answer.result()
            self._refused.pop(step.uid, None)
        except Refused as error:
            failed = self._refused[step.uid] = str(error)
        except ApiUnreachable as error:
            self.error = str(error)
            self._warn("API server", self.error)
            return False
        self._paused.pop(step.uid, None)
        if failed:
            self.error = f"reservation {step.name}: {failed}"
            self._warn(step.uid, self.error)
            if step.uid not in self._refused and self.leads():
                pause = min(FIRST_PAUSE_SECONDS * 2**count, LAST_PAUSE_SECONDS)
                self._paused[step.uid] = min(count + 1, 10), self._monotonic() + pause
        return True

    def _steps(self) -> Iterator[Step]:
        """One after the other, each planned with what has been written before."""
        with self.lock:
            if self.rival:
                planned = step.withdrawal(self.world)
            else:
                planned = step.plan(self.world, self._settings, self._wall(), self._refused)
        while not self._stop.is_set():
            with self.lock:
                following = next(planned, None)
            if following is None:
                return
            yield following

    def _run(self) -> None:
        guard = FaultGuard()
        while not self._stop.is_set():
            guard.begin()
            self._thread.beat()
            began = self._monotonic()
            with guard:
                self.round()
            took = self._monotonic() - began
            self._wake.wait(IDLE_SECONDS)
            self._stop.wait(min(max(LEAST_SECONDS, took), MOST_SECONDS))
            self._wake.clear()

    def _look_for_rival(self) -> None:
        """Its pods are seen by the watch, its lease is asked for now and then."""
        if self._monotonic() >= self._next_look:
            self._next_look = self._monotonic() + RIVAL_SECONDS
            self._rival_lease = self._lease()
        with self.lock:
            pods = list(self.world.koord_schedulers.values())
        sign = rival(pods, self._rival_lease, self._wall())
        if bool(sign) != bool(self.rival):
            if sign:
                LOG.warning("koord-scheduler runs here (%s) and holds Reservations: placeholders are removed", sign)
            else:
                LOG.info("koord-scheduler does not run any more: Reservations are held by placeholders")
        self.rival = sign

    def _lease(self) -> dict[str, Any] | None:
        try:
            return self._api.request("GET", LEASE_PATH).read(dict)
        except ApiError as error:
            if error.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
                self._next_look = self._monotonic() + DENIED_SECONDS
            if error.status != HTTPStatus.NOT_FOUND:
                self._warn(LEASE_PATH, f"whether koord-scheduler runs here is judged by its pods only: {error}")
            return None
        except ApiUnreachable:
            return None

    def _wrote(self, obj: PodObject | ReservationObject, raw: bytes) -> None:
        name = "reservations" if isinstance(obj, ReservationObject) else "pods"
        self._watches[name].written(raw)

    def _deleted(self, uid: str) -> None:
        with self.lock:
            pod = self.world.pods.get(uid)
            self.world.removed(uid)
        if pod is not None:
            self._judge.remove_pod(pod.key)

    def _fault(self, name: str, error: Exception) -> None:
        self.error = self.faults.note(f"reservation {name}", error)

    def _warn(self, subject: str, text: str) -> None:
        if self._is_new(subject, "", text):
            LOG.warning("%s", text)

    def _is_new(self, subject: str, reason: str, text: str) -> bool:
        """Note that something is said, and tell whether it was not lately."""
        key, now = (subject, reason, text), self._monotonic()
        with self.lock:
            self._emitted = {other: at for other, at in self._emitted.items() if now - at < SAID_AGAIN_SECONDS}
            is_new = key not in self._emitted
            self._emitted.setdefault(key, now)
        return is_new

    def _emit(self, of: Step, event: Say) -> None:
        if not self._is_new(of.uid, event.reason, event.note):
            return
        self.events[event.reason] += 1
        LOG.log(logging.WARNING if event.is_warning else logging.INFO, "%s: %s", event.reason, event.note)
        about = ObjectReference(kind="Reservation", name=of.name, uid=of.uid, api_version=GROUP_VERSION)
        kind: EventType = "Warning" if event.is_warning else "Normal"
        self._tell(Event(regarding=about, reason=event.reason, note=event.note, action="Reserve", type=kind))

    def _watching(self, source: Source[Any]) -> Watching[Any]:
        world, judge_takes = self.world, self._judge_takers.get(source.name)
        changes: dict[str, tuple[Callable[[Any], object], Callable[[str], object]]] = {
            RESERVATIONS.name: (world.put_reservation, world.remove_reservation),
            NODES.name: (world.put_node, world.remove_node),
            PODS.name: (world.put_pod, world.remove_pod),
        }

        def take(place: int) -> Callable[[Any], None]:
            def apply(what: Any) -> None:
                if judge_takes is not None:
                    judge_takes[place](what)
                if source.name in changes:
                    with self.lock:
                        if changes[source.name][place](what) is not False:
                            self._wake.set()

            return apply

        return watcher.fed(self._api, source, take(0), take(1), monotonic=self._monotonic)


def rival(pods: Collection[str], lease: Mapping[str, Any] | None, now: float) -> str:
    """Sign that Koordinator's own scheduler runs, which holds the places itself; empty when it does not.

    `pods`: names of its pods that run.
    """
    if pods:
        return f"pod {min(pods)} runs"
    spec = (lease or {}).get("spec")
    spec = spec if isinstance(spec, dict) else {}
    renewed = times.parse_or_none(spec.get("renewTime") if isinstance(spec.get("renewTime"), str) else None)
    holder = spec.get("holderIdentity")
    if not holder or renewed is None or now - renewed > FRESH_SECONDS:
        return ""
    return f"lease {LEASE_NAMESPACE}/{LEASE} is held by {holder}, renewed {max(0.0, now - renewed):.0f} s ago"


class ReservationMetrics(Collector):
    """Metrics of the controller, read at each scrape."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    def collect(self) -> Iterator[Metric]:
        """Reservations by phase, placeholders, and what became of hand-overs."""
        controller = self._controller
        with controller.lock:
            world = controller.world
            phases = collections.Counter(each.status.phase or PENDING for each in world.reservations.values())
            placeholders = sum(bool(pod.stands_for) for pod in world.pods.values())
            counts = dict(controller.events)
        gauges = [
            ("controller_leader", "1 while this process holds the lease and may write", float(controller.leads())),
            (
                "controller_stands_back",
                "1 while koord-scheduler runs, which holds Reservations itself",
                float(bool(controller.rival)),
            ),
        ]
        for name, meaning, value in gauges:
            yield families.single(f"koordlite_reservation_{name}", meaning, value)
        by_phase = [((phase,), phases[phase]) for phase in (PENDING, AVAILABLE, WAITING, SUCCEEDED, FAILED)]
        yield families.gauge("koordlite_reservations", "Reservations by phase", ("phase",), by_phase)
        meaning = "Pods that hold places of Reservations"
        yield families.single("koordlite_reservation_placeholders", meaning, placeholders)
        events = [((reason,), count) for reason, count in sorted(counts.items())]
        meaning = "What happened to Reservations, by the reason of the Event"
        yield families.counter("koordlite_reservation_events", meaning, ("reason",), events)


class Service(Router):
    """Answers of `koordlite reservation-controller`."""

    def __init__(self, controller: Controller) -> None:
        registry = CollectorRegistry()
        registry.register(ReservationMetrics(controller))

        def alive(request: Request) -> Answer:
            return well(threads.unhealthy() if controller.is_alive else "the controller ended; the log says why")

        super().__init__({"/healthz": alive, "/livez": alive}, ready=controller.not_ready, registry=registry)
