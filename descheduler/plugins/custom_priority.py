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

NAME = "CustomPriority"
POINT = "balance"
MISSES = 5
"""After so many pods in a row that fit nowhere, the rest of the node is not asked: they are larger."""

_PLACED = ("cpu", "memory")


@dataclasses.dataclass(frozen=True, kw_only=True)
class NodeLevel:
    """Nodes that are given up together."""

    name: str = ""
    """What the level is called in reports."""
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
    """With DrainNode: cordon a node before its pods go. It is opened again when none of them went."""
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
    if config.paused:
        yield Note(reason="Paused", text="CustomPriority is paused")
        return
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
        if config.node_selector is not None and not config.node_selector.matches(node.node.labels):
            continue
        selectors = (level.node_selector for level in config.eviction_order)
        matches = [n for n, selector in enumerate(selectors) if selector and selector.matches(node.node.labels)]
        if matches:
            levels[matches[0]].append(node)
    return levels


Steps = Generator[Finding | Note | Cordon, Verdict | None, bool]
"""Findings and notes; in the end, whether the limit of the cycle is reached."""


class _Task(msgspec.Struct, frozen=True):
    """One level that is given up."""

    config: Config
    handle: Handle
    level: str
    targets: tuple[NodeView, ...]

    def give_up(self, source: NodeView) -> Steps:
        """Name the pods of one node."""
        pods = sorted((pod for pod in source.pods if self._may_leave(pod)), key=_smallest_first)
        if self.config.mode == "DrainNode":
            return (yield from self._drain(source, pods))
        return (yield from self._what_fits(source, pods))

    def _may_leave(self, pod: PodView) -> bool:
        eligible = self.config.may_leave(pod)
        return eligible and not self.handle.going(pod) and self.handle.evictable(pod)

    def _what_fits(self, source: NodeView, pods: list[PodView]) -> Steps:
        misses = 0
        for pod in pods:
            target = self.handle.first_fit(pod, self.targets) if self.config.node_fit else self.targets[0]
            if target is None:
                misses += 1
                if misses == MISSES:
                    return False
                continue
            misses = 0
            stop = yield from self._ask(pod, source)
            if stop:
                return stop == "total"
        return False

    def _drain(self, source: NodeView, pods: list[PodView]) -> Steps:
        """All pods or none: they are placed together on what the targets have free, the largest first."""
        free = {node.name: _free(node, self.handle) for node in self.targets}
        homeless = next((pod for pod in reversed(pods) if not self._placed(pod, free)), None)
        if homeless is not None:
            text = f"{homeless.key} fits on none of the nodes of later levels together with the others: all stay"
            yield Note(node=source.name, reason="NotDrainable", text=text)
            return False
        if pods and self.config.auto_cordon and not self.config.dry_run:
            yield Cordon(source.name)
        for pod in pods:
            stop = yield from self._ask(pod, source)
            if stop:
                return stop == "total"
        return False

    def _placed(self, pod: PodView, free: Mapping[str, dict[str, int]]) -> bool:
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

    def _ask(self, pod: PodView, source: NodeView) -> Generator[Finding | Note, Verdict | None, str]:
        """Name the pod; the limit that ends the node or the cycle, if one is reached."""
        dry = self.config.dry_run
        verdict = yield Finding(
            pod=pod.uid,
            reason="NodeGivenUpFirst",
            severity="exposed" if dry else "hard",
            promise=f"nodes of level {self.level} are emptied while later levels have free capacity",
            fact=f"{source.name} is of level {self.level}, and later levels have free capacity for the pod",
            cure="dryRun of CustomPriority is on: it stays" if dry else "it leaves for a node of a later level",
            evidence={"node": source.name, "level": self.level},
        )
        return verdict.stop if verdict is not None and verdict.stop in ("node", "total") else ""


def _smallest_first(pod: PodView) -> tuple[int, int, str, str]:
    return pod.request_nano("cpu"), pod.request_nano("memory"), pod.pod.namespace, pod.pod.name


def _free(node: NodeView, handle: Handle) -> dict[str, int]:
    """Nano-units that pods which stay have not requested."""
    allocatable = free_capacity.schedulable_amounts(node)
    staying = [pod for pod in node.pods if not handle.going(pod)]
    return {
        name: (allocatable[name].nano if name in allocatable else 0) - sum(pod.request_nano(name) for pod in staying)
        for name in _PLACED
    }
