"""Pods of one owner must not pile up on one node while others have none.

After a node failed, or when many were started at once, replicas sit together and fall together. Replicas are alike when
they have the same owners and the same images. Source: upstream RemoveDuplicates.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from descheduler.arguments.common import ANY_NAMESPACE, Namespaces
from descheduler.framework import Conversation, Finding, Handle, NodeGroup, PodView, View
from descheduler.picture.node_index import NodeIndex, index_of
from descheduler.picture.pods import SpecKey
from descheduler.picture.templates import SpecGroup, place
from descheduler.rules.pod_filter import owned_by, select_groups

NAME = "RemoveDuplicates"
POINT = "balance"
READS = ()

_Alike = tuple[str, tuple[tuple[str, str], ...], tuple[str, ...]]
"""Namespace, owners as (kind, name), images."""
_Owner = tuple[str, str, str, tuple[str, ...]]
"""Namespace, kind and name of one owner, images."""
_ByNode = dict[str, list[PodView]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """Arguments of `RemoveDuplicates`."""

    namespaces: Namespaces = ANY_NAMESPACE
    """Namespaces whose pods are judged; empty: all."""
    exclude_owner_kinds: tuple[str, ...] = ()
    """Pods with an owner of one of these kinds are not judged."""


def judge(view: View, config: Config, handle: Handle) -> Conversation:
    """A finding for each replica beyond an even share of the nodes that its owner's pods may use.

    Each owner is judged by itself: a pod that is one too many for two owners is named for both.
    """
    for (_, kind, name, _), count, targets, spare in _shares(view, config, handle):
        share = -(-count // targets)
        for node in sorted(spare):
            here = len(spare[node]) + 1
            for pod in spare[node][share - 1 :]:
                yield Finding(
                    pod=pod.uid,
                    reason="TooManyReplicasOnNode",
                    promise=f"{count} pods of {kind} {name} on {targets} nodes make {share} a node",
                    fact=f"{node} has {here} of them",
                    cure="restarts on a node that has fewer, when the scheduler spreads them",
                    evidence={"onNode": here, "share": share, "replicas": count, "nodes": targets},
                    weight=here - share,
                )


def numbers(pod: PodView, view: View, config: Config, handle: Handle) -> str:
    """Number of pods like it, on its node and in all."""
    owners = pod.object.metadata.owner_references or ()
    if not owners:
        return "it has no owner"
    groups = select_groups(view, handle.nodes, config.namespaces, None)
    own = _what_is_alike(pod)
    alike = [p.node for group in groups if _key(group) == own for p in group.pods]
    return f"{alike.count(pod.node)} of {len(alike)} pods of {owners[0].kind} {owners[0].name} are on {pod.node}"


def _shares(view: View, config: Config, handle: Handle) -> Iterator[tuple[_Owner, int, int, _ByNode]]:
    """Owners with the number of their replicas, that of the nodes these may use, and the pods of each node beyond the
    first."""
    schedulable = [node for node in handle.nodes if not node.object.spec.unschedulable]
    targets = index_of(handle.nodes if len(schedulable) == len(handle.nodes) else NodeGroup(schedulable))
    for owner, present in sorted(_owners(view, config, handle).items()):
        alike = [_evictable(groups, handle) for groups in present]
        crowded = map(_crowded, present)
        spare = _beyond_the_first(
            ([pod for pod in pods if pod.node in nodes] for pods, nodes in zip(alike, crowded, strict=True)), handle
        )
        allowed = _targets(spare, targets)
        if len(allowed) < 2:
            continue
        count = sum(map(len, alike))
        if count > len(allowed):  # How many of them may move makes a difference only then.
            count = sum([handle.movable(pod) for pods in alike for pod in pods])
        yield owner, count, len(allowed), spare


def _owners(view: View, config: Config, handle: Handle) -> dict[_Owner, list[list[SpecGroup]]]:
    """Pods that are alike, by owner, of owners that have two on some node."""
    alike: dict[_Alike, list[SpecGroup]] = defaultdict(list)
    for group in select_groups(view, handle.nodes, config.namespaces, None):
        if not (config.exclude_owner_kinds and owned_by(group.first, config.exclude_owner_kinds)):
            alike[_key(group)].append(group)
    by_owner: dict[_Owner, list[list[SpecGroup]]] = defaultdict(list)
    for key, groups in alike.items():
        namespace, owners, images = key
        for kind, name in owners:
            by_owner[namespace, kind, name, images].append(groups)
    return {owner: several for owner, several in by_owner.items() if any(map(_crowded, several))}


def _key(group: SpecGroup) -> _Alike:
    return group.once(NAME, lambda: _what_is_alike(group.first))


def _what_is_alike(pod: PodView) -> _Alike:
    owners = sorted((owner.kind, owner.name) for owner in pod.object.metadata.owner_references or ())
    images = sorted(container.image for container in pod.object.spec.containers or ())
    return pod.pod.namespace, tuple(owners), tuple(images)


def _crowded(groups: list[SpecGroup]) -> Collection[str]:
    """Nodes with two of the pods. Most owners have none, and are not looked at any closer."""
    if len(groups) == 1:
        return groups[0].crowded
    nodes = Counter(itertools.chain.from_iterable([group.nodes for group in groups]))
    shared = [name for name, count in nodes.items() if count > 1]
    return frozenset(shared).union(*[group.crowded for group in groups])


def _evictable(groups: list[SpecGroup], handle: Handle) -> Sequence[PodView]:
    """Pods of the groups that no guard speaks against, in the order of the picture."""
    several = [handle.evictable_of(group) for group in groups]
    return several[0] if len(several) == 1 else sorted(itertools.chain(*several), key=place)


def _beyond_the_first(alike: Iterable[Sequence[PodView]], handle: Handle) -> _ByNode:
    """All movable pods of a node but the first of each group of pods that are alike. Those that go anyway come last, so
    that they go for this too, and no other pod does."""
    spare: _ByNode = defaultdict(list)
    for pods in alike:
        for node, together in itertools.groupby(pods, key=lambda pod: pod.node):
            here = list(together)
            if len(here) > 1:
                spare[node] += sorted(filter(handle.movable, here), key=handle.going)[1:]
    return {node: sorted(pods, key=lambda pod: (handle.going(pod), pod.key)) for node, pods in spare.items() if pods}


def _targets(spare: Mapping[str, list[PodView]], nodes: NodeIndex) -> frozenset[str]:
    """Nodes that the pods may use. A pod that may use one node only adds none.

    Unlike upstream, cordoned nodes are none of them: what goes would come back.
    """
    allowed: frozenset[str] = frozenset()
    specs: set[SpecKey] = set()
    for pods in spare.values():
        for pod in pods:
            if pod.template.spec in specs:
                continue
            specs.add(pod.template.spec)
            one = nodes.allowed(pod.object.spec)
            if len(one) > 1:
                allowed = allowed | one if allowed else one
    return allowed
