"""Pods leave full nodes one by one, while a node has too much and the others are underutilized for it.

Source: upstream `evictPodsFromSourceNodes`. Upstream counts the free capacity of all destinations as one sum; whether
one of them takes this very pod is what `nodeFit` asks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Mapping

import msgspec

from descheduler.framework import Finding, Handle, Note, PodView, Verdict
from descheduler.picture.amounts import Amounts
from descheduler.picture.pods import least_important_first
from descheduler.utilization.levels import Level, PodUse
from koordlite.model import node_selectors
from koordlite.model.wire import objects

Steps = Generator[Finding | Note, Verdict | None, bool]
"""Findings and notes; in the end, whether evictions may go on at other nodes."""


def headroom_of(destinations: Iterable[Level], tracked: Iterable[str]) -> dict[str, int]:
    """Amounts that the destinations still take up to their ceilings, in one sum."""
    levels = tuple(destinations)
    return {name: sum(level.ceiling[name] - level.used.get(name, 0) for level in levels) for name in tracked}


class Drain(msgspec.Struct, frozen=True, kw_only=True):
    """One run over the nodes that have too much."""

    headroom: dict[str, int]
    """What the destinations still take; shrinks as pods leave."""
    taints: Collection[tuple[objects.Taint, ...]]
    """Taints of each destination."""
    pod_use: PodUse
    counts_down: bool
    """Whether an eviction changes the picture."""
    too_full: Callable[[Level], bool]
    """Whether more has to leave this node."""
    finding: Callable[[PodView, Level], Finding]
    namespace_allowed: Callable[[str], bool]
    candidate: Callable[[PodView], bool] = lambda pod: True
    most_per_node: int | None = None
    accepted: dict[tuple[objects.Toleration, ...], bool] = msgspec.field(default_factory=dict)
    """Whether pods with these tolerations are let in anywhere."""

    def run(self, sources: Iterable[Level], handle: Handle) -> Generator[Finding | Note, Verdict | None, None]:
        """Name pods of each source until it has little enough; the answers say which of them go."""
        for level in sources:
            going_on = yield from self._node(level, handle)
            if not going_on:
                return

    def _node(self, level: Level, handle: Handle) -> Steps:
        pods = [p for p in level.node.pods if self.candidate(p) and not handle.going(p) and handle.evictable(p)]
        if not pods:
            text = f"{shown(level.percent)}, but no guard lets any of its pods go"
            yield Note(node=level.node.name, reason="NothingEvictable", text=text)
            return True
        left = 0
        for pod in sorted(pods, key=least_important_first):
            more = self.too_full(level) and all(amount > 0 for amount in self.headroom.values())
            if not more or left == self.most_per_node:
                return True
            taken = self._taken(pod, handle)
            if taken is None:
                continue
            verdict = yield self.finding(pod, level)
            if verdict is not None and verdict.evicted:
                left += 1
                if self.counts_down:
                    level.lose(taken)
                    for name in self.headroom:
                        self.headroom[name] -= taken.get(name, 0)
            elif verdict is not None and verdict.stop in ("node", "total"):
                return verdict.stop == "node"
        return True

    def _taken(self, pod: PodView, handle: Handle) -> Amounts | None:
        """Amounts that the pod takes along; None when it does not go."""
        if not self.namespace_allowed(pod.pod.namespace) or not self._let_in(pod) or not handle.movable(pod):
            return None
        return self.pod_use(pod)

    def _let_in(self, pod: PodView) -> bool:
        """It tolerates the taints of some destination. Upstream compares counts first, and PreferNoSchedule too."""
        tolerations = pod.object.spec.tolerations or ()
        if tolerations not in self.accepted:
            free = any(node_selectors.untolerated(taints, tolerations) is None for taints in self.taints)
            self.accepted[tolerations] = free
        return self.accepted[tolerations]


def shown(level: Mapping[str, float]) -> str:
    """`cpu 80.0%, pods 30.0%`: percentages by name, for people."""
    return ", ".join(f"{name} {value:.1f}%" for name, value in sorted(level.items()))


def evidence(level: Level, limits: Mapping[str, float]) -> dict[str, int | float | str]:
    """Use and limit of each limited resource, in percent."""
    percent = level.percent
    named = {f"{name}Percent": round(percent[name], 2) for name in sorted(limits) if name in percent}
    return {**named, **{f"{name}LimitPercent": round(value, 2) for name, value in sorted(limits.items())}}
