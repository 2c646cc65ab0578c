"""What the strategies that are on want to see besides the usual, under the configuration of the moment."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable

from koordlite.host.cgroup_fields import NUMBERS
from koordlite.model.slo import SLO
from koordlite.strategies import Strategy

CPU_STAT = "cpu.stat"


@dataclasses.dataclass(frozen=True, slots=True)
class Wants:
    """One answer for all strategies together."""

    reads: frozenset[str] = frozenset()
    """Everything named by `Strategy.reads`."""
    windows: tuple[int, ...] = ()
    """Lengths of `Snapshot.windows` in seconds."""

    @property
    def fields(self) -> tuple[str, ...]:
        """Cgroup files to be found in `Cgroup.values`."""
        return tuple(sorted(self.reads & NUMBERS.keys()))

    @property
    def containers(self) -> bool:
        """Whether use and throttling of each container are asked for."""
        return CPU_STAT in self.reads


Asked = Callable[[SLO], Wants]


def nothing(_slo: SLO) -> Wants:
    """For a look on behalf of nobody."""
    return Wants()


def of(strategies: Iterable[Strategy]) -> Asked:
    """What these strategies want."""
    asked = tuple(strategies)

    def wants(slo: SLO) -> Wants:
        reads = frozenset(name for strategy in asked for name in strategy.reads(slo))
        windows = {seconds for strategy in asked for seconds in strategy.windows(slo)}
        return Wants(reads, tuple(sorted(windows)))

    return wants
