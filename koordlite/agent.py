"""The loop: observe, decide, plan, apply, report. All it knows is in one picture, all it does is in one plan."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable, Mapping

from koordlite import plan, strategies
from koordlite.apply import Applier, restore
from koordlite.config import Settings
from koordlite.host.bundle import Host
from koordlite.host.journal import Journal
from koordlite.model.decision import Decision
from koordlite.model.errors import KoordliteError, PlanConflict, Problem
from koordlite.model.outcome import AppliedStep
from koordlite.model.snapshot import Found, Snapshot
from koordlite.observe import Observer
from koordlite.ports import Cluster
from koordlite.report import tick as ticks
from koordlite.report.tick import Tick

LOG = logging.getLogger(__name__)


class Agent:
    """One node's agent. Without a journal nothing could be undone, so nothing is written."""

    def __init__(self, host: Host, cluster: Cluster, settings: Settings, journal: Journal | None = None) -> None:
        self._host, self._cluster, self._settings, self._journal = host, cluster, settings, journal
        self._observer = Observer(host, cluster, tasks_seconds=settings.agent.tasks_seconds)
        self._applier = Applier(host, cluster, journal) if journal else None
        self._started = host.clock.monotonic()
        self._refused: dict[str, str] = {}
        self._said: dict[str, str] = {}
        self.modes = {name: section.mode for name, section in settings.strategies.items()}
        self.seen: Snapshot | None = None
        """The last picture."""

    def heal(self) -> tuple[AppliedStep, ...]:
        """Undo what an earlier run left behind, before anything new is written.

        The Node keeps what strategies promised that are about to promise anew.
        """
        if not self._journal or not self._journal.entries:
            return ()
        enforced = [name for name, mode in self.modes.items() if mode == "enforce"]
        steps = restore(self._host, self._journal, self._cluster, staying=enforced)
        _log_restored("an earlier run was not ended properly", steps)
        return steps

    def put_back(self) -> tuple[AppliedStep, ...]:
        """Give every file and the Node what was found before this run."""
        steps = restore(self._host, self._journal, self._cluster) if self._journal else ()
        _log_restored("stopping", steps)
        return steps

    def run(self, on_tick: Callable[[Tick], None], *, seconds: float | None = None) -> None:
        """Tick until the clock says stop, or for `seconds`. A tick that is late is not made up for.

        However it ends, also by an error of `on_tick`, all is put back where that is what a stop does.
        """
        self.heal()
        try:
            self._loop(on_tick, seconds)
        finally:
            if self._settings.agent.on_stop == "restore":
                self.put_back()

    def _loop(self, on_tick: Callable[[Tick], None], seconds: float | None) -> None:
        clock, interval = self._host.clock, self._settings.agent.interval_seconds
        end = None if seconds is None else clock.monotonic() + seconds
        due = clock.monotonic()
        while end is None or clock.monotonic() < end:
            on_tick(self.tick())
            due = max(due + interval, clock.monotonic())
            if clock.wait(due - clock.monotonic()):
                break

    def tick(self) -> Tick:
        """One round. Whatever goes wrong in it is in the Tick; the next round comes."""
        began = time.perf_counter()
        try:
            seen = self._observer.observe(ours=self._ours, found=self._found, last_sync=self._last_sync)
        except (OSError, ValueError, KoordliteError) as error:
            self._say("picture", f"no picture of the node: {error}")
            return self._blind(f"no picture of the node: {error}", time.perf_counter() - began)
        self._said.pop("picture", None)
        self.seen = seen
        decisions = tuple(d for strategy in strategies.discover() for d in self._judge(strategy, seen))
        made = plan.make((d for d in decisions if self.modes[d.strategy] == "enforce"), seen.cgroups)
        # Before our own writes: the picture shows what stood there then.
        foreign = self._applier.foreign_writes(seen) if self._applier else ()
        applied, because = self._apply(made, seen)
        problems = (*seen.problems, *map(_conflict, made.conflicts))
        return ticks.build(
            dataclasses.replace(seen, problems=problems),
            decisions,
            applied=applied,
            foreign=foreign,
            modes=self.modes,
            started=self._started,
            wall=self._host.clock.wall(),
            tick_seconds=time.perf_counter() - began,
            because=because or self._stale(seen),
        )

    @property
    def _ours(self) -> frozenset[str]:
        return self._applier.ours if self._applier else frozenset()

    @property
    def _found(self) -> Mapping[str, Found]:
        return self._applier.found if self._applier else {}

    @property
    def _last_sync(self) -> Mapping[str, float]:
        return self._applier.last_sync if self._applier else {}

    def _judge(self, strategy: strategies.Strategy, seen: Snapshot) -> tuple[Decision, ...]:
        try:
            return strategies.judge(strategy, seen, self._settings.strategies)
        except Exception as error:
            why = {"error": f"{type(error).__name__}: {error}"}
            if self._said.get(strategy.name) != why["error"]:
                LOG.exception("strategy %s failed", strategy.name)
            self._said[strategy.name] = why["error"]
            return (Decision(strategy.name, "skip", "StrategyFailed", why, strategy=strategy.name),)

    def _apply(self, made: plan.Plan, seen: Snapshot) -> tuple[tuple[AppliedStep, ...], str]:
        """The steps taken, and why the agent is degraded when it could not take them all."""
        if not self._applier or not made.steps:
            return (), ""
        try:
            applied = self._applier.apply(made, seen)
        except (OSError, KoordliteError) as error:
            self._say("apply", f"nothing was written: {error}")
            return (), f"nothing was written: {error}"
        self._said.pop("apply", None)
        self._tell_refusals(applied)
        return applied, _refusals(applied)

    def _say(self, about: str, text: str) -> None:
        """What is wrong is logged when it comes up or changes, not each tick it lasts."""
        if self._said.get(about) != text:
            LOG.error(text)
        self._said[about] = text

    def _tell_refusals(self, applied: tuple[AppliedStep, ...]) -> None:
        """A refusal is logged when it comes up, not each tick it lasts."""
        for step in applied:
            if not step.ok and self._refused.get(step.place) != step.error:
                LOG.warning("refused: %s = %s: %s", step.place, step.value, step.error)
        self._refused = {step.place: step.error for step in applied if not step.ok}

    def _stale(self, seen: Snapshot) -> str:
        limit = self._settings.agent.stale_seconds
        old = {name: age for name, age in seen.ages.items() if age > limit and name != "placement"}
        return "; ".join(f"{name} not confirmed for {age:.0f} s" for name, age in sorted(old.items()))

    def _blind(self, because: str, seconds: float) -> Tick:
        clock = self._host.clock
        return Tick(
            time=clock.monotonic() - self._started,
            wall=clock.wall(),
            status="degraded",
            because=because,
            modes=self.modes,
            tick_seconds=seconds,
        )


def _refusals(applied: tuple[AppliedStep, ...]) -> str:
    refused = [step for step in applied if not step.ok]
    return f"{len(refused)} writes refused, first {refused[0].place}: {refused[0].error}" if refused else ""


def _conflict(conflict: PlanConflict) -> Problem:
    why = f"{conflict.first} and {conflict.second} want different values"
    return Problem(conflict.place, "value", "", why, f"{conflict.first} has it; turn one of the two strategies off")


def _log_restored(occasion: str, steps: tuple[AppliedStep, ...]) -> None:
    refused = [step for step in steps if not step.ok]
    if steps:
        LOG.info("%s: %d places restored, %d refused", occasion, len(steps) - len(refused), len(refused))
    for step in refused:
        LOG.error("could not restore %s to %s: %s", step.place, step.value, step.error)
