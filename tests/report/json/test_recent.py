"""What `/state` and `/recent` say is read back into what it was made from."""

from __future__ import annotations

import json as jsons

import pytest

from koordlite.model.picture.pressure import Pressure, Stall
from koordlite.report.history import History
from koordlite.report.json import recent, run_report
from koordlite.report.past import Past
from koordlite.report.tick import Tick, build


def through(tick: Tick) -> Tick:
    return recent.tick(jsons.loads(run_report.encode(run_report.state(tick))))


def test_a_tick_comes_back_with_all_that_a_screen_shows(ticks: tuple[Tick, ...]) -> None:
    for tick in (ticks[0], ticks[40], ticks[-1]):
        back = through(tick)
        for name in (
            "time",
            "node",
            "status",
            "be_limit",
            "be_cpuset",
            "schemata",
            "cpus",
            "modes",
            "problems",
            "ages",
        ):
            assert getattr(back, name) == getattr(tick, name), name
        told = [(d.strategy, d.subject, d.verdict, d.reason, d.explained) for d in back.decisions]
        assert told == [(d.strategy, d.subject, d.verdict, d.reason, d.explained) for d in tick.decisions]


def test_a_tick_of_a_real_picture_comes_back(picture: object) -> None:
    tick = build(picture, (), modes={"cpuSuppress": "observe"})  # type: ignore[arg-type]
    assert through(tick).cpus == tick.cpus


def test_numbers_as_keys_and_nested_values_come_back() -> None:
    stall = Stall(1.0, 2.0, 3.0, 4)
    tick = Tick(time=1.0, numa_memory={"node": {0: 5, 1: 6}}, pressure={"node": {"cpu": Pressure(stall, None)}})
    back = through(tick)
    assert (back.numa_memory, back.pressure) == (tick.numa_memory, tick.pressure)


def test_rows_and_news_come_back(ticks: tuple[Tick, ...]) -> None:
    past, run = Past(), History({}, {})
    for tick in ticks:
        past.add(tick, run.add(tick))
    document = jsons.loads(run_report.encode(recent.document(past.remembered())))
    rows, events = recent.rows(document), recent.events(document)
    assert [row.be_limit for row in rows] == [tick.be_limit for tick in ticks]
    assert len(events) == min(recent.MAX_EVENTS, len(run.decisions)) > 30
    assert (events[-1].time, events[-1].decision.reason) == (
        run.decisions[-1].time,
        run.decisions[-1].decision.reason,
    )


@pytest.mark.parametrize(
    "state",
    [{}, {"kind": "koordlite-state"}, {"kind": "koordlite-state", "version": 2}, {"kind": "x", "version": 1}],
    ids=["nothing", "no version", "another version", "another kind"],
)
def test_what_is_no_state_is_refused(state: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="no state of an agent of this version"):
        recent.tick(state)


def test_a_field_of_another_type_is_refused() -> None:
    state = jsons.loads(run_report.encode(run_report.state(Tick(time=1.0)))) | {"beLimit": "many"}
    with pytest.raises(ValueError, match="int"):
        recent.tick(state)
