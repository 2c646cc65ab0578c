"""Pods leave nodes that are to be given up first, as far as nodes further down the list are underutilized.

Koordinator's plugin for pools of nodes with different prices: the first level of `evictionOrder` is emptied towards all
later ones, the second towards those after it, and so on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Generator, Iterable, Mapping
from typing import Literal

import msgspec

from descheduler.arguments.common import LabelSelector, MovingPods
from descheduler.fit import free_capacity
from descheduler.framework import Conversation, Cordon, Finding, Handle, NodeView, Note, PodView, Verdict, View
from descheduler.rules import pod_filter

NAME = "CustomPriority"
POINT = "balance"
READS = ()
MISSES = 5
"""Number of pods in a row that fit nowhere, after which the rest of the node is not tried: they are larger."""

_PLACED = ("cpu", "memory")


@dataclasses.dataclass(frozen=True, kw_only=True)
class NodeLevel:
    """Nodes that are given up together."""

    name: str = ""
    """Name of the level in reports."""
    node_selector: LabelSelector | None = None
    """Its nodes; a node belongs to the first level that selects it. Required."""

    def __post_init__(self) -> None:
        if not self.name or self.node_selector is None:
            raise ValueError("a level needs a name and a nodeSelector")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(MovingPods):
    """Arguments of `CustomPriority`."""

    dry_run: bool = False
    """Report only, no pod leaves."""
    eviction_order: tuple[NodeLevel, ...] = ()
    """Levels, the first one is given up first. Required, two at least."""
    mode: Literal["BestEffort", "DrainNode"] = "BestEffort"
    """BestEffort: every pod that fits leaves. DrainNode: a node's pods leave only if all of them fit together."""
    auto_cordon: bool = False
    """Cordon a node before its pods go, with DrainNode. It is opened again when none of them went."""
    node_fit: bool = True
    """Ask whether a pod would fit at all, not only whether CPU and memory are free (in BestEffort: nothing is asked
    without it)."""

    def __post_init__(self) -> None:
        names = [level.name for level in self.eviction_order if level]
        if len(names) < 2:
            raise ValueError("evictionOrder needs two levels at least")
        if len(set(names)) < len(names):
            raise ValueError("evictionOrder names a level twice")


def judge(_view: View, config: Config, handle: Handle) -> Conversation:
    """A finding for each pod that should leave a node of an earlier level."""
    levels = by_level(handle.nodes, config)
    for number, sources in enumerate(levels[:-1]):
        targets = tuple(node for level in levels[number + 1 :] for node in level)
        task = _Task(config, handle, config.eviction_order[number].name, targets)
        for source in sources if targets else ():
            stop = yield from task.give_up(source)
            if stop:
                return


def by_level(nodes: Iterable[NodeView], config: Config) -> list[list[NodeView]]:
    """Nodes of each level, in the order of names; a node is in the first level that selects it, or in none."""
    levels: list[list[NodeView]] = [[] for _ in config.eviction_order]
    for node in nodes:
        selectors = (level.node_selector for level in config.eviction_order)
        matches = [n for n, selector in enumerate(selectors) if selector and selector.matches(node.node.labels)]
        if matches and config.selects(node):
            levels[matches[0]].append(node)
    return levels


Steps = Generator[Finding | Note | Cordon, Verdict | None, bool]
"""Findings and notes; in the end, whether the limit of the cycle is reached."""


class _Task(msgspec.Struct, frozen=True):
    """A level that is given up."""

    config: Config
    handle: Handle
    level: str
    targets: tuple[NodeView, ...]

    def give_up(self, source: NodeView) -> Steps:
        """Name the pods of one node, the smallest first: those that fit, or all of them if all fit together."""
        drains, misses = self.config.mode == "DrainNode", 0
        pods = sorted(pod_filter.leaving(source.pods, self.config, self.handle), key=_size)
        if drains:
            free = {node.name: self._free(node) for node in self.targets}
            homeless = next((pod for pod in reversed(pods) if not self._place(pod, free)), None)
            if homeless is not None:
                text = f"{homeless.key} fits on none of the nodes of later levels together with the others: all stay"
                yield Note(node=source.name, reason="NotDrainable", text=text)
                return False
            if pods and self.config.auto_cordon and not self.config.dry_run:
                yield Cordon(source.name)
        for pod in pods:
            if not drains and self.config.node_fit and self.handle.first_fit(pod, self.targets) is None:
                misses += 1
                if misses == MISSES:
                    return False
                continue
            misses = 0
            verdict = yield self._finding(pod, source)
            if verdict is not None and verdict.stop in ("node", "total"):
                return verdict.stop == "total"
        return False

    def _free(self, node: NodeView) -> dict[str, int]:
        """Nano-units that pods which stay have not requested."""
        allocatable = free_capacity.schedulable_amounts(node)
        amounts = pod_filter.staying_requests(node, self.handle, _PLACED).items()
        return {name: (allocatable[name].nano if name in allocatable else 0) - nano for name, nano in amounts}

    def _place(self, pod: PodView, free: Mapping[str, dict[str, int]]) -> bool:
        """Take the pod's CPU and memory from the first target that has them."""
        for node in self.targets:
            have = free[node.name]
            if all(pod.request_nano(name) <= have[name] for name in _PLACED) and (
                not self.config.node_fit or self.handle.first_fit(pod, (node,)) is not None
            ):
                for name in _PLACED:
                    have[name] -= pod.request_nano(name)
                return True
        return False

    def _finding(self, pod: PodView, source: NodeView) -> Finding:
        dry = self.config.dry_run
        return Finding(
            pod=pod.uid,
            reason="NodeGivenUpFirst",
            severity="exposed" if dry else "hard",
            promise=f"nodes of level {self.level} are emptied while later levels have free capacity",
            fact=f"{source.name} is of level {self.level}, and later levels have free capacity for the pod",
            cure="dryRun of CustomPriority is on: it stays" if dry else "it leaves for a node of a later level",
            evidence={"node": source.name, "level": self.level},
        )


def _size(pod: PodView) -> tuple[int, int, str, str]:
    return pod.request_nano("cpu"), pod.request_nano("memory"), pod.pod.namespace, pod.pod.name
