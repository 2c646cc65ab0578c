"""Notes of each tick of a simulation, to be measured at its end."""

from __future__ import annotations

import collections
from collections.abc import Mapping

import msgspec

from koordlite.changes import eviction
from koordlite.lab.load import workloads
from koordlite.lab.simulation.stage import Stage
from koordlite.report.history import Row
from koordlite.report.simulation import Workload
from koordlite.report.tick import Tick

_US_PER_CORE_HOUR = 3600e6


class Amount(msgspec.Struct, frozen=True):
    """CPU-µs a pod has wanted and got so far."""

    wanted_us: int
    used_us: int


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One tick. While the agent is dead, only what the machine says."""

    time: float
    """Simulated seconds since the start."""
    pods: Mapping[str, Amount]
    """By NAMESPACE/NAME."""
    restarts: int
    row: Row | None = None
    status: str = "dead"
    reasons: frozenset[str] = frozenset()
    problems: frozenset[str] = frozenset()
    writes: int = 0
    refused: int = 0
    foreign: int = 0
    evictions: int = 0


class Recorder:
    """Takes the samples, and remembers every pod there was."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.samples: list[Sample] = []
        self._qos: dict[str, str] = {}
        self._last: dict[str, tuple[float, Amount, int]] = {}
        self._wanted: collections.Counter[str] = collections.Counter()
        self._used: collections.Counter[str] = collections.Counter()

    def take(self, tick: Tick | None) -> None:
        """Note this moment; `tick` is what the agent did in it."""
        time, running = self._stage.sandbox.clock.seconds, self._stage.sandbox.kubelet.running.values()
        pods: dict[str, Amount] = {}
        for pod in running:
            key, total = pod.described.key, workloads.total(pod.workloads)
            amount = pods[key] = Amount(total.wanted_us, total.used_us)
            self._qos.setdefault(key, str(pod.described.qos_class))
            self._add(key, amount)
            self._last[key] = time, amount, sum(pod.restarts.values())
        restarts = sum(count for _, _, count in self._last.values())
        if tick is None:
            self.samples.append(Sample(time=time, pods=pods, restarts=restarts))
            return
        evictions = sum(step.ok and step.place.kind is eviction.PLACE for step in tick.applied)
        refused = sum(not step.ok for step in tick.applied)
        self.samples.append(
            Sample(
                time=time,
                pods=pods,
                restarts=restarts,
                row=Row.of(tick),
                status=tick.status,
                reasons=frozenset(decision.reason for decision in tick.decisions),
                problems=frozenset(map(str, tick.problems)),
                writes=len(tick.applied) - refused - evictions,
                refused=refused,
                foreign=len(tick.foreign),
                evictions=evictions,
            )
        )

    def workloads(self) -> tuple[Workload, ...]:
        """Every pod there was, those that protect themselves first."""
        end = self.samples[-1].time if self.samples else 0.0
        found = (
            Workload(
                pod=key,
                qos=qos,
                wanted_core_hours=self._wanted[key] / _US_PER_CORE_HOUR,
                used_core_hours=self._used[key] / _US_PER_CORE_HOUR,
                end=self._last[key][0] if self._last[key][0] < end else None,
                restarts=self._last[key][2],
            )
            for key, qos in self._qos.items()
        )
        return tuple(sorted(found, key=lambda workload: (workload.qos == "BE", workload.pod)))

    @property
    def best_effort(self) -> frozenset[str]:
        """Pods that are best effort."""
        return frozenset(key for key, qos in self._qos.items() if qos == "BE")

    def _add(self, key: str, amount: Amount) -> None:
        before = self._last.get(key)
        grown = growth(before[1] if before else None, amount)
        self._wanted[key] += grown.wanted_us
        self._used[key] += grown.used_us


def growth(before: Amount | None, after: Amount) -> Amount:
    """Increase since the last sample; a restarted pod counts from zero."""
    if before is None or after.wanted_us < before.wanted_us:
        return after
    return Amount(after.wanted_us - before.wanted_us, after.used_us - before.used_us)
