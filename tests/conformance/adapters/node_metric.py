"""Node, strategy, pods and NodeMetric of a vector → the arguments of our formulas. No function of a vector is here."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import msgspec

from koordlite.formulas.allocatable import allocatable, node_sync
from koordlite.model.errors import InputError
from koordlite.model.node import Node
from koordlite.model.picture.node_notes import NodeNotes
from koordlite.model.picture.usage import Usage, Use
from koordlite.model.pod.qos import PriorityClass
from koordlite.model.pod.values import Pod
from koordlite.model.quantity import Quantity
from koordlite.model.slo.settings import SLO, Colocation, HostApplication
from koordlite.model.snapshot import Snapshot
from koordlite.strategies.shared import offer
from tests.conformance.adapters import shapes, slo

IGNORED = ("koord-batch", "koord-free")
RESET = "reset"


@dataclasses.dataclass(frozen=True)
class Case:
    """One case as our values."""

    node: Node
    colocation: Colocation
    pods: list[Pod]
    status: dict[str, Any]
    """status of the NodeMetric."""

    @property
    def capacity(self) -> Use:
        return allocatable.amounts(self.node.capacity)

    @property
    def usage(self) -> dict[str, Use]:
        """Use by pod; without that of unknown pods whose metric says batch or free, which the agent would know."""
        known = {pod.uid for pod in self.pods}
        metrics = {f"{m['namespace']}/{m['name']}": m for m in self.status.get("podsMetric") or []}
        return {
            uid: shapes.use(metric["podUsage"])
            for uid, metric in metrics.items()
            if uid in known or metric.get("priority") not in IGNORED
        }

    @property
    def system(self) -> Use:
        return shapes.use((self.status.get("nodeMetric") or {}).get("systemUsage"))

    @property
    def used(self) -> Use | None:
        """Use of the node; None unless both amounts are there."""
        amounts = ((self.status.get("nodeMetric") or {}).get("nodeUsage") or {}).get("resources") or {}
        return shapes.use(amounts) if {"cpu", "memory"} <= amounts.keys() else None

    @property
    def reserved(self) -> Use:
        try:
            written = shapes.written_reservation(self.node)
        except InputError:
            written = {}  # What an agent holds that never saw a good one.
        return allocatable.reserved_use(node=self.node, notes=NodeNotes(), reserved=written)

    def host_apps(self, offered_to: tuple[PriorityClass, ...]) -> Use:
        metrics = self.status.get("hostApplicationMetric") or []
        return allocatable.host_app_use(
            applications=[HostApplication(name=m["name"], priority=_priority(m)) for m in metrics],
            usage={m["name"]: shapes.use(m["usage"]) for m in metrics},
            offered_to=offered_to,
        )

    @property
    def degraded(self) -> bool:
        minutes = self.colocation.degrade_time_minutes
        return node_sync.degraded(age_seconds=age(self.status), degrade_minutes=minutes)


def case(given: Any, metrics: str) -> Case:
    """The case under `given`; its NodeMetric is in member `metrics`."""
    status = ((given.get(metrics) or {}).get("nodeMetric") or {}).get("status") or {}
    # Samples name pods by namespace and name.
    read = map(shapes.pod_of, (given.get("podList") or {}).get("items") or [])
    listed = [msgspec.structs.replace(pod, uid=pod.key) for pod in read]
    # The class of a pod that ended is in its sample here, as of any pod that is not listed.
    pods = [pod for pod in listed if pod.active]
    return Case(shapes.node_of(given["node"]), slo.colocation(given["strategy"], given["node"]), pods, status)


def age(status: Mapping[str, Any]) -> float | None:
    """Seconds since the last update."""
    return -status["updateTime"]["$now"] if status.get("updateTime") else None


def refused(given: Any, metrics: str) -> dict[str, bool]:
    """Whether we decline to offer anything, as Koordinator declines to work with what is missing."""
    if given.get("strategy") is None or given.get("podList") is None:
        # Our formulas take both, so that they cannot be asked without.
        return {"error": True}
    node = shapes.node_of(given["node"]) if given.get("node") else None
    colocation = msgspec.structs.replace(slo.colocation(given["strategy"]), enable=True)
    used = Use(0, 0) if (given.get(metrics) or {}).get("nodeMetric") else None
    return {"error": bool(offer.withheld(picture(node=node, colocation=colocation, used=used), ()))}


def picture(*, node: Node | None, colocation: Colocation, used: Use | None) -> Snapshot:
    """A node of which nothing else is known."""
    usage = Usage(used, {}, {})
    return shapes.snapshot(node=node, slo=SLO(colocation=colocation), usage=usage, average=usage, ages={"usage": 0.0})


def wanted(expect: Any, *names: str) -> dict[str, Any]:
    """Expected amounts by resource: `reset`, or the quantity and that of each zone."""
    return {name: RESET if expect[name].get("reset") else _amounts(expect[name]) for name in names}


def found(amount: int, zones: Mapping[str, Quantity] | None = None) -> dict[str, Any]:
    """Our amount in the same form."""
    return {"quantity": Quantity.of(amount), **({"zones": dict(zones)} if zones else {})}


def _amounts(expect: Any) -> dict[str, Any]:
    zones = shapes.quantities(expect.get("zoneQuantity"))
    return {"quantity": Quantity.parse(expect["quantity"]), **({"zones": zones} if zones else {})}


def _priority(metric: Any) -> PriorityClass:
    return PriorityClass(metric.get("priority", ""))
