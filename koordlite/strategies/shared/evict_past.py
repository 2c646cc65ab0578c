"""The rounds before, for an eviction strategy: when pods went, what it asked for, since when something lacks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec

from koordlite.formulas.eviction.evict_walk import LEAVING_SECONDS
from koordlite.model.memory import Memory
from koordlite.model.snapshot import Snapshot, recalled


class EvictionMemory(Memory, frozen=True, kw_only=True):
    """What one round leaves for the next; times by `Snapshot.time`, pods by uid."""

    started: float | None = None
    """When the strategy first judged."""
    evicted: float | None = None
    """When the cluster last accepted an eviction this strategy had asked for."""
    granted: int = 0
    """See `Past.granted`."""
    asked: Mapping[str, float] = msgspec.field(default_factory=dict)
    """Pods whose eviction the last round asked for, and when."""
    leaving: Mapping[str, float] = msgspec.field(default_factory=dict)
    """Pods that are being deleted, and since when."""
    lacking: Mapping[str, float] = msgspec.field(default_factory=dict)
    """Resources without any allocatable, and since when."""
    stuck: Mapping[str, float] = msgspec.field(default_factory=dict)
    """Rules whose evictions come to nothing, by feature, and since when."""
    killed: Mapping[str, float] = msgspec.field(default_factory=dict)
    """Pods whose containers were killed, and when."""


class Past(msgspec.Struct, frozen=True):
    """The rounds before, as seen from `time`."""

    time: float
    started: float
    """When the strategy first judged."""
    evicted: float | None
    """When the cluster last accepted an eviction this strategy had asked for."""
    leaving: Mapping[str, float]
    """Pods that are being deleted, by uid, and since when."""
    lacking: Mapping[str, float]
    """Resources without any allocatable, and since when."""
    asked: Collection[str] = ()
    """Pods, by uid, whose eviction another strategy has decided on this very picture."""
    granted: int = 0
    """Evictions the cluster accepted in a round that it cut short by refusals: others go on with it, without waiting
    for the cool-down, and it has its bound as one. 0 for a round of its own."""

    def cooling_seconds(self, cool_down_seconds: float, *, from_start: bool) -> float:
        """How long nothing may be evicted yet; 0 when something may. `from_start`: the start counts as an eviction."""
        if self.granted:
            return 0.0
        since = [self.started] if from_start else []
        since += [] if self.evicted is None else [self.evicted]
        return max(0.0, max(since) + cool_down_seconds - self.time) if since else 0.0

    def going(self, seen: Snapshot) -> frozenset[str]:
        """Pods that are on their way out and count as released, whoever has asked for it."""
        known = {pod.uid for pod in seen.pods}
        times = {**self.leaving, **dict.fromkeys(self.asked, self.time), **seen.evicted}
        return frozenset(uid for uid, at in times.items() if uid in known and self.time - at < LEAVING_SECONDS)

    def remember(self, asked: Iterable[str] = ()) -> EvictionMemory:
        """For the next round; `asked` are the pods whose eviction is asked for in this one."""
        return EvictionMemory(
            started=self.started,
            evicted=self.evicted,
            granted=self.granted,
            asked=dict.fromkeys(asked, self.time),
            leaving=self.leaving,
            lacking=self.lacking,
        )


def past(seen: Snapshot, strategy: str, resources: Iterable[str], *, asked: Collection[str] = ()) -> Past:
    """What `strategy` remembers, brought up to the present. `resources` are those whose allocatable matters to it."""
    before = recalled(seen, strategy, EvictionMemory)
    allocatable = seen.node.allocatable if seen.node else {}
    lacking = [name for name in resources if name not in allocatable or allocatable[name].nano <= 0]
    return Past(
        time=seen.time,
        started=seen.time if before.started is None else before.started,
        evicted=_last_eviction(seen, before),
        asked=asked,
        granted=_granted(seen, before),
        leaving={p.uid: before.leaving.get(p.uid, seen.time) for p in seen.pods if p.deleting and p.active},
        lacking={name: before.lacking.get(name, seen.time) for name in lacking},
    )


def _last_eviction(seen: Snapshot, before: EvictionMemory) -> float | None:
    """Only what was accepted since starts the cool-down, not what was asked for."""
    known = [] if before.evicted is None else [before.evicted]
    return max([*known, *_accepted(seen, before).values()], default=None)


def _granted(seen: Snapshot, before: EvictionMemory) -> int:
    """Accepted evictions of the round so far, as long as its last ones were refused in part."""
    accepted = _accepted(seen, before)
    refused = [uid for uid in before.asked if uid in seen.refused_evictions and uid not in accepted]
    return before.granted + len(accepted) if refused else 0


def _accepted(seen: Snapshot, before: EvictionMemory) -> dict[str, float]:
    """Pods asked for in the round before whose eviction was accepted since, and when."""
    return {uid: seen.evicted[uid] for uid, at in before.asked.items() if seen.evicted.get(uid, -1.0) >= at}


def unanswered(seen: Snapshot, before: EvictionMemory) -> frozenset[str]:
    """Pods asked for in the round before that the cluster has not let go."""
    return frozenset(before.asked) - frozenset(_accepted(seen, before))
