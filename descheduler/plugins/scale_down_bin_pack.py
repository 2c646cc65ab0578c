"""Pods get an order in which they should go when their owner is scaled down, so that whole nodes become empty.

Koordinator's plugin: the nodes that are nearest to being empty of everything else come first, and their largest pods
before small ones. `CalculateOnly` writes the order into the annotation that ReplicaSets obey when they shrink;
`EvictDirectly` evicts in this order.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Literal

import msgspec

from descheduler.arguments.common import MovingPods, is_selected
from descheduler.framework import Conversation, DeletionCost, Finding, Handle, NodeView, PodView, View
from descheduler.rules import pod_filter
from koordlite.model import times
from koordlite.model.settings import bounded

NAME = "ScaleDownBinPack"
POINT = "balance"
READS = ()
LAST = 2**31 - 1
"""Cost of a pod that may not be evicted: its owner should remove it after all others."""

_USUAL = {"cpu": 1.0, "memory": 1.0}


def _weights(weights: Mapping[str, float]) -> None:
    wrong = [f"{name}: {weight:g}" for name, weight in weights.items() if not 0 <= weight < math.inf]
    if wrong:
        raise ValueError(f"weights are numbers from 0, not {', '.join(wrong)}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(MovingPods):
    """Arguments of `ScaleDownBinPack`."""

    strategy: Literal["CalculateOnly", "EvictDirectly"] = "CalculateOnly"
    """CalculateOnly: write the order as `controller.kubernetes.io/pod-deletion-cost`. EvictDirectly: evict."""
    max_pods_to_evict: int | None = bounded(None, ge=0)
    """Maximum number of pods in one cycle with EvictDirectly; null or 0: no limit of its own."""
    resources: tuple[str, ...] = ()
    """Accepted and not read, as in Koordinator: `resourceWeights` says which resources count."""
    resource_weights: Mapping[str, float] = dataclasses.field(
        default_factory=lambda: dict(_USUAL), metadata={"check": _weights}
    )
    """Weights of resources; empty: cpu and memory alike."""

    @property
    def weights(self) -> Mapping[str, float]:
        """The weights that count."""
        return self.resource_weights or _USUAL


def judge(_view: View, config: Config, handle: Handle) -> Conversation:
    """The order of the chosen pods: as deletion costs, or as findings."""
    nodes = rank_nodes(handle.nodes, config, handle)
    if config.strategy == "EvictDirectly":
        yield from _evict(nodes, config)
        return
    rank = 0
    for node in nodes:
        for pod in node.order:
            yield DeletionCost(pod=pod.uid, cost=rank, why=node.why)
            rank += 1
        for pod in node.kept:
            yield DeletionCost(pod=pod.uid, cost=LAST, why="it may not be evicted, so it should go after all others")


class RankedNode(msgspec.Struct, frozen=True):
    """A node with its pods in the order in which they should go."""

    node: NodeView
    order: tuple[PodView, ...]
    kept: tuple[PodView, ...]
    """Chosen pods that may not be evicted."""
    score: float
    """Weighted requests of the pods that stay, per weighted request of those that may go; 0: it becomes empty."""

    @property
    def why(self) -> str:
        """Its place in the order, for people."""
        stay = "nothing else stays there" if not self.score else f"for each unit that goes {self.score:.2f} stay there"
        return f"{self.node.name}: {len(self.order)} pods may go, {stay}"


def rank_nodes(nodes: tuple[NodeView, ...], config: Config, handle: Handle) -> list[RankedNode]:
    """Nodes with pods that may go, those that become empty most easily first.

    Ties go to the node with fewer such pods, then by name. Source: Koordinator `ScaleDownBinPack`, ranker.go.
    """
    candidates = (_node(node, config, handle) for node in nodes if config.selects(node))
    return sorted((one for one in candidates if one.order), key=lambda one: (one.score, len(one.order), one.node.name))


def _node(node: NodeView, config: Config, handle: Handle) -> RankedNode:
    pods = [pod for pod in node.pods if pod.pod.active]
    order = pod_filter.leaving(pods, config, handle)
    going = {pod.uid for pod in order}
    staying = [pod for pod in pods if pod.uid not in going]
    # Of those, chosen are the selected ones, whatever their namespace. An entry without a selector chooses all, unlike
    # where pods may go, as in Koordinator.
    chooses_all = any(entry.selector is None for entry in config.pod_selectors)
    return RankedNode(
        node=node,
        order=tuple(sorted(order, key=lambda pod: _first(pod, config.weights))),
        kept=tuple(pod for pod in staying if chooses_all or is_selected(config.pod_selectors, pod.pod.labels)),
        score=_score(node, order, staying, config.weights),
    )


def _score(node: NodeView, going: list[PodView], staying: list[PodView], weights: Mapping[str, float]) -> float:
    stays = leaves = 0.0
    for name, weight in weights.items():
        capacity = node.node.capacity[name].nano if name in node.node.capacity else 0
        if capacity > 0:
            stays += weight * sum(pod.request_nano(name) for pod in staying) / capacity
            leaves += weight * sum(pod.request_nano(name) for pod in going) / capacity
    if leaves:
        return stays / leaves
    return math.inf if stays else 0.0


def _first(pod: PodView, weights: Mapping[str, float]) -> tuple[float, float, str, str]:
    """Sort key: the largest, then the newest, then by name."""
    size = sum(weight * pod.request_nano(name) for name, weight in weights.items())
    return -size, -(times.parse_or_none(pod.object.metadata.creation_timestamp) or 0.0), pod.pod.namespace, pod.pod.name


def _evict(nodes: list[RankedNode], config: Config) -> Conversation:
    remaining = config.max_pods_to_evict or math.inf
    for rank, (node, pod) in enumerate((ranked, pod) for ranked in nodes for pod in ranked.order):
        if remaining <= 0:
            return
        verdict = yield Finding(
            pod=pod.uid,
            reason="ScaledDownFirst",
            fact=f"scale-down binpack: number {rank + 1} of those that should go; {node.why}",
            cure="its owner makes it again elsewhere, or is scaled down",
            evidence={"node": node.node.name, "rank": rank, "score": round(node.score, 4)},
        )
        if verdict is not None and verdict.stop == "total":
            return
        remaining -= verdict is not None and verdict.evicted
