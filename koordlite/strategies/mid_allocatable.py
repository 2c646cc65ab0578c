"""What pods of priority mid may request on this node: mid-cpu and mid-memory, worked out and published.

The formula is `formulas.allocatable.mid.mid`. Nothing on the node predicts what prod pods will leave unused of their
requests, so that term is 0: outside static mode a share of what prod pods did not request is offered.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from koordlite.changes.node_resource import NodeResourceChange
from koordlite.formulas.allocatable import allocatable, mid
from koordlite.formulas.allocatable.mid import Terms
from koordlite.model import keys
from koordlite.model.decision import Decision
from koordlite.model.picture.usage import Use
from koordlite.model.settings import StrategySettings
from koordlite.model.snapshot import NodeSnapshot, Snapshot
from koordlite.strategies.shared import offer
from koordlite.strategies.shared.offer import Evidence

RESOURCES = (keys.MID_CPU, keys.MID_MEMORY)
PUBLISHES = RESOURCES


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Config(StrategySettings):
    """Section `midAllocatable`. Mode and percentages come from the ConfigMap key `colocation-config`."""


def without_node(seen: Snapshot, config: Config) -> Iterator[Decision]:
    """Nothing is judged before the Node has been seen."""
    yield Decision("node", "skip", "NoNode")


def decide(seen: NodeSnapshot, config: Config) -> Iterator[Decision]:
    """One decision for each of the two resources."""
    nothing = offer.withheld(seen, RESOURCES)
    yield from nothing
    if nothing or seen.average.node is None:
        return
    found = dict(zip(RESOURCES, _terms(seen, seen.average.node), strict=True))
    why = offer.why_due(seen, {resource: terms.result for resource, terms in found.items()})
    for resource, terms in found.items():
        changes = (NodeResourceChange(resource, terms.result),) if why else ()
        evidence = _evidence(terms) | ({"sync": why} if why else {})
        yield Decision(f"node/{resource}", "set" if changes else "hold", "MidAllocatable", evidence, changes)


def _terms(seen: NodeSnapshot, used: Use) -> tuple[Terms, Terms]:
    average, node = seen.average, seen.node
    return mid.mid(
        capacity=allocatable.amounts(node.capacity),
        colocation=seen.slo.colocation,
        reclaimable=allocatable.NOTHING,
        used=used,
        kept=mid.kept(
            system=allocatable.system_use(node=used, pods=average.pods.values(), host_apps=average.host_apps.values()),
            host_apps=allocatable.host_app_use(
                applications=seen.slo.host_applications, usage=average.host_apps, offered_to=mid.MID_AND_BELOW
            ),
            reserved=allocatable.reserved_use(node=node, notes=seen.notes, reserved=seen.reserved.resources),
        ),
        requested=mid.prod_requests(seen.pods),
    )


def _evidence(terms: Terms) -> Evidence:
    if terms.static:
        return {
            "result": terms.result,
            "mode": "static",
            "node_capacity": terms.node_capacity,
            "static_percent": terms.static_percent,
            "threshold_percent": terms.threshold_percent,
        }
    return {
        "result": terms.result,
        "mode": "dynamic",
        "node_capacity": terms.node_capacity,
        "prod_reclaimable": terms.prod_reclaimable,
        "node_unused": terms.node_unused,
        "unallocated": terms.unallocated,
        "unallocated_percent": terms.unallocated_percent,
        "threshold_percent": terms.threshold_percent,
    }


SENTENCES = {
    **offer.SENTENCES,
    "MidAllocatable": (
        "{result!}, {mode!}: at most {threshold_percent!} of capacity {node_capacity!}"
        "[; {static_percent!} of it][; reclaimable from prod pods {prod_reclaimable!}]"
        "[; {unallocated_percent!} of the {unallocated!} that no pod requested][; published: {sync!}]"
    ),
}
