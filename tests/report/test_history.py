"""What is remembered is bounded, and news is told once."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from reported import tick_of

from koordlite.changes.cgroup import CgroupChange
from koordlite.changes.published import NodeResourceChange, TopologyChange
from koordlite.model.cpuset import CPUSet
from koordlite.model.decision import Decision, Verdict
from koordlite.model.errors import Problem
from koordlite.report import history
from koordlite.report.history import History


def change(cpus: str) -> tuple[CgroupChange, ...]:
    return (CgroupChange("kubepods/besteffort", "cpuset.cpus", CPUSet.parse(cpus)),)


def say(verdict: Verdict, cpus: str = "", reason: str = "BECPUBudget") -> Decision:
    return Decision("besteffort", verdict, reason, {}, change(cpus) if cpus else (), "cpuSuppress")


@pytest.mark.parametrize(
    ("decisions", "news"),
    [
        pytest.param([say("hold"), say("hold")], [True, False], id="the first word is news, its repetition is not"),
        pytest.param([say("shrink", "0-3"), say("hold")], [True, False], id="coming to rest is no news"),
        pytest.param([say("grow", "0-3"), say("grow", "0-4")], [True, True], id="every further change is"),
        pytest.param([say("grow", "0-3"), say("grow", "0-3")], [True, False], id="a wish repeated in vain is not"),
        pytest.param([say("hold"), say("hold", reason="NoMetrics")], [True, True], id="another reason is"),
        pytest.param([say("hold"), say("skip")], [True, True], id="not judging any more is"),
        pytest.param([say("hold"), say("shrink", "0-3"), say("hold"), say("shrink", "0-3")], [True, True, False, False],
                     id="the same change after a rest was never undone"),
    ],
)  # fmt: skip
def test_news(decisions: list[Decision], news: list[bool]) -> None:
    run = History({}, {})
    told = [bool(run.add(tick_of(time=float(i), decisions=(d,)))) for i, d in enumerate(decisions)]
    assert told == news
    assert run.decisions_seen == sum(news) == len(run.decisions)


def offer(milli: int, strategy: str = "beAllocatable", **evidence: int) -> Decision:
    change = NodeResourceChange("kubernetes.io/batch-cpu", milli)
    return Decision("node/batch-cpu", "set", "BatchAllocatable", {"result": milli, **evidence}, (change,), strategy)


def labelled(text: str, **evidence: int) -> Decision:
    return Decision("placement", "set", "Observed", evidence, (TopologyChange("x", text),), "topologyReport")


@pytest.mark.parametrize(
    ("decisions", "news"),
    [
        pytest.param([offer(1000 - i) for i in range(101)], [0], id="a drift of a tenth is not"),
        pytest.param([offer(1000), offer(950), offer(890), offer(850)], [0, 2], id="more than that since the last is"),
        pytest.param([say("shrink", "0-3"), say("shrink", "0-3"), say("shrink", "0-1")], [0, 2],
                     id="a tighter limit is"),
        pytest.param([say("shrink", "0-3"), say("hold"), say("shrink", "0-3")], [0, 1, 2],
                     id="a limit that is no longer wanted is, nothing was written"),
        pytest.param([labelled("12:00", seen=4), labelled("12:01", seen=4), labelled("12:02", seen=5)], [0, 2],
                     id="texts have times in them: the evidence counts"),
        pytest.param([say("shrink", "0-3"), Decision("besteffort", "shrink", "BECPUBudget", {},
                      (*change("0-3"), NodeResourceChange("x", 1)), "cpuSuppress"), say("shrink", "0-3")], [0, 1],
                     id="what is wanted now and then is said once"),
    ],
)  # fmt: skip
def test_news_while_observing(decisions: list[Decision], news: list[int]) -> None:
    """Nothing is written, so that each tick wants the same again."""
    run, modes = History({}, {}), dict.fromkeys(("cpuSuppress", "beAllocatable", "topologyReport"), "observe")
    told = [i for i, d in enumerate(decisions) if run.add(tick_of(time=float(i), decisions=(d,), modes=modes))]
    assert told == news


def test_subjects_and_strategies_do_not_hide_each_other() -> None:
    run = History({}, {})
    both = (
        say("hold"),
        msgspec.structs.replace(say("hold"), strategy="other"),
        msgspec.structs.replace(say("hold"), subject="x"),
    )
    assert len(run.add(tick_of(time=0.0, decisions=both))) == 3


def test_pods_that_came_and_went_are_not_remembered_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MAX_SUBJECTS", 8)
    run = History({}, {})
    for number in range(100):
        gone = msgspec.structs.replace(say("hold"), subject=f"pod/ns/job-{number}")
        news = run.add(tick_of(time=float(number), decisions=(say("hold"), gone)))
        assert [event.decision for event in news] == ([say("hold"), gone] if number == 0 else [gone])
        run.add(tick_of(time=float(number)))  # A round without a picture says nothing of anybody.
        assert len(run._news._last) <= 12


def test_rows_are_thinned_evenly_and_sums_count_every_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MAX_ROWS", 8)
    run = History({}, {})
    for second in range(100):
        run.add(tick_of(time=float(second), be_limit=1000))
    times = [row.time for row in run.rows]
    assert len(times) <= 8
    assert len({b - a for a, b in itertools.pairwise(times)}) == 1
    assert run.summary().ticks == 100
    assert run.summary().seconds == 99


def test_a_problem_is_kept_once_with_the_time_it_was_first_seen() -> None:
    run, problem = History({}, {}), Problem("node/a", "f", "v", "why", "do")
    for second in range(3):
        run.add(tick_of(time=float(second), problems=(problem,)))
    assert list(run.problems.values()) == [0.0]
