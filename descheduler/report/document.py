"""The plan as plain data, for `--output json`. Sorted and without a clock: the same picture gives the same bytes.

`docs/schemas/descheduler-report.schema.json` describes it; whoever adds a field adds it there.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from descheduler.fit.node_rules import Group
from descheduler.fit.search import Place, Search
from descheduler.framework import Finding
from descheduler.plan import Attempt, EvictionPlan, NodeChange, Outcome, ZoneChange
from koordlite.model import printable

API_VERSION = "descheduler.koordlite.io/v1alpha1"
Object = dict[str, Any]
PLACES = 3
"""Maximum number of listed nodes that a pod would fit on."""
MANY_NODES = 200
"""Number of nodes beyond which only the target of a leaving pod is reported, and no other place."""
REQUESTS = 1000
"""Maximum number of listed requests that a dry run would send."""
_write = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_write_member = msgspec.json.Encoder().encode
"""Several times as fast. What is in lists comes from the API, whose texts are all valid Unicode."""


def encode(plan: EvictionPlan, attempts: tuple[Attempt, ...], *, dry: bool = True, failure: str = "") -> str:
    """The JSON text, ending in a newline. `failure`: why a later cycle came to no plan."""
    return "".join(pieces(plan, attempts, dry=dry, failure=failure))


def pieces(plan: EvictionPlan, attempts: tuple[Attempt, ...], *, dry: bool = True, failure: str = "") -> Iterator[str]:
    """The same in pieces, since a report may be larger than all it was made of. Each member of a list is a line."""
    conditions = {"conditions": [{"type": "LastCycleFailed", "status": "True", "message": failure}]} if failure else {}
    before = "{\n"
    for name, value in {**_document(plan, attempts, dry=dry), **conditions}.items():
        yield f"{before}  {_write(name)}: "
        before = ",\n"
        if not isinstance(value, Iterator):
            yield printable.in_json(_write(value))
            continue
        opening = "["
        for member in value:
            yield f"{opening}\n    {printable.in_json(_write_member(member).decode())}"
            opening = ","
        yield "[]" if opening == "[" else "\n  ]"
    yield "\n}\n"


def _document(plan: EvictionPlan, attempts: tuple[Attempt, ...], *, dry: bool) -> Object:
    """The whole plan; long lists are iterators. `dry`: nothing was meant to be evicted."""
    view, listed = plan.view, attempts[:REQUESTS] if dry else attempts
    outcomes = _Outcomes(plan)
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
            "kept": len(plan.kept),
            "keptBy": dict(plan.kept_by),
            "notJudged": plan.not_judged,
            "notJudgedBy": dict(plan.not_judged_by),
            "plugins": list(plan.plugins),
        },
        "warnings": warnings(plan),
        "plugins": ({**one, **outcomes.common_words(one["name"])} for one in by_plugin(plan)),
        "evict": map(outcomes.of, plan.evict),
        "kept": map(outcomes.of, plan.kept),
        "owners": outcomes.owners(),
        "refusals": outcomes.refusals(),
        "leftByLimits": left_by_limits(plan),
        "requests": (attempt.request for attempt in listed if attempt.request),
        "results": ({"pod": a.pod, "uid": a.uid, "result": a.result, "text": a.text} for a in listed),
        "nodes": map(_node, plan.nodes),
        "deletionCosts": (
            {"pod": view.by_uid[cost.pod].key, "uid": cost.pod, "cost": cost.cost, "why": cost.why}
            for cost in plan.deletion_costs
        ),
        "notes": map(msgspec.structs.asdict, plan.notes),
        "snapshot": {"notes": list(view.notes), "problems": [dataclasses.asdict(p) for p in view.problems]},
    }


_MANY = 5
"""Fewer evictions are never worth a warning."""


def warnings(plan: EvictionPlan) -> list[str]:
    """Warn of what a person is likely not to expect of the plan, a sentence each."""
    pods = sum(1 for _ in plan.view.pods())
    if len(plan.evict) < _MANY or len(plan.evict) * 10 <= pods:
        return []
    share = f"{100 * len(plan.evict) / pods:.0f} % of all {pods} pods"
    return [f"{share} are to be evicted at once; maxNoOfPodsToEvictTotal and pacing limit that"]


def by_plugin(plan: EvictionPlan) -> Iterator[Object]:
    """Counts of findings by plugin, in the order of the policy."""
    reasons = {name: Counter[str]() for name in plan.plugins}
    pods = {name: Counter[str]() for name in plan.plugins}
    for outcome in plan.outcomes:
        for finding in outcome.findings:
            reasons[finding.plugin][finding.reason] += 1
        for name in {finding.plugin for finding in outcome.findings}:
            pods[name][outcome.verdict] += 1
    for name in plan.plugins:
        notes = sum(note.plugin == name for note in plan.notes)
        counts = {"evict": pods[name]["evict"], "kept": pods[name]["kept"], "notes": notes}
        yield {"name": name, "findings": dict(sorted(reasons[name].items())), **counts}


class _Common(msgspec.Struct):
    """Words common to all findings of one plugin with one reason, which the report has once."""

    cure: str
    """Empty where it differs."""
    evidence: dict[str, int | float | str]
    """Such as the plugin's arguments; empty where there is but one finding."""
    findings: int = 1


