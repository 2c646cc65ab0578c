"""Ties between the pods of a picture: declared ones, and measured ones that have lasted."""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping

import msgspec

from koordlite.formulas.topology.affinity import Tie
from koordlite.model import keys
from koordlite.model.pod.values import Pod
from koordlite.model.snapshot import Snapshot
from koordlite.strategies.shared.affinity import AffinityMemory

_WORD = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?\Z")


class Thresholds(msgspec.Struct, frozen=True, kw_only=True):
    """When pods belong together."""

    join_percent: float
    stay_percent: float
    min_connections: int
    rounds: int
    across_namespaces: bool


class Ties(msgspec.Struct, frozen=True):
    """What holds, what does not yet, and what never will."""

    lasting: tuple[Tie, ...] = ()
    """Declared ones first, then those with most connections."""
    pending: tuple[tuple[Tie, int], ...] = ()
    """Above the threshold, but in fewer rounds (the number) than it takes."""
    foreign: tuple[Tie, ...] = ()
    """Above it, but between namespaces."""
    partners: Mapping[str, frozenset[str]] = msgspec.field(default_factory=dict)
    """By uid: with whom it still talks enough to stay where it is."""
    streaks: Mapping[str, int] = msgspec.field(default_factory=dict)
    """What is to be remembered of them."""
    new_round: bool = False
    """There was a count since the last look."""


def found(seen: Snapshot, pods: Mapping[str, Pod], memory: AffinityMemory, limits: Thresholds) -> Ties:
    """The ties between `pods`, given what the last look left."""
    rounds = seen.affinity.connections.rounds if seen.affinity.connections else 0
    new_round = rounds != memory.round
    lasting, partners = list(_declared(pods)), defaultdict[str, set[str]](set)
    pending, foreign, streaks = [], [], dict[str, int]()
    for tie in _measured(seen, pods):
        alike = limits.across_namespaces or pods[tie.first].namespace == pods[tie.second].namespace
        if alike and tie.percent >= limits.stay_percent:
            partners[tie.first].add(tie.second)
            partners[tie.second].add(tie.first)
        if tie.percent < limits.join_percent or tie.connections < limits.min_connections:
            continue
        if not alike:
            foreign.append(tie)
            continue
        key = f"{tie.first}/{tie.second}"
        lasted = streaks[key] = min(memory.streaks.get(key, 0) + new_round, limits.rounds)
        if lasted >= limits.rounds:
            lasting.append(tie)
        else:
            pending.append((tie, lasted))
    for tie in lasting:
        partners[tie.first].add(tie.second)
        partners[tie.second].add(tie.first)
    held = {uid: frozenset(others) for uid, others in partners.items()}
    return Ties(tuple(lasting), tuple(pending), tuple(foreign), held, streaks, new_round)


def groups(pods: Iterable[Pod]) -> tuple[dict[tuple[str, str], list[Pod]], dict[str, str]]:
    """Pods by namespace and the word of their annotation, and by uid the words that are none."""
    alike: dict[tuple[str, str], list[Pod]] = defaultdict(list)
    refused: dict[str, str] = {}
    for pod in pods:
        word = pod.annotations.get(keys.NUMA_GROUP)
        if word is None:
            continue
        if _WORD.match(word):
            alike[pod.namespace, word].append(pod)
        else:
            refused[pod.uid] = word
    return alike, refused


def _declared(pods: Mapping[str, Pod]) -> Iterable[Tie]:
    """Each two neighbours of a group, in the order of their names: when one of them is placed, the next one follows."""
    alike, _ = groups(pods.values())
    for (_, word), members in sorted(alike.items()):
        ordered = sorted(members, key=lambda pod: pod.key)
        for first, second in itertools.pairwise(ordered):
            low, high = sorted((first.uid, second.uid))
            yield Tie(first=low, second=high, group=word)


def _measured(seen: Snapshot, pods: Mapping[str, Pod]) -> Iterable[Tie]:
    counted = seen.affinity.connections
    for talk in counted.talks if counted else ():
        if talk.first in pods and talk.second in pods:
            totals = (counted.totals.get(uid, 0) if counted else 0 for uid in (talk.first, talk.second))
            percent = max((100 * talk.connections // total for total in totals if total), default=0)
            yield Tie(first=talk.first, second=talk.second, connections=talk.connections, percent=percent)
