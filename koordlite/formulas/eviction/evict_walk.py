"""Walk through the candidates: those of several tasks taken in order until what is to be released is.

A pod counts with the larger of what each task sees in it, never with the sum, and what already leaves is taken off
first. Source: Koordinator `KillAndEvictPods`; where we differ, docs/compatibility.md has the reason.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal

import msgspec

LEAVING_SECONDS = 120.0
"""Time for which a pod on its way out counts as gone. Koordinator forgets its own evictions after two minutes."""

Amounts = Mapping[str, int]
Fate = Literal["chosen", "leaving", "refused", "nothing", "enough", "later", "reach"]
"""chosen: to be evicted; leaving: on its way out, counted; refused: the cluster refused lately; nothing: it releases
nothing of what is missing; enough: the others suffice; later: the round is full; reach: all candidates together do not
suffice."""


class Task(msgspec.Struct, frozen=True):
    """Amount that one feature wants released, and the pods it may take for it, by uid, in order."""

    feature: str
    target: str
    to_release: Amounts
    candidates: Sequence[str]
    contributions: Mapping[str, Amounts]
    """Amounts each pod would release, by uid. Pods beyond the candidates are for counting those that leave anyway."""
    least: Amounts | None = None
    """Amounts that must be in reach if any pod is to go; empty: as far as it helps; None: all of `to_release`."""


class Walk(msgspec.Struct, frozen=True):
    """Result of a walk."""

    fates: Mapping[tuple[str, str], Fate]
    """Fate of each candidate, by feature and uid."""
    released: Mapping[str, Amounts]
    """Amounts released of each target, once all chosen and leaving pods are gone."""
    within_reach: Mapping[str, Amounts] = msgspec.field(default_factory=dict)
    """Amounts that all candidates would release, by each feature for which they do not suffice."""


def walk(
    tasks: Sequence[Task],
    *,
    leaving: Collection[str] = (),
    refused: Collection[str] = (),
    most: int | None = None,
    partly: bool = True,
) -> Walk:
    """Take the candidates of each task in order; at most `most` pods are chosen in all.

    Without `partly` nobody goes for a task whose candidates together do not suffice, in this round and later ones.
    """
    due = [task for task in tasks if any(amount > 0 for amount in task.to_release.values())]
    released: dict[str, dict[str, int]] = {task.target: {} for task in due}
    for uid in sorted(leaving):
        _add(released, contribution(uid, due))
    victims: set[str] = set()
    fates: dict[tuple[str, str], Fate] = {}
    within_reach: dict[str, Amounts] = {}
    for task in due:
        lacking: dict[str, int] = {}
        if not partly:
            # What stays short when all candidates go, and so much of it they release.
            reach = {task.target: dict(released[task.target])}
            for uid in task.candidates:
                if not (uid in leaving or uid in refused or uid in victims):
                    _add(reach, {task.target: contribution(uid, due).get(task.target, {})})
            least, all_of_it = task.to_release if task.least is None else task.least, reach[task.target]
            lacking = {name: all_of_it.get(name, 0) for name in remaining(least, all_of_it)}
        if lacking:
            within_reach[task.feature] = lacking
        for uid in task.candidates:
            fate = "chosen" if uid in victims else _fate(uid, task, released, leaving, refused)
            if fate == "chosen" and uid not in victims and lacking:
                fate = "reach"
            if fate == "chosen" and uid not in victims:
                fate = "later" if most is not None and len(victims) >= most else fate
                if fate == "chosen":
                    victims.add(uid)
                    _add(released, contribution(uid, due))
            fates[task.feature, uid] = fate
    return Walk(fates, released, within_reach)


def contribution(uid: str, tasks: Iterable[Task]) -> dict[str, dict[str, int]]:
    """Amounts that go with the pod, by target: of each resource the most that any task of the target sees in it."""
    total: dict[str, dict[str, int]] = {}
    for task in tasks:
        sums = total.setdefault(task.target, {})
        sums.update(larger(sums, task.contributions.get(uid, {})))
    return total


def larger(first: Amounts, second: Amounts) -> dict[str, int]:
    """Larger amount of each resource. Source: Koordinator `mergeResourceListByMax`."""
    return {
        name: max(first.get(name, second.get(name, 0)), second.get(name, first.get(name, 0)))
        for name in (*first, *(n for n in second if n not in first))
    }


def remaining(to_release: Amounts, released: Amounts) -> dict[str, int]:
    """Amounts still missing, by resource; what is not missing is not in it. Source: Koordinator
    `SubReleaseListNoNegative`."""
    missing = {name: amount - released.get(name, 0) for name, amount in to_release.items()}
    return {name: amount for name, amount in missing.items() if amount > 0}


def _fate(
    uid: str,
    task: Task,
    released: Mapping[str, Amounts],
    leaving: Collection[str],
    refused: Collection[str],
) -> Fate:
    missing = remaining(task.to_release, released[task.target])
    own = task.contributions.get(uid, {})
    if uid in leaving:
        return "leaving"
    if not missing:
        return "enough"
    if not any(own.get(name, 0) > 0 for name in missing):
        return "nothing"
    return "refused" if uid in refused else "chosen"


def _add(released: Mapping[str, dict[str, int]], more: Mapping[str, Amounts]) -> None:
    for target, amounts in more.items():
        for name, amount in amounts.items():
            released[target][name] = released[target].get(name, 0) + amount
