"""Which decisions are logged: levels by strategy and pod, for a time, changed over HTTP."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from reported import tick_of

from koordlite.model.decision import Decision, Verdict
from koordlite.report.history import DecisionEvent
from koordlite.report.log_levels import MOST_PODS
from koordlite.report.terminal.decision_log import DecisionLog, Levels
from koordlite.report.web.endpoints import Endpoints

STRATEGIES = ("cpuSuppress", "memoryEvict")


def decided(verdict: Verdict, strategy: str = "cpuSuppress", subject: str = "besteffort") -> Decision:
    return Decision(subject, verdict, "BECPUBudget", {"budget_milli": 13400}, strategy=strategy)


@pytest.fixture
def clock() -> list[float]:
    return [0.0]


@pytest.fixture
def levels(clock: list[float]) -> Levels:
    return Levels(STRATEGIES, now=lambda: clock[0])


def put(levels: Levels, **wish: object) -> None:
    levels.put(json.dumps(wish).encode())


def lines(
    levels: Levels, caplog: pytest.LogCaptureFixture, decisions: Sequence[Decision], *, new: bool = True
) -> list[str]:
    caplog.clear()
    news = [DecisionEvent(0.0, 0.0, decision) for decision in decisions] if new else []
    DecisionLog(levels).write(tick_of(time=0.0, decisions=tuple(decisions)), news)
    # The first tick brings a line about the node.
    records = [record for record in caplog.records if "CPU node" not in record.getMessage()]
    return [f"{record.levelname} {record.getMessage()}" for record in records]


@pytest.mark.parametrize(
    ("level", "said", "count"),
    [
        pytest.param("off", ("refuse", True), 0, id="off: not even refusals"),
        pytest.param("warning", ("grow", True), 0, id="warning: no ordinary decision"),
        pytest.param("warning", ("refuse", True), 1, id="warning: refusals"),
        pytest.param("warning", ("evict", True), 1, id="warning: evictions"),
        pytest.param("warning", ("evict", False), 0, id="warning: not again while they last"),
        pytest.param("info", ("grow", True), 1, id="info: what is new"),
        pytest.param("info", ("grow", False), 0, id="info: not what was said before"),
        pytest.param("debug", ("hold", False), 1, id="debug: each tick"),
    ],
)
def test_what_a_level_lets_through(
    levels: Levels, caplog: pytest.LogCaptureFixture, level: str, said: tuple[Verdict, bool], count: int
) -> None:
    put(levels, level=level, strategy="cpuSuppress")
    assert len(lines(levels, caplog, [decided(said[0])], new=said[1])) == count


def test_by_default_only_what_needs_a_person_is_written(levels: Levels, caplog: pytest.LogCaptureFixture) -> None:
    found = lines(levels, caplog, [decided("grow"), decided("refuse")])
    assert [line.split()[0] for line in found] == ["WARNING"]


def test_debug_of_one_strategy_is_silent_about_the_others(levels: Levels, caplog: pytest.LogCaptureFixture) -> None:
    put(levels, level="debug", strategy="cpuSuppress")
    found = lines(levels, caplog, [decided("hold"), decided("hold", "memoryEvict")], new=False)
    assert [line.split()[:2] for line in found] == [["DEBUG", "cpuSuppress"]]
    assert "budget_milli=13400" in found[0]


@pytest.mark.parametrize("name", ["shop/web", "web"])
def test_a_pod_goes_before_its_strategy(levels: Levels, caplog: pytest.LogCaptureFixture, name: str) -> None:
    put(levels, level="off", strategy="memoryEvict")
    put(levels, level="debug", pod=name)
    both = [decided("hold", "memoryEvict", subject=f"pod/shop/{pod}") for pod in ("web", "web-2")]
    found = lines(levels, caplog, both, new=False)
    assert len(found) == 1
    assert "pod/shop/web:" in found[0]


def test_a_level_ends_with_its_time(levels: Levels, clock: list[float]) -> None:
    put(levels, level="debug", strategy="cpuSuppress", forSeconds=60)
    put(levels, level="info", forSeconds=60)
    assert levels.document()["strategies"] == {"cpuSuppress": {"level": "debug", "forSeconds": 60.0}}
    clock[0] = 60.0
    assert levels.document() | {"levels": ()} == {
        "default": {"level": "warning"},
        "strategies": {},
        "pods": {},
        "levels": (),
    }


def test_then_the_level_before_holds_again(levels: Levels, clock: list[float]) -> None:
    for target in ({}, {"strategy": "cpuSuppress"}, {"pod": "web"}):
        put(levels, level="info", **target)
        put(levels, level="debug", forSeconds=60, **target)
        put(levels, level="off", forSeconds=30, **target)
    assert levels.document()["default"] == {"level": "off", "forSeconds": 30.0}
    clock[0] = 30.0
    after = levels.document()
    assert after["default"] == {"level": "info"}
    assert (after["strategies"], after["pods"]) == ({"cpuSuppress": {"level": "info"}}, {"web": {"level": "info"}})


def test_levels_of_pods_are_bounded(levels: Levels) -> None:
    for number in range(MOST_PODS + 5):
        put(levels, level="debug", pod=f"p{number}")
    held = levels.document()["pods"]
    assert len(held) == MOST_PODS
    assert "p0" not in held


@pytest.mark.parametrize(
    ("body", "words"),
    [
        pytest.param(b"", "write for example", id="nothing"),
        pytest.param(b'{"level": "loud"}', "loud", id="no such level"),
        pytest.param(b'{"strategy": "cpuSuppress"}', "level", id="no level"),
        pytest.param(b'{"level": "info", "x": 1}', "unknown field", id="an unknown field"),
        pytest.param(b'{"level": "info", "strategy": "nope"}', "there are cpuSuppress, memoryEvict", id="no strategy"),
        pytest.param(b'{"level": "info", "strategy": "cpuSuppress", "pod": "a"}', "not for both", id="two targets"),
        pytest.param(b'{"level": "info", "forSeconds": 0}', "more than 0", id="no time"),
        pytest.param(b'{"level": "info", "forSeconds": 1e9}', "at most 86400", id="too long a time"),
        pytest.param(b"[" * 5000, "write for example", id="deep nesting"),
    ],
)
def test_a_wish_that_cannot_be_met_says_why_and_changes_nothing(levels: Levels, body: bytes, words: str) -> None:
    endpoints = Endpoints(period_seconds=1.0, registry=CollectorRegistry(), levels=levels)
    before = levels.document()
    answer = endpoints.put("/loglevel", body)
    assert answer.status == 400
    assert words in answer.body.decode()
    assert levels.document() == before


@given(st.binary(max_size=200))
def test_any_bytes_are_a_wish_or_a_refusal(body: bytes) -> None:
    levels = Levels(STRATEGIES)
    try:
        levels.put(body)
    except ValueError as error:
        assert str(error)


def test_a_change_answers_with_what_holds(levels: Levels) -> None:
    endpoints = Endpoints(period_seconds=1.0, registry=CollectorRegistry(), levels=levels)
    answer = endpoints.put("/loglevel", b'{"level": "info"}')
    assert json.loads(answer.body)["default"] == {"level": "info"}
    assert endpoints.answer("/loglevel", {}, "").body == answer.body
    assert endpoints.put("/state", b"{}").status == 404


def test_its_own_level_does_not_depend_on_that_of_the_program() -> None:
    assert logging.getLogger("koordlite.decisions").isEnabledFor(logging.DEBUG)
