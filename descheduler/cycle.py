"""One cycle: picture and policy in, plan out. Pure; what carries a plan out is in `evictors`.

A pod that a plugin named is asked in this order: is the finding ripe, does a guard speak against it, would it fit
elsewhere, is there room in the limits. Each answer counts on what the plan has decided so far.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterator, Mapping

from descheduler import durations, guards, limits, selectors
from descheduler.fit import Rooms
from descheduler.framework import Finding, Note, PodView, View
from descheduler.guards import Refusal
from descheduler.limits import Budget
from descheduler.outcome import EvictionPlan, Load, NodeChange, Outcome, Profile, Setup
from descheduler.room import Room
from koordlite.model.qos import KubeQoS
from koordlite.model.quantity import NANO

Sightings = Mapping[tuple[str, str], int]
"""In how many pictures in a row, this one included, a finding was there: by pod uid and reason."""

_QOS_ORDER = {KubeQoS.BEST_EFFORT: 0, KubeQoS.BURSTABLE: 1, KubeQoS.GUARANTEED: 2}


def plan(view: View, setup: Setup, sightings: Sightings | None = None) -> EvictionPlan:
    """The plan for this picture; without `sightings`, everything is seen for the first time."""
    scope = _in_scope(view, setup.node_selector)
    budget = Budget(setup.limits, view)
    decided: dict[str, Outcome] = {}
    notes: list[Note] = []
    rooms = Rooms(view)
    for profile in setup.profiles:
        guards.check(view, profile.args)
        findings, said = _judge(scope, profile)
        notes += said
        for pod, wrong in _in_order(view, findings):
            before = decided.get(pod.uid)
            if before is None or before.verdict == "spare":
                candidate = Candidate(pod, wrong, profile, sightings or {})
                decided[pod.uid] = _merged(before, _decide(candidate, view, rooms, budget))
    return _collect(view, setup, decided, rooms, tuple(notes))


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A pod with what one profile has found against it."""

    pod: PodView
    findings: tuple[Finding, ...]
    profile: Profile
    sightings: Sightings

    def unripe(self) -> Refusal | None:
        """Why none of the findings is a reason to move the pod, or not yet."""
        hard = [f for f in self.findings if f.severity == "hard"]
        if not hard:
            return _no_move_needed(self.findings)
        waiting = [reason for f in hard if (reason := self._waits(f))]
        return waiting[0] if len(waiting) == len(hard) else None

    def _waits(self, finding: Finding) -> Refusal | None:
        if finding.spare:
            age = self.pod.age_seconds
            shown = "its age is unknown" if age is None else f"it started {durations.show(age)} ago"
            return Refusal(finding.spare, f"{shown}: too young for {finding.plugin} to be sure")
        seen = self.sightings.get((self.pod.uid, finding.reason), 1)
        if seen < finding.sightings:
            return Refusal(
                "SeenTooFewTimes", f"seen in {seen} of {finding.sightings} pictures that {finding.plugin} needs"
            )
        return None


def _no_move_needed(findings: tuple[Finding, ...]) -> Refusal:
    if any(f.severity == "fixable" for f in findings):
        return Refusal("CuredOnNode", "the agent on its node can put it right: nothing has to move")
    return Refusal("OnlyExposed", findings[0].cure)


def _in_scope(view: View, node_selector: str) -> View:
    """The view with the nodes whose pods are judged; the others only take pods in."""
    if not node_selector:
        return view
    selector = selectors.parse(node_selector)
    kept = {n: node for n, node in view.nodes.items() if selectors.labels_match(selector, node.node.labels)}
    return dataclasses.replace(view, nodes=kept)


def _judge(view: View, profile: Profile) -> tuple[dict[str, list[Finding]], list[Note]]:
    """Findings by pod uid, and notes."""
    findings: dict[str, list[Finding]] = defaultdict(list)
    notes: list[Note] = []
    for plugin, config in profile.plugins:
        for answer in plugin.judge(view, config):
            named = dataclasses.replace(answer, plugin=plugin.name)
            if isinstance(named, Note):
                notes.append(named)
            else:
                findings[named.pod].append(named)
    return findings, notes


def _in_order(view: View, findings: Mapping[str, list[Finding]]) -> Iterator[tuple[PodView, tuple[Finding, ...]]]:
    named = [pod for pod in view.pods() if pod.uid in findings]
    for pod in sorted(named, key=lambda pod: _order(pod, findings[pod.uid])):
        yield pod, tuple(findings[pod.uid])


