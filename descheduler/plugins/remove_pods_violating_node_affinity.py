"""Pods must be on nodes that their node affinity asks for.

The scheduler looks at affinity once. A label that was taken from a node, or a better node that came later, is nobody's
business afterwards. Source: upstream RemovePodsViolatingNodeAffinity; docs/compatibility.md lists what differs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal

from descheduler.arguments.common import PodChoice
from descheduler.framework import Conversation, Finding, Handle, NodeView, PodView, Refusal, View
from descheduler.picture.node_index import NodeIndex, index_of, node_affinity
from descheduler.picture.templates import SpecGroup, place, pods_of
from descheduler.rules.pod_filter import select_groups

NAME = "RemovePodsViolatingNodeAffinity"
POINT = "deschedule"
READS = ()

AffinityType = Literal[
    "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"
]
_NOWHERE = Refusal("NoMatchingNodeFits", "it fits on no node that matches its affinity")
_REQUIRED: AffinityType = "requiredDuringSchedulingIgnoredDuringExecution"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(PodChoice):
    """Arguments of `RemovePodsViolatingNodeAffinity`."""

    node_affinity_type: tuple[AffinityType, ...] = ()
    """Kinds of affinity that are judged: required, preferred, or both. Must be given."""
    including_node_selector: bool = False
    """Judge what is required of pods with a plain nodeSelector too, not only of those with a node affinity. Not in
    upstream."""

    def __post_init__(self) -> None:
        if not self.node_affinity_type:
            raise ValueError("nodeAffinityType is needed")


def judge(view: View, config: Config, handle: Handle) -> Conversation:
    """A finding for each pod on a node that it must not be on, or that it prefers less than one that would take it."""
    groups = select_groups(view, handle.nodes, config.namespaces, config.label_selector)
    index = index_of(handle.nodes)
    for kind in config.node_affinity_type:
        if kind == _REQUIRED:
            yield from _judge_required(groups, index, config, handle)
        else:
            yield from _judge_preferred(groups, index, view, handle)


def numbers(pod: PodView, view: View, config: Config, handle: Handle) -> str:
    """Its node among those that it asks for, and the node's weight."""
    index, affinity, words = index_of(handle.nodes), node_affinity(pod.object.spec), []
    spec = pod.object.spec
    if affinity.required is None and not spec.node_selector:
        words.append("it requires nothing of nodes")
    else:
        allowed = index.allowed_by_labels(spec)
        words.append(
            f"{pod.node} is {'one' if pod.node in allowed else 'none'} of {len(allowed)} nodes that it may use"
        )
    if affinity.preferred and len(config.node_affinity_type) > 1:
        weights = index.weights(pod)
        words.append(f"{pod.node} weighs {weights.of(view.nodes[pod.node])}, the best {weights.most}")
    return "; ".join(words)


def _judge_required(groups: Sequence[SpecGroup], index: NodeIndex, config: Config, handle: Handle) -> Conversation:
    spent, misplaced = False, list[PodView]()
    for group in groups:
        spec = group.first.object.spec
        by_selector = config.including_node_selector and spec.node_selector
        if by_selector or node_affinity(spec).required is not None:
            allowed = index.allowed_by_labels(spec)
            misplaced += [pod for pod in group.pods if pod.node not in allowed] if not group.nodes <= allowed else []
    for pod in sorted(misplaced, key=place):
        # Only another node can match. Of a pod that stays anyway it need not be asked whether one fits.
        stuck = not spent and handle.evictable(pod) and not handle.fits(pod, handle.nodes)
        verdict = yield Finding(
            pod=pod.uid,
            reason="NodeAffinityViolated",
            promise="its nodeSelector and required node affinity choose its nodes",
            fact=f"{pod.node} is none of them",
            cure="moves to a node that matches; or give the node its labels back",
            evidence={"node": pod.node, "affinity": "required"},
            kept=_NOWHERE if stuck else None,
        )
        spent = spent or (verdict is not None and verdict.stop == "total")


def _judge_preferred(groups: Sequence[SpecGroup], index: NodeIndex, view: View, handle: Handle) -> Conversation:
    for pod in pods_of(group for group in groups if node_affinity(group.first.object.spec).preferred):
        finding = _better(pod, view.nodes[pod.node], index, handle)
        verdict = (yield finding) if finding else None
        if verdict and verdict.stop == "total":
            return  # Where more pods would fit better is not worth asking when none may go.


def _better(pod: PodView, node: NodeView, index: NodeIndex, handle: Handle) -> Finding | None:
    """The finding for a pod when a node that it prefers would take it.

    Upstream asks whether any node fits, be it the better one or not, and so may evict a pod again and again.
    """
    weights = index.weights(pod)
    here = weights.of(node)
    nodes = weights.above(here)
    if not nodes or (handle.evictable(pod) and not handle.fits(pod, nodes)):
        return None
    return Finding(
        pod=pod.uid,
        reason="BetterNodeAvailable",
        promise="its preferred node affinity weighs nodes",
        fact=f"{node.name} weighs {here}, a node that it may fit on weighs more, up to {weights.most}",
        cure="moves to a node that it likes better, when the scheduler agrees",
        evidence={"node": node.name, "affinity": "preferred", "weight": here, "bestWeight": weights.most},
        weight=weights.most - here,
    )
