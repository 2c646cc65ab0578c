"""Other settings that are the same settings lead to the same course, whatever befell the recorded agent."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import msgspec
import pytest
import slices

from koordlite.changes.eviction import EvictPod
from koordlite.lab.simulation import reading
from koordlite.lab.simulation.reading import Play
from koordlite.lab.simulation.runner import Stage
from koordlite.model.status import AppliedStep
from koordlite.record import store
from koordlite.record.reader import Record
from koordlite.record.round_record import RoundRecord
from koordlite.record.segment import Head
from koordlite.replay import compare
from koordlite.replay.verify import Judge
from koordlite.replay.what_if import Course, Other

SCENARIOS = Path(__file__).parents[2] / "configs" / "scenarios"
SHIPPED = sorted(SCENARIOS.glob("*.yaml"))
SECONDS = slices.amount(24 * 3600, 160)
"""How much of a scenario is played; its first restart is over by then."""
Run = tuple[Path, list[RoundRecord]]


def played(play: Play, state: Path) -> list[RoundRecord]:
    """What the agents of a scenario judged."""
    stage, found = Stage(play, seed=play.scenario.seed, state=state), list[RoundRecord]()
    due = sorted(play.scenario.events, key=lambda event: event.seconds, reverse=True)
    interval = stage.settings.agent.interval_seconds
    stage.start()
    for _ in range(math.ceil(min(play.scenario.seconds, SECONDS) / interval)):
        list(stage.wake())
        while due and due[-1].seconds <= stage.sandbox.clock.seconds:
            list(stage.happen(due.pop()))
        if stage.agent:
            stage.agent.tick()
            assert stage.agent.last_round
            found.append(stage.agent.last_round)
        stage.sandbox.advance(interval)
    stage.close()
    return found


def assert_nothing_differs(moments: list[RoundRecord]) -> None:
    same = compare.compare(moments, Other())
    assert same.other == same.recorded
    assert [(turn.wall, turn.strategy, turn.subject) for turn in same.turns] == []
    assert same.be_cpu_seconds_gained == same.be_cpu_seconds_lost == 0


QUICK = ("agent-killed",)
"""Scenarios of every run: a restart among writes to resctrl."""


@pytest.mark.sliced
@pytest.mark.parametrize("path", [(pytest.param if p.stem in QUICK else slices.long)(p, id=p.stem) for p in SHIPPED])
def test_a_shipped_scenario_differs_in_nothing(path: Path, tmp_path: Path) -> None:
    moments = played(reading.load(path), tmp_path)
    assert store.write(tmp_path / "a.record", Head(koordlite="1"), moments) == len(moments)
    record = Record(tmp_path / "a.record")
    assert list(record.rounds()) == moments
    assert not record.problems
    assert any(moment.applied for moment in moments), "something was written"
    assert_nothing_differs(moments)


def test_a_run_with_evictions_and_surges_differs_in_nothing(eventful: Run) -> None:
    moments = list(Record(eventful[0]).rounds())
    assert evicted(moments)
    assert_nothing_differs(moments)


def test_what_the_cluster_refused_it_refuses_again(eventful: Run) -> None:
    """The same eviction, asked for in the same round: nobody knows that it would have been let go."""
    asked = next(moment for moment in eventful[1] if evicted([moment]))
    refusals = tuple(_refused(step) if str(step.place).startswith("pod/") else step for step in asked.applied)
    assert [done(asked, each) for each in (asked.applied, refusals)] == [1, 0]


def done(moment: RoundRecord, applied: tuple[AppliedStep, ...]) -> int:
    """Evictions that the other course carries out, where of the recorded one came what `applied` says."""
    moment = msgspec.structs.replace(moment, applied=applied)
    way = Course(Other())
    changes = way.carried_out(way.snapshot(moment), moment.decisions)
    return sum(isinstance(change, EvictPod) for change in changes)


def _refused(step: AppliedStep) -> AppliedStep:
    return msgspec.structs.replace(step, ok=False, error="the disruption budget does not allow it")


def test_who_is_evicted_on_both_courses_lingers_as_recorded(eventful: Run) -> None:
    shown = course(eventful[1], Other())
    assert [m.snapshot.usage.pods for m in shown] == [m.snapshot.usage.pods for m in eventful[1]]
    assert [m.snapshot.evicted for m in shown] == [m.snapshot.evicted for m in eventful[1]]


def test_who_is_evicted_first_on_the_other_course_is_gone_at_once_and_stays_so(eventful: Run) -> None:
    rule = dataclasses.replace(eventful[1][0].settings["memoryEvict"], max_evictions_per_round=3)  # type: ignore[call-arg]
    shown = course(eventful[1], Other(settings={**eventful[1][0].settings, "memoryEvict": rule}))
    early = {uid for uid, at in evicted(shown).items() if at < evicted(eventful[1]).get(uid, math.inf)}
    assert early
    for moment in shown:
        left = {uid for uid in early if evicted(shown)[uid] < moment.wall}
        assert not left & ({pod.uid for pod in moment.snapshot.pods} | moment.snapshot.usage.pods.keys())


def test_who_was_evicted_on_the_recorded_course_only_is_not_on_its_way_out(eventful: Run) -> None:
    shown = course(eventful[1], Other(modes={"memoryEvict": "observe"}))
    assert any(moment.snapshot.evicted for moment in eventful[1]) or evicted(eventful[1])
    assert not any(moment.snapshot.evicted for moment in shown)


def course(moments: list[RoundRecord], other: Other) -> list[RoundRecord]:
    """The moments as the other course saw them, with what it decided and carried out."""
    judge, way, found = Judge(), Course(other), list[RoundRecord]()
    for moment in moments:
        shown = way.snapshot(moment)
        decisions = judge.decisions(shown)
        done = way.carried_out(shown, decisions)
        steps = tuple(AppliedStep(change.place, "", ok=True) for change in done)
        found.append(msgspec.structs.replace(shown, decisions=decisions, applied=steps))
    return found


def evicted(moments: list[RoundRecord]) -> dict[str, float]:
    """When each pod was let go, by uid."""
    found: dict[str, float] = {}
    for moment in moments:
        done = {step.place for step in moment.applied if step.ok}
        for change in (change for decision in moment.decisions for change in decision.changes):
            if isinstance(change, EvictPod) and change.place in done:
                found.setdefault(change.uid, moment.wall)
    return found
