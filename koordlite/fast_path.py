"""An extra round between two ticks: which rules it asks, what they may do, and when none is needed.

After a surge only limits move, and only down. After new groups all rules are asked, and only the files of these groups
are written. Growth and everything else wait for the tick, whose pace the steps and windows of the rules are made for.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec

from koordlite.changes.cgroup import CgroupChange
from koordlite.changes.core_cookie import CoreCookieChange
from koordlite.model.decision import CPULimit, Decision
from koordlite.model.snapshot import Snapshot, has_node
from koordlite.model.status import AppliedStep
from koordlite.observe import fast_snapshot
from koordlite.strategies import Strategy, discover, limiting


def pictures(snapshot: Snapshot, groups: Collection[str]) -> Callable[[Strategy], Snapshot]:
    """Picture for each strategy in a round about new groups: as in the tick before, with only their pods."""
    part = fast_snapshot.of_groups(snapshot, groups)
    alone = dataclasses.replace(part, pods=tuple(pod for pod in snapshot.pods if pod.uid in part.places))
    by_need = {"all": part, "theirs": alone}
    return lambda rule: part if rule.surge_edge_milli else by_need.get(rule.new_containers, alone)


def new_group_rules(enforced: Collection[str]) -> frozenset[str]:
    """The rules, of those that are enforced, that are asked about new groups."""
    return frozenset(rule.name for rule in discover() if rule.new_containers != "none" and rule.name in enforced)


def edge_milli(
    decisions: Sequence[Decision],
    applied: Iterable[AppliedStep],
    snapshot: Snapshot,
    *,
    modes: Mapping[str, str],
    band_percent: float,
) -> int | None:
    """Use of everything but best effort above which a limit in force is too high; None when none can shrink.

    `snapshot` is the picture that `decisions` are about, `applied` the writes that followed.
    """
    if not has_node(snapshot):
        return None
    refused = {step.place for step in applied if not step.ok}
    surge_edges = {each.name: each.surge_edge_milli for each in limiting() if modes.get(each.name) == "enforce"}
    edges = []
    for decision in decisions:
        limit, edge_of = decision.outcome, surge_edges.get(decision.strategy)
        if edge_of and isinstance(limit, CPULimit):
            if any(change.place in refused for change in decision.changes):
                # A write was refused: the limit before it is in force.
                limit = msgspec.structs.replace(limit, limit_milli=limit.present_milli)
            edges.append(edge_of(snapshot, limit, band_percent=band_percent))
    return min((edge for edge in edges if edge is not None), default=None)


def allowed(decisions: Iterable[Decision]) -> tuple[Decision, ...]:
    """Select the decisions that make a limit tighter."""
    return tuple(decision for decision in decisions if decision.verdict == "shrink")


def about(decisions: Iterable[Decision], groups: Collection[str]) -> tuple[Decision, ...]:
    """Select the decisions that write files of `groups`, without their other changes. To remember anything is left to
    the tick."""
    narrowed = []
    for decision in decisions:
        files = (c for c in decision.changes if isinstance(c, CgroupChange | CoreCookieChange))
        if changes := tuple(change for change in files if change.group in groups):
            narrowed.append(msgspec.structs.replace(decision, changes=changes, remember=None))
    return tuple(narrowed)


def new_groups(before: Snapshot, snapshot: Snapshot, groups: Collection[str]) -> frozenset[str]:
    """The groups of pods that are to get their values before the tick: those in `groups`, those that `before` did not
    show, and the pods' groups above them, whose quotas on cgroup v1 have to grow first."""
    touched, places_before = fast_snapshot.with_parents(groups), before.places
    places = [p for uid, p in snapshot.places.items() if p.group in touched or p is not places_before.get(uid)]
    theirs = (group for place in places for group in place.all)
    fresh = frozenset(g for g in theirs if g in snapshot.cgroups and (g in groups or g not in before.cgroups))
    return fresh | {place.group for place in places if not fresh.isdisjoint(place.all)} & snapshot.cgroups.keys()


def added(before: Sequence[Decision], fresh: Iterable[Decision]) -> tuple[Decision, ...]:
    """The decisions in force: those of the last tick, and those about subjects that it did not know."""
    subjects = {(decision.strategy, decision.subject) for decision in before}
    return (*before, *(d for d in fresh if (d.strategy, d.subject) not in subjects))


def merged(before: Sequence[Decision], fresh: Iterable[Decision]) -> tuple[Decision, ...]:
    """The decisions in force: those of the last tick, replaced where a later one is about the same subject."""
    latest = {(decision.strategy, decision.subject): decision for decision in fresh}
    current = tuple(latest.pop((decision.strategy, decision.subject), decision) for decision in before)
    return (*current, *latest.values())
