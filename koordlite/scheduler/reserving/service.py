"""The controller over HTTP: probes and Prometheus."""

from __future__ import annotations

import collections
from collections.abc import Iterator, Mapping
from http import HTTPStatus

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from koordlite import threads
from koordlite.model.wire.reservation import AVAILABLE, FAILED, PENDING, SUCCEEDED, WAITING
from koordlite.report.json.answer import Answer
from koordlite.scheduler.reserving.controller import Controller

_TEXT = "text/plain; charset=utf-8"
_METRICS = "text/plain; version=0.0.4; charset=utf-8"


class ReservationMetrics(Collector):
    """Metrics of the controller, read at each scrape."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    def collect(self) -> Iterator[Metric]:
        """Reservations by phase, placeholders, and what became of hand-overs."""
        controller, state = self._controller, self._controller.state
        with controller.lock:
            world = controller.world
            phases = collections.Counter(each.status.phase or PENDING for each in world.reservations.values())
            placeholders = sum(bool(pod.placeholder_of) for pod in world.pods.values())
            said = dict(controller.said)
        yield _gauge("controller_leader", "1 while this process holds the lease and may write", float(state.leads))
        yield _gauge(
            "controller_stands_back",
            "1 while koord-scheduler runs, which holds Reservations itself",
            float(bool(state.stands_back)),
        )
        family = GaugeMetricFamily("koordlite_reservations", "Reservations by phase", labels=("phase",))
        for phase in (PENDING, AVAILABLE, WAITING, SUCCEEDED, FAILED):
            family.add_metric((phase,), phases.pop(phase, 0))
        yield family
        yield _gauge("placeholders", "Pods that hold places of Reservations", placeholders)
        events = CounterMetricFamily(
            "koordlite_reservation_events",
            "What happened to Reservations, by the reason of the Event",
            labels=("reason",),
        )
        for reason, count in sorted(said.items()):
            events.add_metric((reason,), count)
        yield events


class Service:
    """Answers of `koordlite reservation-controller`."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._registry = CollectorRegistry()
        self._registry.register(ReservationMetrics(controller))

    def answer(self, path: str, query: Mapping[str, str], accept: str) -> Answer:
        """`koordlite.http.Ask`."""
        if path in ("/healthz", "/livez"):
            why = threads.unhealthy() if self._controller.is_alive else "the controller ended; the log says why"
            return _plain(HTTPStatus.SERVICE_UNAVAILABLE if why else HTTPStatus.OK, why or "ok")
        if path == "/readyz":
            why = self._controller.not_ready() or threads.not_ready()
            return _plain(HTTPStatus.SERVICE_UNAVAILABLE, why) if why else _plain(HTTPStatus.OK, "ready")
        if path == "/metrics":
            return Answer(HTTPStatus.OK, _METRICS, generate_latest(self._registry))
        return _plain(HTTPStatus.NOT_FOUND, "here are only /healthz, /livez, /readyz and /metrics")


def _plain(status: HTTPStatus, words: str) -> Answer:
    return Answer(status, _TEXT, f"{words}\n".encode())


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"koordlite_reservation_{name}", text, value=value)
