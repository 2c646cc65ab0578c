"""Plays a scenario from its first tick to its last."""

from __future__ import annotations

import dataclasses
import math
import tempfile
from collections.abc import Iterator
from pathlib import Path

from koordlite.lab.cluster import scenario
from koordlite.lab.simulation import measures
from koordlite.lab.simulation.measures import Recorder
from koordlite.lab.simulation.reading import Play
from koordlite.lab.simulation.stage import Stage
from koordlite.report.history import History
from koordlite.report.simulation import ExpectationResult, Happening, Simulated

_ALMOST_NOTHING = 1e-6


def play(scene: Play, *, seed: int | None = None) -> Simulated:
    """The whole scenario; `seed` in place of that of the file."""
    number = scene.scenario.seed if seed is None else seed
    with tempfile.TemporaryDirectory(prefix="koordlite-simulation-") as state:
        stage = Stage(scene, seed=number, state=Path(state))
        try:
            return _Run(scene, stage, number).whole()
        finally:
            stage.close()


class _Run:
    def __init__(self, scene: Play, stage: Stage, seed: int) -> None:
        self._play, self._stage, self._seed = scene, stage, seed
        self._recorder = Recorder(stage)
        self._history = History({}, {})
        self._due = sorted(scene.scenario.events, key=lambda event: event.seconds)
        self._happenings: list[Happening] = []
        self._texts: dict[int, str] = {}

    def whole(self) -> Simulated:
        """Every tick, then outcome."""
        written = self._play.scenario
        interval = self._stage.settings.agent.interval_seconds
        self._stage.start()
        for _ in range(math.ceil(written.seconds / interval)):
            self._tick()
            self._stage.sandbox.advance(interval)
        not_put_back = self._stage.stop()
        return Simulated(
            name=self._play.name,
            about=written.about,
            label=self._play.label or self._play.name,
            machine=written.machine,
            seconds=written.seconds,
            seed=self._seed,
            history=self._history,
            workloads=self._recorder.workloads(),
            happenings=tuple(self._happenings),
            checks=tuple(self._checks(not_put_back)),
            figures=measures.figures(self._recorder.samples, self._recorder.best_effort),
        )

    def _tick(self) -> None:
        now = self._stage.sandbox.clock.seconds
        self._note(now, self._stage.wake())
        while self._due and self._due[0].seconds <= now + _ALMOST_NOTHING:
            self._note(now, self._stage.happen(self._due.pop(0)))
        tick = self._stage.agent.tick() if self._stage.agent else None
        if tick:
            self._history.add(dataclasses.replace(tick, time=now, tick_seconds=0.0))
        self._recorder.take(tick)
        # The last sample before the end of an expectation's time counts.
        measures = {"file": self._stage.read, "cpus": self._stage.cpus}
        for number, expected in enumerate(self._play.scenario.expect):
            if expected.is_text and (expected.to is None or now <= scenario.seconds(expected.to)):
                self._texts[number] = measures[expected.measure](expected.of)

    def _note(self, now: float, words: Iterator[str]) -> None:
        self._happenings += [Happening(now, each) for each in words]

    def _checks(self, not_put_back: int) -> Iterator[ExpectationResult]:
        for number, expected in enumerate(self._play.scenario.expect):
            text = self._texts.get(number, "")
            yield measures.check(expected, self._recorder.samples, text=text, not_put_back=not_put_back)
