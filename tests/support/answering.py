"""What an agent answers over HTTP after some ticks on an emulated node."""

from __future__ import annotations

from emulated import Emulated
from prometheus_client import CollectorRegistry

from koordlite.report.history import History
from koordlite.report.web.endpoints import Endpoints


def answering(node: Emulated, *, ticks: int) -> Endpoints:
    """The endpoints of an agent that has observed the node so many times, a second apart."""
    run, endpoints = History({}, {}), Endpoints(period_seconds=1.0, registry=CollectorRegistry())
    with node.at_work() as agent:
        for _ in range(ticks):
            tick = agent.tick()
            run.add(tick)
            node.sandbox.advance(1.0)
    endpoints.publish(tick, run.remembered())
    return endpoints
