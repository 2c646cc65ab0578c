"""Fate of a node's extended resources: offered, written when it is due, or taken back.

Batch and mid resources follow the same rules; how much is offered is worked out elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from koordlite.changes.published import NodeResourceChange, ZoneResourceChange
from koordlite.formulas.allocatable import allocatable, node_sync
from koordlite.model.change import Change
from koordlite.model.decision import Decision, Verdict
from koordlite.model.picture.usage import Use
from koordlite.model.place import Place
from koordlite.model.pod.qos import PriorityClass
from koordlite.model.slo import settings as slo
from koordlite.model.snapshot import NodeSnapshot, Snapshot

Evidence = dict[str, int | float | str]
SETTLING = "UseWindowFilling"
"""The reason of what `settling` lets stand."""


class CommonTerms(NamedTuple):
    """Terms that the formulas of the node's batch and mid resources and those of its zones have in common."""

    system: Use
    host_apps: Use
    reserved: Use


def common_terms(snapshot: NodeSnapshot, used: Use, *, offered_to: Collection[PriorityClass]) -> CommonTerms:
    """The terms; the node's mean use is `used`, and the host applications of `offered_to` use what is offered."""
    average, apps = snapshot.average, snapshot.slo.host_applications
    return CommonTerms(
        allocatable.system_use(node=used, pods=average.pods.values(), host_apps=average.host_apps.values()),
        allocatable.host_app_use(applications=apps, usage=average.host_apps, offered_to=offered_to),
        allocatable.reserved_use(node=snapshot.node, notes=snapshot.notes, reserved=snapshot.reserved.resources),
    )


def withheld(snapshot: NodeSnapshot, resources: Sequence[str]) -> tuple[Decision, ...]:
    """Reason why nothing is offered at present, and what is taken back for it; nothing when there is no such reason."""
    if not snapshot.node.capacity_milli:
        return (Decision("node", "skip", "NoNode"),)
    colocation = snapshot.slo.colocation
    if not colocation.enable:
        return tuple(_withdrawals(snapshot, resources, "ColocationDisabled", {}))
    if snapshot.average.node is not None:
        return ()
    age, minutes = snapshot.ages.get("usage"), colocation.degrade_time_minutes
    evidence: Evidence = {"ageSeconds": round(age or 0), "degradeTimeMinutes": minutes}
    if age is not None and node_sync.degraded(age_seconds=age, degrade_minutes=minutes):
        return tuple(_withdrawals(snapshot, resources, "DegradedNoMetrics", evidence))
    return (Decision("node", "hold", "NoMetrics", evidence),)


def why_due(snapshot: Snapshot, amounts: Mapping[str, int | None]) -> str:
    """Reason why these amounts have to be written onto the Node; empty when they need not."""
    published, colocation = snapshot.published, snapshot.slo.colocation
    times = [published.last_sync.get(NodeResourceChange(resource, None).place) for resource in amounts]
    written = [time for time in times if time is not None]
    return node_sync.must_sync(
        old={resource: published.node_resources.get(resource) for resource in amounts},
        new=amounts,
        threshold=colocation.resource_diff_threshold,
        since_last_seconds=snapshot.time - min(written) if len(written) == len(times) else None,
        update_seconds=colocation.update_time_threshold_seconds,
    )


def settling(snapshot: Snapshot, standing: Mapping[Place, object]) -> Evidence:
    """Seconds for which what an earlier run published stays; empty when it does not.

    The first samples of a run say little: offers made of them would jump at every restart. `standing` is what the
    cluster shows by place, None where there is nothing; what this run has written follows its own use.
    """
    left_seconds, written = snapshot.use_window_left_seconds, snapshot.published.last_sync
    if not left_seconds or any(amount is None or place in written for place, amount in standing.items()):
        return {}
    window = slo.collect_policy(snapshot.slo.colocation).metric_aggregate_duration_seconds
    return {"atLeastSeconds": round(window - left_seconds), "windowLeftSeconds": math.ceil(left_seconds)}


def published(
    snapshot: Snapshot,
    reason: str,
    amounts: Mapping[str, tuple[int | None, Evidence]],
    besides: Mapping[str, Sequence[Change]] = {},
) -> Iterator[Decision]:
    """Decide about each resource: its amount onto the Node when that is due, or what stands there while the first
    samples of a run say little. Evidence comes with each amount, `besides` are changes that go with it."""
    standing = {name: snapshot.published.node_resources.get(name) for name in amounts}
    wait = settling(snapshot, {NodeResourceChange(name, None).place: amount for name, amount in standing.items()})
    why = "" if wait else why_due(snapshot, {name: amount for name, (amount, _) in amounts.items()})
    for name, (amount, evidence) in amounts.items():
        changes: tuple[Change, ...] = (NodeResourceChange(name, amount), *besides.get(name, ())) if why else ()
        state: Evidence = {"published": standing[name] or 0, **wait} if wait else {"sync": why} if why else {}
        verdict: Verdict = "set" if changes else "hold"
        yield Decision(f"node/{name}", verdict, SETTLING if wait else reason, evidence | state, changes)


def _withdrawals(snapshot: Snapshot, resources: Sequence[str], reason: str, evidence: Evidence) -> Iterator[Decision]:
    """The resources go from the Node and its zones; what never had them is left alone."""
    for resource in resources:
        there = snapshot.published.node_resources.get(resource) is not None
        changes: tuple[Change, ...] = (NodeResourceChange(resource, None),) if there else ()
        yield Decision(f"node/{resource}", "release" if changes else "hold", reason, evidence, changes)
    for zone in snapshot.published.zones:
        names = [resource.name for resource in zone.resources or () if resource.name in resources]
        if names:
            changes = tuple(ZoneResourceChange(zone.name, resource, None) for resource in names)
            yield Decision(f"zone/{zone.name}", "release", reason, evidence, changes)