def _common(plan: EvictionPlan) -> Mapping[tuple[str, str], _Common]:
    """Common words by plugin and reason."""
    by_reason: dict[tuple[str, str], _Common] = {}
    for finding in (finding for outcome in plan.outcomes for finding in outcome.findings):
        common = by_reason.get((finding.plugin, finding.reason))
        if common is None:
            by_reason[finding.plugin, finding.reason] = _Common(finding.cure, dict(finding.evidence))
            continue
        common.findings += 1
        if common.cure != finding.cure:
            common.cure = ""
        if common.evidence and common.evidence.items() - finding.evidence.items():
            common.evidence = dict(sorted(common.evidence.items() & finding.evidence.items()))
    for common in by_reason.values():
        common.evidence = common.evidence if common.findings > 1 else {}
    return by_reason


def left_by_limits(plan: EvictionPlan) -> Object:
    """Number of pods that only a limit keeps, by limit. Guards and the fit have nothing against them."""
    return {reason: count for reason, count in plan.kept_by.items() if reason.startswith("Limit") or reason in _LATER}


_LATER = ("DisruptionBudget", "OutsideWindow", "OwnerDelay", "BackOff")
"""Words of budgets and pauses: as with a limit, the pod goes in a later cycle, if things stay so."""


class _Outcomes:
    """Answers for pods. Why nodes refuse is written once for all pods that hear the same."""

    def __init__(self, plan: EvictionPlan) -> None:
        self._many = len(plan.view.nodes) > MANY_NODES
        self._common = _common(plan)
        self._owners: dict[str, Object] = {}
        self._numbers: dict[tuple[str, Group], int] = {}

    def common_words(self, plugin: str) -> Object:
        """Words of each reason that `of` leaves out of the plugin's findings, because all of them say it."""
        own = {reason: same for (name, reason), same in sorted(self._common.items()) if name == plugin}
        cures = {reason: same.cure for reason, same in own.items() if same.cure}
        return {"cures": cures, "evidence": {reason: same.evidence for reason, same in own.items() if same.evidence}}

    def of(self, outcome: Outcome) -> Object:
        """The answer for a pod."""
        pod = outcome.pod
        refusals = [{"reason": r.reason, "text": r.text} for r in outcome.reasons]
        # QoS class and priority, of a pod whose owner has others, or that has no owner.
        own: Object = {"qosClass": str(pod.pod.qos_class), "priority": pod.pod.priority}
        return {
            "pod": pod.key,
            "uid": pod.uid,
            "node": pod.node,
            "owner": pod.owner,
            **(own if not pod.owner or self._owners.setdefault(pod.owner, own) != own else {}),
            "ageSeconds": None if outcome.age_seconds is None else round(outcome.age_seconds),
            "verdict": outcome.verdict,
            "profile": outcome.profile,
            "target": outcome.target,
            "findings": [self._finding(f) for f in outcome.findings],
            **({"keptBecause": refusals} if refusals else {}),
            **({"together": list(outcome.together)} if outcome.together else {}),
            "fit": self._search(outcome, outcome.search) if outcome.search else None,
        }

    def owners(self) -> Iterator[Object]:
        """Owners that `of` has met so far, each as its first pod."""
        for owner, own in self._owners.items():
            yield {"owner": owner, **own}

    def refusals(self) -> Iterator[Object]:
        """Refusals that `of` has numbered so far, by number."""
        for why, group in self._numbers:
            yield {"reason": why, "nodes": group.nodes, "examples": list(group.examples)}

    def _finding(self, finding: Finding) -> Object:
        """A finding without what is empty, said of the pod as a whole, or common to all findings like it."""
        same = self._common[finding.plugin, finding.reason]
        more = {
            "severity": "" if finding.severity == "hard" else finding.severity,
            "container": "" if finding.container == "*" else finding.container,
            "promise": finding.promise,
            "fact": finding.fact,
            "cure": "" if same.cure else finding.cure,
            "evidence": {name: value for name, value in finding.evidence.items() if name not in same.evidence},
            "weight": round(finding.weight, 3),
        }
        about = {"plugin": finding.plugin, "reason": finding.reason}
        return {**about, **{name: value for name, value in more.items() if value}}

    def _search(self, outcome: Outcome, search: Search) -> Object:
        why_not = [
            self._numbers.setdefault((why, group), len(self._numbers)) for why, group in sorted(search.groups.items())
        ]
        if self._many and outcome.target and not any(p.here or p.bookings for p in search.places[:1]):
            return {"whyNot": why_not}
        return {"places": [_place(place) for place in search.places[:PLACES]], "whyNot": why_not}


def _place(place: Place) -> Object:
    zones = sorted({zone for zone, _ in place.bookings})
    here: Object = {"sameNode": True} if place.here else {}
    return {"node": place.node, **here, **({"numaNodes": zones} if zones else {})}


def _node(change: NodeChange) -> Object:
    loads = {"before": change.before, "after": change.after}
    return {
        "name": change.node,
        "allocatable": {"cpuMilli": change.cpu_milli, "memoryBytes": change.memory},
        **{
            when: {"pods": each.pods, "cpuMilli": each.cpu_milli, "memoryBytes": each.memory, "wrongPods": each.wrong}
            for when, each in loads.items()
        },
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
