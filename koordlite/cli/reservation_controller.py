"""The controller for Reservations: `koordlite reservation-controller` alone, and in the extender's process."""

from __future__ import annotations

import argparse
import contextlib
import logging
import secrets
import socket
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from koordlite.cli import scheduler_serving as serving
from koordlite.clock import ended_by_signals

if TYPE_CHECKING:
    from koordlite.kube.client.access import Api
    from koordlite.reservation.controller import Controller
    from koordlite.reservation.placeholder import PlaceholderSettings
    from koordlite.scheduler.cluster import Cluster

LOG = logging.getLogger("koordlite.scheduler")
LEASE = "koordlite-reservation-controller"


def run(args: argparse.Namespace) -> int:
    """Work until stopped. 1 when the controller ended by itself: faults that stay."""
    from koordlite.kube.client.access import connect
    from koordlite.reservation.controller import Service

    serving.start_log(args)
    stop = ended_by_signals()
    api = connect(args.kubeconfig, args.context, user_agent="koordlite-reservation-controller")
    with controlling(args, api) as controller, serving.health(args, api, Service(controller).answer):
        while not stop.wait(1.0):
            if not controller.is_alive:
                return 1
    return 0


@contextlib.contextmanager
def controlling(args: argparse.Namespace, api: Api, cluster: Cluster | None = None) -> Iterator[Controller]:
    """The controller at work, beside whatever else this process does; it writes while it holds the lease. `cluster`:
    what an extender in this process knows of NUMA nodes; without it the controller keeps its own."""
    from koordlite.kube.client.lease import Candidate, Election, LeaseSettings
    from koordlite.kube.publish.events import Events
    from koordlite.reservation.controller import Controller
    from koordlite.scheduler.cluster import Cluster
    from koordlite.scheduler.judgement.nodes import JudgeSettings
    from koordlite.scheduler.reservation_judge import ReservationJudge

    name = socket.gethostname()
    # Whoever waits for a Reservation waits for the takeover, too: five seconds, at two requests a second.
    lease = LeaseSettings(
        namespace=args.lease_namespace,
        name=LEASE,
        identity=f"{name}_{secrets.token_hex(8)}",
        duration_seconds=3,
        renew_seconds=2.0,
        retry_seconds=0.5,
    )
    candidate = Candidate(api, lease, monotonic=time.monotonic, wall=time.time)
    events = Events.of_process(api, "koordlite.io/reservation-controller")
    judge = ReservationJudge(cluster or Cluster(JudgeSettings(), monotonic=time.monotonic), is_fed=cluster is not None)
    controller = Controller(api, settings_of(args), leads=candidate.is_leader, tell=events.tell, judge=judge)
    election = Election(candidate, gained=controller.gained, lost=controller.lost)
    with contextlib.ExitStack() as stack:
        events.start()
        stack.callback(events.stop)
        election.start()
        stack.callback(election.stop)
        controller.start()
        stack.callback(controller.stop)
        yield controller


def settings_of(args: argparse.Namespace) -> PlaceholderSettings:
    """Inputs of its placeholders."""
    from koordlite.reservation.placeholder import PlaceholderSettings

    guarded = {"guarded": frozenset(args.guarded_scheduler)} if args.guarded_scheduler else {}
    return PlaceholderSettings(
        image=args.placeholder_image,
        priority_class=args.placeholder_priority_class,
        scheduler=args.placeholder_scheduler,
        namespaces=frozenset(args.placeholder_namespace),
        **guarded,
    )
