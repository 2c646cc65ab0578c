"""What the strategies that are on want to see besides the usual, for the settings and pods of the moment."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Set

from koordlite.host.cgroup_fields import NUMBERS
from koordlite.model.pod import Pod
from koordlite.model.slo import SLO
from koordlite.strategies import Strategy

Pods = tuple[Pod, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Wants:
    """One answer for all strategies together."""

    reads: frozenset[str] = frozenset()
    """Everything named by `Strategy.reads`."""
    windows: tuple[int, ...] = ()
    """Lengths of `Snapshot.windows` in seconds."""
    throttling: frozenset[str] = frozenset()
    """Uids of the pods of which each container's use and throttling are asked for."""
    percentiles: tuple[tuple[int, int], ...] = ()
    """Seconds and percent of `Snapshot.percentiles`."""

    def fields(self, ours: Set[str]) -> tuple[str, ...]:
        """Cgroup files to be found in `Cgroup.values`: those asked for, and those of which some hold values of `ours`
        that may have to be given back."""
        return tuple(sorted((self.reads | ours) & NUMBERS.keys()))


Asked = Callable[[SLO, Pods], Wants]


def nothing(_slo: SLO, _pods: Pods) -> Wants:
    """For a look on behalf of nobody."""
    return Wants()


def of(strategies: Iterable[Strategy]) -> Asked:
    """What these strategies want. Settings and pods seldom change, and to ask anew costs a walk over all annotations:
    the answer holds as long as both are the same objects."""
    asked = tuple(strategies)
    kept: list[tuple[SLO, Pods, Wants]] = []

    def wants(slo: SLO, pods: Pods) -> Wants:
        if not kept or kept[0][0] is not slo or kept[0][1] is not pods:
            kept[:] = [(slo, pods, _all(asked, slo, pods))]
        return kept[0][2]

    return wants


def _all(asked: Iterable[Strategy], slo: SLO, pods: Pods) -> Wants:
    return Wants(
        reads=frozenset(name for strategy in asked for name in strategy.reads(slo, pods)),
        windows=tuple(sorted({seconds for strategy in asked for seconds in strategy.windows(slo, pods)})),
        throttling=frozenset(uid for strategy in asked for uid in strategy.throttling(slo, pods)),
        percentiles=tuple(sorted({each for strategy in asked for each in strategy.percentiles(slo)})),
    )
