"""What the strategies that are on want to see besides the usual, for the settings and pods of the moment."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterable, Mapping, Set

from koordlite.host.cgroups.fields import NUMBERS
from koordlite.model.pod.values import Pod
from koordlite.model.settings import StrategySettings
from koordlite.model.slo.settings import SLO
from koordlite.strategies import Strategy
from koordlite.unchanged import Unchanged

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


LOG = logging.getLogger(__name__)

Asked = Callable[[SLO, Pods], Wants]


def monitor_seconds(strategies: Iterable[Strategy], settings: Mapping[str, StrategySettings]) -> float:
    """How often resctrl's counters are looked at: as often as any of these strategies wants; 0 is never."""
    asked = (strategy.monitor_seconds(settings[strategy.name]) for strategy in strategies)
    return min((seconds for seconds in asked if seconds > 0), default=0.0)


def nothing(_slo: SLO, _pods: Pods) -> Wants:
    """For a picture that no strategy asked for."""
    return Wants()


def of(strategies: Iterable[Strategy]) -> Asked:
    """What these strategies want. Settings and pods seldom change, and asking again costs a walk over all annotations:
    the answer holds as long as both are the same objects."""
    asked, unchanged = tuple(strategies), Unchanged()
    return lambda slo, pods: unchanged.of("wants", (slo, pods), lambda: _all(asked, slo, pods))


def _all(asked: Iterable[Strategy], slo: SLO, pods: Pods) -> Wants:
    each = [_one(strategy, slo, pods) for strategy in asked]
    return Wants(
        reads=frozenset().union(*(one.reads for one in each)),
        windows=tuple(sorted(set().union(*(one.windows for one in each)))),
        throttling=frozenset().union(*(one.throttling for one in each)),
        percentiles=tuple(sorted(set().union(*(one.percentiles for one in each)))),
    )


def _one(strategy: Strategy, slo: SLO, pods: Pods) -> Wants:
    """What one strategy wants. One that fails here wants nothing, and the loop goes on."""
    try:
        return Wants(
            reads=frozenset(strategy.reads(slo, pods)),
            windows=tuple(strategy.windows(slo, pods)),
            throttling=frozenset(strategy.throttling(slo, pods)),
            percentiles=tuple(strategy.percentiles(slo)),
        )
    except Exception:
        LOG.exception("strategy %s cannot say what it wants to see", strategy.name)
        return Wants()
