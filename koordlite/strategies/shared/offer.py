"""What becomes of a node's extended resources: offered, written when it is due, or taken back.

Batch and mid resources follow the same rules; how much is offered is worked out elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from koordlite.changes.node_resource import NodeResourceChange
from koordlite.changes.zone_resource import ZoneResourceChange
from koordlite.formulas.allocatable import node_sync
from koordlite.model.change import Change
from koordlite.model.decision import Decision
from koordlite.model.snapshot import NodeSnapshot, Snapshot

Evidence = dict[str, int | float | str]


def withheld(seen: NodeSnapshot, resources: Sequence[str]) -> tuple[Decision, ...]:
    """Why nothing is offered at present, and what is taken back for it; nothing when there is no such reason."""
    if not seen.node.capacity_milli:
        return (Decision("node", "skip", "NoNode"),)
    colocation = seen.slo.colocation
    if not colocation.enable:
        return tuple(_taken_back(seen, resources, "ColocationDisabled", {}))
    if seen.average.node is not None:
        return ()
    age, minutes = seen.ages.get("usage"), colocation.degrade_time_minutes
    evidence: Evidence = {"ageSeconds": round(age or 0), "degradeTimeMinutes": minutes}
    if age is not None and node_sync.degraded(age_seconds=age, degrade_minutes=minutes):
        return tuple(_taken_back(seen, resources, "DegradedNoMetrics", evidence))
    return (Decision("node", "hold", "NoMetrics", evidence),)


def why_due(seen: Snapshot, amounts: Mapping[str, int | None]) -> str:
    """Why these amounts have to be written onto the Node; empty when they need not."""
    published, colocation = seen.published, seen.slo.colocation
    times = [published.last_sync.get(NodeResourceChange(resource, None).place) for resource in amounts]
    known = [time for time in times if time is not None]
    return node_sync.must_sync(
        old={resource: published.node_resources.get(resource) for resource in amounts},
        new=amounts,
        threshold=colocation.resource_diff_threshold,
        since_last_seconds=seen.time - min(known) if len(known) == len(times) else None,
        update_seconds=colocation.update_time_threshold_seconds,
    )


def _taken_back(seen: Snapshot, resources: Sequence[str], reason: str, evidence: Evidence) -> Iterator[Decision]:
    """The resources go from the Node and its zones; what never had them is left alone."""
    for resource in resources:
        there = seen.published.node_resources.get(resource) is not None
        changes: tuple[Change, ...] = (NodeResourceChange(resource, None),) if there else ()
        yield Decision(f"node/{resource}", "release" if changes else "hold", reason, evidence, changes)
    for zone in seen.published.zones:
        held = [resource.name for resource in zone.resources or () if resource.name in resources]
        if held:
            changes = tuple(ZoneResourceChange(zone.name, resource, None) for resource in held)
            yield Decision(f"zone/{zone.name}", "release", reason, evidence, changes)


SENTENCES = {
    "ColocationDisabled": "colocation is switched off in the ConfigMap, so nothing is offered to BE",
    "DegradedNoMetrics": (
        "no usage data for {ageSeconds}, longer than {degradeTimeMinutes} minutes; the offer is withdrawn"
    ),
}
"""By reason, for the strategies that share this; see `strategies.sentences`."""
