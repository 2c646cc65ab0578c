"""The plan as plain data, for `--output json`. Sorted and without a clock: the same picture gives the same bytes."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from descheduler.fit import Place, Search
from descheduler.framework import Finding
from descheduler.outcome import Attempt, EvictionPlan, NodeChange, Outcome

Object = dict[str, Any]


def encode(plan: EvictionPlan, attempts: tuple[Attempt, ...]) -> str:
    """The JSON text, indented, ending in a newline."""
    return json.dumps(document(plan, attempts), indent=2, ensure_ascii=False) + "\n"


def document(plan: EvictionPlan, attempts: tuple[Attempt, ...]) -> Object:
    """The whole plan."""
    view = plan.view
    return {
        "apiVersion": "descheduler.koordlite.io/v1alpha1",
        "kind": "EvictionPlan",
        "dryRun": True,
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
        "evict": [outcome_object(o) for o in plan.evict],
        "spare": [outcome_object(o) for o in plan.spare],
        "requests": [attempt.request for attempt in attempts],
        "nodes": [_node(change) for change in plan.nodes],
        "notes": [dataclasses.asdict(note) for note in plan.notes],
        "snapshot": {"notes": list(view.notes), "problems": [dataclasses.asdict(p) for p in view.problems]},
    }


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
    return {
        "places": [_place(place) for place in search.places],
        "whyNot": dict(sorted(search.why_not.items())),
        "byNode": dict(sorted(search.by_node.items())),
    }


def _place(place: Place) -> Object:
    return {"node": place.node, "sameNode": place.here, "numaNodes": sorted({zone for zone, _ in place.bookings})}


def _node(change: NodeChange) -> Object:
    return {
        "name": change.node,
        "allocatable": {"cpuMilli": change.cpu_milli, "memoryBytes": change.memory},
        **{when: _load(getattr(change, when)) for when in ("before", "after")},
    }


def _load(load: Any) -> Object:
    return {"pods": load.pods, "cpuMilli": load.cpu_milli, "memoryBytes": load.memory, "wrongPods": load.wrong}
