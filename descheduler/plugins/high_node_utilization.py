"""Pods leave nodes that are nearly empty, so that fewer nodes carry the work and an autoscaler can take the rest.

Measured by requests. It needs a scheduler that prefers full nodes (MostAllocated): one that spreads would bring the
pods right back.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Literal

from descheduler.arguments.common import ANY_NAMESPACE, Namespaces
from descheduler.framework import Conversation, Finding, Handle, Note, PodView, View
from descheduler.utilization import args, levels
from descheduler.utilization.levels import Level
from koordlite.model.settings import bounded

NAME = "HighNodeUtilization"
POINT = "balance"
READS = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """Arguments of `HighNodeUtilization`."""

    thresholds: Mapping[str, float] = args.percentages()
    """Percent by resource: a node at or below all of them is emptied. Required."""
    number_of_nodes: int = bounded(0, ge=0)
    """Do nothing while this many nodes or fewer are so empty."""
    eviction_modes: tuple[Literal["OnlyThresholdingResources"], ...] = ()
    """OnlyThresholdingResources: only pods that request a resource which has a threshold leave."""
    evictable_namespaces: Namespaces = ANY_NAMESPACE
    """Namespaces whose pods may leave; pods of the others still count as use."""

    def __post_init__(self) -> None:
        args.check_configured(self.thresholds)


def judge(_view: View, config: Config, handle: Handle) -> Conversation:
    """A finding for each pod that should leave a nearly empty node; notes say why nothing is done."""
    tracked = frozenset({*config.thresholds, *levels.BASIC})
    measure = levels.by_requests(handle.nodes, tracked)
    for level in measure.levels:
        level.ceiling = levels.ceilings(tracked=tracked, limits={}, capacity=level.capacity)
    empty = [level for level in measure.levels if levels.within(level.percent, config.thresholds)]
    names = {level.node.name for level in empty}
    takers = [level for level in measure.levels if level.schedulable and level.node.name not in names]
    idle = _why_nothing(config, len(empty), len(measure.levels), len(takers))
    if idle:
        yield idle
        return
    empty.sort(key=lambda level: (max(_limited_percent(level, config).values(), default=0.0), level.node.name))
    yield from levels.Drain(
        headroom=levels.headroom_of(takers, tracked),
        taints={level.node.object.spec.taints or () for level in takers},
        pod_use=measure.pod_use,
        counts_down=True,
        too_full=lambda level: True,
        finding=lambda pod, level: _finding(pod, level, config),
        namespace_allowed=config.evictable_namespaces.chosen,
        candidate=lambda pod: not config.eviction_modes or _requests_any(pod, config.thresholds),
    ).run(empty, handle)


def numbers(pod: PodView, _view: View, config: Config, handle: Handle) -> str:
    """Use of its node, and the thresholds of nearly empty ones."""
    measure = levels.by_requests(handle.nodes, frozenset({*config.thresholds, *levels.BASIC}))
    named = next((_limited_percent(level, config) for level in measure.levels if level.node.name == pod.node), {})
    return f"{pod.node}: {levels.percent_text(named)}; nearly empty up to {levels.percent_text(config.thresholds)}"


def _why_nothing(config: Config, empty: int, nodes: int, takers: int) -> Note | None:
    if not empty:
        return Note(reason="NoNodeNearlyEmpty", text="no node is at or below all thresholds")
    if empty <= config.number_of_nodes:
        few = f"{empty} nodes are nearly empty; numberOfNodes asks for more than {config.number_of_nodes}"
        return Note(reason="TooFewNodesNearlyEmpty", text=few)
    if empty == nodes:
        every = f"all {nodes} nodes are nearly empty, so none could take the others' pods"
        return Note(reason="EveryNodeNearlyEmpty", text=every)
    return None if takers else Note(reason="NoNodeTakesPods", text="every node that is not nearly empty is cordoned")


def _limited_percent(level: Level, config: Config) -> dict[str, float]:
    """Use in percent of the resources that have a threshold."""
    return {name: value for name, value in level.percent.items() if name in config.thresholds}


def _requests_any(pod: PodView, named: Mapping[str, float]) -> bool:
    """Some container names one of the resources in its requests, if only with 0."""
    spec = pod.object.spec
    containers = (*(spec.containers or ()), *(spec.init_containers or ()))
    return any(name in (c.resources.requests or {}) for c in containers if c.resources for name in named)


def _finding(pod: PodView, level: Level, config: Config) -> Finding:
    return Finding(
        pod=pod.uid,
        reason="NodeNearlyEmpty",
        promise=f"{level.node.name} is emptied at or below {levels.percent_text(config.thresholds)}",
        fact=f"{levels.percent_text(_limited_percent(level, config))} is requested there",
        cure="it leaves, and the scheduler packs its successor onto a fuller node",
        evidence={"node": level.node.name, **levels.evidence(level, config.thresholds)},
    )
