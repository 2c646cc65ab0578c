"""The controller over HTTP: probes and Prometheus."""

from __future__ import annotations

import collections
from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from koordlite import threads
from koordlite.http.answers import Answer, Request, Router, well
from koordlite.model.wire.reservation import AVAILABLE, FAILED, PENDING, SUCCEEDED, WAITING
from koordlite.reservation.controller import Controller


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
            placeholders = sum(bool(pod.stands_for) for pod in world.pods.values())
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


class Service(Router):
    """Answers of `koordlite reservation-controller`."""

    def __init__(self, controller: Controller) -> None:
        registry = CollectorRegistry()
        registry.register(ReservationMetrics(controller))

        def alive(request: Request) -> Answer:
            return well(threads.unhealthy() if controller.is_alive else "the controller ended; the log says why")

        super().__init__({"/healthz": alive, "/livez": alive}, ready=controller.not_ready, registry=registry)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"koordlite_reservation_{name}", text, value=value)
