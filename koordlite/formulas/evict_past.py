"""What an eviction strategy knows of the rounds before: when pods went, what it asked for, since when something lacks.

All of it is a flat mapping of numbers (`Decision.remember`), so that it can be shown and kept.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from koordlite.model.snapshot import Snapshot

LEAVING_SECONDS = 120.0
"""For so long a pod on its way out counts as gone already. Koordinator forgets its own evictions after two minutes."""
_STARTED, _EVICTED, _ASKED, _LEAVING, _LACKING = "started", "evicted", "asked/", "leaving/", "lacking/"


@dataclasses.dataclass(frozen=True, slots=True)
class Past:
    """The rounds before, as seen from `time`."""

    time: float
    started: float
    """When the strategy first judged."""
    evicted: float | None
    """When the cluster last accepted an eviction this strategy had asked for."""
    leaving: Mapping[str, float]
    """Pods that somebody is deleting, by uid, and since when."""
    lacking: Mapping[str, float]
    """Resources without any allocatable, and since when."""

    def cooling_seconds(self, cool_down_seconds: float, *, from_start: bool) -> float:
        """How long nothing may be evicted yet; 0 when something may. `from_start`: the start counts as an eviction."""
        since = [self.started] if from_start else []
        since += [] if self.evicted is None else [self.evicted]
        return max(0.0, max(since) + cool_down_seconds - self.time) if since else 0.0

    def going(self, seen: Snapshot) -> frozenset[str]:
        """Pods that are on their way out and count as released."""
        known = {pod.uid for pod in seen.pods}
        times = {**self.leaving, **seen.evicted}
        return frozenset(uid for uid, at in times.items() if uid in known and self.time - at < LEAVING_SECONDS)

    def remember(self, asked: Iterable[str] = ()) -> dict[str, float]:
        """For the next round; `asked` are the pods whose eviction is asked for in this one."""
        found = {_STARTED: self.started, **({} if self.evicted is None else {_EVICTED: self.evicted})}
        found |= {f"{_ASKED}{uid}": self.time for uid in asked}
        found |= {f"{_LEAVING}{uid}": at for uid, at in self.leaving.items()}
        return found | {f"{_LACKING}{name}": at for name, at in self.lacking.items()}


def past(seen: Snapshot, strategy: str, resources: Iterable[str]) -> Past:
    """What `strategy` remembers, brought up to the present. `resources` are those whose allocatable matters to it."""
    before = seen.remembered.get(strategy, {})
    allocatable = seen.node.allocatable if seen.node else {}
    lacking = [name for name in resources if name not in allocatable or allocatable[name].nano <= 0]
    return Past(
        time=seen.time,
        started=before.get(_STARTED, seen.time),
        evicted=_last_eviction(seen, before),
        leaving={p.uid: before.get(f"{_LEAVING}{p.uid}", seen.time) for p in seen.pods if p.deleting and p.active},
        lacking={name: before.get(f"{_LACKING}{name}", seen.time) for name in lacking},
    )


def _last_eviction(seen: Snapshot, before: Mapping[str, float]) -> float | None:
    """Only what was accepted anew starts the cool-down, not what was asked for."""
    asked = {key.removeprefix(_ASKED): at for key, at in before.items() if key.startswith(_ASKED)}
    accepted = [seen.evicted[uid] for uid, at in asked.items() if seen.evicted.get(uid, -1.0) >= at]
    known = [before[_EVICTED]] if _EVICTED in before else []
    return max([*known, *accepted], default=None)
