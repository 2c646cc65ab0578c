"""The plan as plain data, for `--output json`. Sorted and without a clock: the same picture gives the same bytes.

`docs/schemas/descheduler-report.schema.json` describes it; whoever adds a field adds it there.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

from descheduler.fit.search import Place, Search
from descheduler.framework import Finding
from descheduler.plan import Attempt, EvictionPlan, NodeChange, Outcome, ZoneChange
from koordlite.model import printable

API_VERSION = "descheduler.koordlite.io/v1alpha1"
Object = dict[str, Any]
_NODES_LISTED = 200
"""The answer of each node is listed up to so many nodes; of more, only the counts by reason."""


def encode(plan: EvictionPlan, attempts: tuple[Attempt, ...], *, dry: bool = True, failure: str = "") -> str:
    """The JSON text, indented, ending in a newline. `failure`: why a later cycle came to no plan."""
    conditions = {"conditions": [_failed(failure)]} if failure else {}
    made = json.dumps({**document(plan, attempts, dry=dry), **conditions}, indent=2, ensure_ascii=False)
    return printable.in_json(made) + "\n"


def document(plan: EvictionPlan, attempts: tuple[Attempt, ...], *, dry: bool = True) -> Object:
    """The whole plan. `dry`: nothing was meant to be evicted."""
    view = plan.view
    return {
        "apiVersion": API_VERSION,
        "kind": "EvictionPlan",
        "dryRun": dry,
        "time": view.time,
        "timeSource": view.time_source,
        "summary": {
            "nodes": len(view.nodes),
            "pods": sum(1 for _ in view.pods()),
            "found": len(plan.outcomes),
            "evict": len(plan.evict),
            "spare": len(plan.spare),
            "sparedBy": dict(plan.spared_by),
            "plugins": list(plan.plugins),
        },
        "plugins": list(by_plugin(plan)),
        "evict": [outcome_object(o) for o in plan.evict],
        "spare": [outcome_object(o) for o in plan.spare],
        "leftByLimits": left_by_limits(plan),
        "requests": [attempt.request for attempt in attempts],
        "results": [{"pod": a.pod, "uid": a.uid, "result": a.result, "text": a.text} for a in attempts],
        "nodes": [_node(change) for change in plan.nodes],
        "notes": [dataclasses.asdict(note) for note in plan.notes],
        "snapshot": {"notes": list(view.notes), "problems": [dataclasses.asdict(p) for p in view.problems]},
    }


def _failed(why: str) -> Object:
    return {"type": "LastCycleFailed", "status": "True", "message": why}


def by_plugin(plan: EvictionPlan) -> Iterator[Object]:
    """What each plugin found, in the order of the policy."""
    found = {name: Counter[str]() for name in plan.plugins}
    pods = {name: Counter[str]() for name in plan.plugins}
    for outcome in plan.outcomes:
        for finding in outcome.findings:
            found[finding.plugin][finding.reason] += 1
        for name in {finding.plugin for finding in outcome.findings}:
            pods[name][outcome.verdict] += 1
    for name in plan.plugins:
        notes = sum(note.plugin == name for note in plan.notes)
        counts = {"evict": pods[name]["evict"], "spare": pods[name]["spare"], "notes": notes}
        yield {"name": name, "findings": dict(sorted(found[name].items())), **counts}


def left_by_limits(plan: EvictionPlan) -> Object:
    """What would go if it were not for a limit: pods by limit. Guards and the fit have nothing against them."""
    return {reason: count for reason, count in plan.spared_by.items() if is_limit(reason)}


def is_limit(reason: str) -> bool:
    """The word of a limit, a budget or a pause: the pod goes in a later cycle, if things stay so."""
    return reason.startswith("Limit") or reason in _LATER


_LATER = ("DisruptionBudget", "OutsideWindow", "OwnerDelay", "BackOff")


def outcome_object(outcome: Outcome) -> Object:
    """One pod's answer."""
    pod = outcome.pod
    return {
        "pod": pod.key,
        "uid": pod.uid,
        "node": pod.node,
        "owner": pod.owner,
        "qosClass": str(pod.pod.qos_class),
        "priority": pod.pod.priority,
        "ageSeconds": None if pod.age_seconds is None else round(pod.age_seconds),
        "verdict": outcome.verdict,
        "profile": outcome.profile,
        "target": outcome.target,
        "findings": [_finding(f) for f in outcome.findings],
        "sparedBecause": [{"reason": r.reason, "text": r.text} for r in outcome.reasons],
        "fit": _search(outcome.search) if outcome.search else None,
    }


def _finding(finding: Finding) -> Object:
    return {
        "plugin": finding.plugin,
        "reason": finding.reason,
        "severity": finding.severity,
        "container": finding.container,
        "promise": finding.promise,
        "fact": finding.fact,
        "cure": finding.cure,
        "evidence": dict(finding.evidence),
        "weight": round(finding.weight, 3),
    }


def _search(search: Search) -> Object:
    by_node = search.by_node
    return {
        "places": [_place(place) for place in search.places],
        "whyNot": dict(sorted(search.why_not.items())),
        "byNode": dict(sorted(by_node.items())) if len(by_node) <= _NODES_LISTED else {},
        "unasked": search.unasked,
    }


def _place(place: Place) -> Object:
    return {"node": place.node, "sameNode": place.here, "numaNodes": sorted({zone for zone, _ in place.bookings})}


def _node(change: NodeChange) -> Object:
    return {
        "name": change.node,
        "allocatable": {"cpuMilli": change.cpu_milli, "memoryBytes": change.memory},
        **{when: _load(getattr(change, when)) for when in ("before", "after")},
        "zones": [_zone(zone) for zone in change.zones],
    }


def _zone(zone: ZoneChange) -> Object:
    loads = {"before": zone.before, "after": zone.after}
    return {
        "numaNode": zone.zone,
        "cpus": zone.cpus,
        "reservedCPUs": zone.reserved,
        **{
            when: {"exclusiveCPUs": load.exclusive, "sharedCPUs": load.shared, "memoryBytes": load.memory}
            for when, load in loads.items()
        },
    }


def _load(load: Any) -> Object:
    return {"pods": load.pods, "cpuMilli": load.cpu_milli, "memoryBytes": load.memory, "wrongPods": load.wrong}