def _order(pod: PodView, findings: list[Finding]) -> tuple[float, int, bool, float, float, str]:
    """Lowest priority first, then QoS, then those that do not mind, then the worst off, then the youngest, then names.

    Source of the first three: upstream `SortPodsBasedOnPriorityLowToHigh`.
    """
    value = pod.pod
    return (
        float("-inf") if value.priority is None else value.priority,
        _QOS_ORDER[value.kube_qos],
        guards.PREFER_NO_EVICTION in value.annotations,
        -max(f.weight for f in findings),
        float("inf") if pod.age_seconds is None else pod.age_seconds,
        pod.key,
    )


def _decide(candidate: Candidate, view: View, rooms: Rooms, budget: Budget) -> Outcome:
    pod, profile = candidate.pod, candidate.profile
    spared = Outcome(pod, candidate.findings, "spare", profile.name)
    unripe = candidate.unripe()
    refusals = ((unripe,) if unripe else ()) + guards.refusals(pod, view, profile.args)
    if refusals:
        return dataclasses.replace(spared, reasons=refusals)
    reason, text = budget.refusal(pod)
    limited = dataclasses.replace(spared, reasons=(Refusal(reason, text),))
    if reason == limits.TOTAL:
        return limited  # Nothing goes after this, so where it would fit is not worth asking every node.
    found = rooms.search(pod, profile.args.node_selector)
    if profile.args.node_fit and not found.places:
        return dataclasses.replace(spared, search=found, reasons=(Refusal("FitsNowhere", found.sentence),))
    if reason:
        return dataclasses.replace(limited, search=found)
    budget.take(pod)
    target = found.places[0].node if found.places else ""
    if found.places:
        rooms.move(pod, found.places[0])
    else:
        rooms.leave(pod)
    return dataclasses.replace(spared, search=found, verdict="evict", target=target)


def _merged(before: Outcome | None, outcome: Outcome) -> Outcome:
    """One answer a pod: the later profile's when it evicts, else the first one's; all findings are kept."""
    if before is None:
        return outcome
    chosen = outcome if outcome.verdict == "evict" else before
    known = set(map(_identity, before.findings))
    more = tuple(f for f in outcome.findings if _identity(f) not in known)
    return dataclasses.replace(chosen, findings=(*before.findings, *more))


def _identity(finding: Finding) -> tuple[str, str, str]:
    return finding.plugin, finding.reason, finding.container


def _collect(
    view: View, setup: Setup, decided: Mapping[str, Outcome], rooms: Rooms, notes: tuple[Note, ...]
) -> EvictionPlan:
    evict = tuple(o for o in decided.values() if o.verdict == "evict")
    return EvictionPlan(
        view=view,
        evict=evict,
        spare=tuple(o for o in decided.values() if o.verdict == "spare"),
        notes=tuple(dict.fromkeys(notes)),
        nodes=tuple(_changes(view, decided, rooms)),
        plugins=tuple(dict.fromkeys(plugin.name for p in setup.profiles for plugin, _ in p.plugins)),
        grace_period_seconds=setup.grace_period_seconds,
    )


def _changes(view: View, decided: Mapping[str, Outcome], rooms: Rooms) -> Iterator[NodeChange]:
    wrong = {uid for uid, o in decided.items() if o.main.severity == "hard"}
    stays = {uid for uid in wrong if decided[uid].verdict == "spare"}
    touched = {o.pod.node for o in decided.values()} | {o.target for o in decided.values() if o.target}
    for name in sorted(touched):
        before, after = Room.of(view.nodes[name]), rooms.by_node[name]
        cpu, memory = (after.allocatable.get(resource) for resource in ("cpu", "memory"))
        yield NodeChange(
            node=name,
            cpu_milli=cpu.milli if cpu else 0,
            memory=memory.value if memory else 0,
            before=_load(before, wrong),
            after=_load(after, stays),
        )


def _load(room: Room, wrong: set[str]) -> Load:
    """Arrivals keep the uid of the pod they follow, but what was wrong with that stays behind."""
    return Load(
        pods=len(room.pods),
        cpu_milli=room.requested.get("cpu", 0) // 10**6,
        memory=room.requested.get("memory", 0) // NANO,
        wrong=sum(pod.uid in wrong for pod in room.residents),
    )
