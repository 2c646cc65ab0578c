"""Changes of all strategies merged and put in an order in which every state on the way is legal.

Rules (docs/design.md, "Every step on the way is legal"): a set that moves is first widened to the union of old and new,
parents before children, then narrowed, children before parents; a limit that grows grows from the top, one that shrinks
shrinks from the bottom; a burst is at no step above its quota; shares are not written while a group is idle; a resctrl
group exists before its schemata, its schemata before its tasks; the cluster comes last.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping

import msgspec

from koordlite.changes.eviction import EvictPod
from koordlite.model.change import Change
from koordlite.model.decision import Decision
from koordlite.model.errors import PlanConflict
from koordlite.model.picture.groups import Cgroup
from koordlite.model.place import Place


class Plan(msgspec.Struct, frozen=True):
    """Steps in the order to take them, and the claims that lost because another strategy had the place already."""

    steps: tuple[Change, ...] = ()
    conflicts: tuple[PlanConflict, ...] = ()
    owners: Mapping[Place, str] = msgspec.field(default_factory=dict)
    """Strategy that wants the change, by place."""


def make(decisions: Iterable[Decision], cgroups: Mapping[str, Cgroup]) -> Plan:
    """The plan for `decisions`, given the present values of the cgroups."""
    changes, conflicts, owners = merge(decisions)
    return Plan(order(changes, cgroups), conflicts, owners)


def merge(decisions: Iterable[Decision]) -> tuple[list[Change], tuple[PlanConflict, ...], dict[Place, str]]:
    """Keep one change a place: that of the first strategy that claims it; a different later claim is a conflict."""
    by_place: dict[Place, Change] = {}
    owners: dict[Place, str] = {}
    conflicts: list[PlanConflict] = []
    for decision in decisions:
        for change in decision.changes:
            first = by_place.setdefault(change.place, change)
            owner = owners.setdefault(change.place, decision.strategy)
            # Two strategies may want one pod gone for different reasons: it goes once.
            if first != change and not isinstance(first, EvictPod):
                conflicts.append(PlanConflict(change.place, owner, decision.strategy))
    return list(by_place.values()), tuple(conflicts), owners


def order(changes: Iterable[Change], cgroups: Mapping[str, Cgroup]) -> tuple[Change, ...]:
    """`changes` as steps whose every intermediate state the kernel accepts."""
    ranked = itertools.groupby(sorted(changes, key=_rank), _rank)
    alike = (list(group) for _, group in ranked)
    return tuple(step for group in alike for step in group[0].in_order(group, cgroups))


def _rank(change: Change) -> int:
    return change.rank
