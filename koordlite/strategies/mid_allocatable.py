"""Publish what pods of priority mid may request on this node: mid-cpu and mid-memory.

The formula is `formulas.allocatable.mid.mid`. What prod pods will leave unused of their requests is predicted where
`predict` says so (`formulas.allocatable.prediction`); elsewhere that term is 0, and outside static mode only a share of
what prod pods did not request is offered.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from koordlite.formulas.allocatable import allocatable, mid, prediction
from koordlite.formulas.allocatable.mid import Terms
from koordlite.formulas.allocatable.prediction import Reclaimable
from koordlite.model import keys
from koordlite.model.decision import Decision
from koordlite.model.picture.usage import NO_USE
from koordlite.model.settings import StrategySettings, bounded
from koordlite.model.snapshot import NodeSnapshot, Snapshot
from koordlite.strategies.shared import offer
from koordlite.strategies.shared.offer import Evidence

NEW_CONTAINERS = "none"
NEEDS_NODE = "node"
RESOURCES = (keys.MID_CPU, keys.MID_MEMORY)
PUBLISHES = RESOURCES
SUBJECTS = ("mid-cpu", "mid-memory")
OVERVIEW = ("mid may request", "allocatable")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Config(StrategySettings):
    """Section `midAllocatable`. Mode and percentages come from the ConfigMap key `colocation-config`."""

    predict: bool = False
    """Offer also what prod pods requested and are not expected to use, as Koordinator does. Peaks are the 95th
    percentile of CPU and the 98th of memory of a pod's past, in which older samples weigh less."""
    safety_margin_percent: int = bounded(10, ge=0, le=1000)
    """Percent added to a peak."""
    cold_start_seconds: float = bounded(86_400.0, ge=60, le=2_592_000)
    """A pod that is younger, or has been observed for less, releases nothing; nor does a node observed for less."""
    cpu_half_life_seconds: float = bounded(43_200.0, ge=600, le=2_592_000)
    """A sample of CPU that is so old weighs half as much as a new one."""
    memory_half_life_seconds: float = bounded(86_400.0, ge=600, le=2_592_000)
    """The same for memory."""


def decide(snapshot: NodeSnapshot, config: Config) -> Iterator[Decision]:
    """Decide about each of the two resources."""
    nothing = offer.withheld(snapshot, RESOURCES)
    yield from nothing
    if nothing or snapshot.average.node is None:
        return
    spare = reclaimable(snapshot) if config.predict else None
    used = snapshot.average.node
    results = mid.mid(
        capacity=allocatable.amounts(snapshot.node.capacity),
        colocation=snapshot.slo.colocation,
        reclaimable=spare.least if spare else NO_USE,
        used=used,
        reserved=mid.system_reserved(**offer.common_terms(snapshot, used, offered_to=mid.MID_AND_BELOW)._asdict()),
        requested=mid.prod_requests(snapshot.pods),
    )
    amounts: dict[str, tuple[int | None, Evidence]] = {
        resource: (terms.result, _evidence(terms) | _predicted(snapshot, config, spare, resource))
        for resource, terms in zip(RESOURCES, results, strict=True)
    }
    yield from offer.published(snapshot, "MidAllocatable", amounts)


def reclaimable(snapshot: NodeSnapshot) -> Reclaimable | None:
    """Requests of prod pods that they are not expected to use; None while too little is known."""
    offered = allocatable.amounts(snapshot.notes.kubelet_allocatable(snapshot.node))
    return prediction.reclaimable(prediction=snapshot.prediction, pods=snapshot.pods, offered=offered)


def _predicted(snapshot: Snapshot, config: Config, spare: Reclaimable | None, resource: str) -> Evidence:
    """Answer of both predictors, or the time until there is one."""
    if not config.predict:
        return {}
    if spare is None:
        history_seconds = snapshot.prediction.known_seconds if snapshot.prediction else 0.0
        return {"cold_seconds": round(max(config.cold_start_seconds - history_seconds, 0))}
    by_pod, by_priority = spare.by_pod.reclaimable, spare.by_priority.reclaimable
    of_cpu = resource == keys.MID_CPU
    return {
        "by_pod": by_pod.cpu if of_cpu else by_pod.memory,
        "by_priority": by_priority.cpu if of_cpu else by_priority.memory,
    }


def _evidence(terms: Terms) -> Evidence:
    numbers = {"node_capacity": terms.node_capacity, "threshold_percent": terms.threshold_percent}
    if terms.static:
        return {"result": terms.result, "mode": "static", "static_percent": terms.static_percent, **numbers}
    names = ("prod_reclaimable", "node_unused", "unallocated", "unallocated_percent")
    return {"result": terms.result, "mode": "dynamic", **numbers, **{name: getattr(terms, name) for name in names}}
