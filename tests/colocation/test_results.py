"""What the co-location benchmark makes of its runs."""

from __future__ import annotations

import dataclasses
import math
import os
import pathlib
import struct

import pytest

from tests.perf.colocation import goals, loads, measure, page, results, ways
from tests.perf.colocation.measure import Result
from tests.perf.colocation.results import Header, Results

RUN = Result(
    service="compute",
    pattern="steady",
    batch="compute",
    way="plain",
    seed=1,
    seconds=9.0,
    requests=1000,
    unanswered=0,
    histogram={measure.bin_of(2_000_000): 980, measure.bin_of(10_000_000): 20},
    service_cpus=0.5,
    batch_cpus=1.4,
    budget_cpus=0.8,
    agent_cpus=0.0,
    client_cpus=0.01,
    others_cpus=0.01,
    others_worst=0.02,
    steal_cpus=0.0,
    throttled_cpus=0.0,
    latest_ms=0.2,
    batch_by_second=(1.4,),
)


def _run(way: str, p99_ms: float, batch_cpus: float = 0.0, seed: int = 1, **more: object) -> Result:
    histogram = {measure.bin_of(1_000_000): 980, measure.bin_of(round(p99_ms * 1e6)): 20}
    fields = {"batch": "compute", **more} | ({"batch": ""} if way == "alone" else {})
    return dataclasses.replace(RUN, way=way, batch_cpus=batch_cpus, histogram=histogram, seed=seed, **fields)  # type: ignore[arg-type]


def test_percentiles_are_right_within_a_bin() -> None:
    assert measure.percentile(RUN.histogram, 0.5) == pytest.approx(2.0, rel=0.006)
    assert measure.percentile(RUN.histogram, 0.98) == pytest.approx(2.0, rel=0.006)
    assert measure.percentile(RUN.histogram, 0.99) == pytest.approx(10.0, rel=0.006)
    assert math.isnan(measure.percentile({}, 0.5))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param({}, "", id="a quiet run is kept"),
        pytest.param({"others_cpus": 0.2}, "others used 0.200", id="others used the machine all the time"),
        pytest.param({"others_worst": 0.9}, "others used 0.90 CPUs within a second", id="or for a second"),
        pytest.param({"steal_cpus": 0.1}, "0.100 were stolen", id="or another machine did"),
        pytest.param({"unanswered": 11}, "11 of 1000 requests", id="or requests were lost"),
    ],
)
def test_which_runs_are_thrown_away(change: dict[str, float], words: str) -> None:
    why = measure.why_thrown_away(dataclasses.replace(RUN, **change))
    assert words in why and bool(why) == bool(words)


def test_rounds_are_pooled_and_compared_with_alone_of_the_same_round() -> None:
    runs = [_run("alone", 4.0), _run("plain", 6.0), _run("alone", 8.0, seed=2), _run("plain", 12.0, seed=2)]
    (_, plain) = results.rows(runs)
    assert plain.rounds == 2
    assert plain.p99_ratio == pytest.approx(1.5, rel=0.01)
    assert plain.p99_span == pytest.approx((6.0, 12.0), rel=0.01)


@pytest.mark.parametrize(
    ("ours", "words", "met"),
    [
        pytest.param(_run("agent:cfsQuota", 5, 0.77), "gets 95 % of its budget", True, id="0.77 of 0.8 CPUs is enough"),
        pytest.param(_run("agent:cfsQuota", 5, 0.75), "gets 95 % of its budget", False, id="0.75 of 0.8 is not"),
        pytest.param(_run("agent:cfsQuota", 6, 0.8), "than by Koordinator's", True, id="as slow as Koordinator's"),
        pytest.param(_run("agent:cfsQuota", 7, 0.8), "than by Koordinator's", False, id="slower than Koordinator's"),
        pytest.param(_run("agent:cpuset", 7, 0.8), "than without an agent", False, id="slower than no agent"),
        pytest.param(_run("agent:guided", 5.5, 1.4), "or as with plain groups", True, id="as fast as plain groups"),
        pytest.param(_run("agent:guided", 6.5, 1.4), "or as with plain groups", False, id="slower than plain groups"),
        pytest.param(_run("agent:guided", 5, 1.2), "what plain groups give", False, id="less than plain groups give"),
    ],
)
def test_goals(ours: Result, words: str, met: bool) -> None:
    runs = [_run("alone", 5), _run("plain", 5.5, 1.4), _run("koordinator:cfsQuota", 6, 0.8), ours]
    twice = [dataclasses.replace(run, seed=seed) for run in runs for seed in (1, 2)]
    judged = [goal.met for goal in goals.judge(results.rows(twice)) if words in goal.words]
    assert judged == [met]


@pytest.mark.parametrize(
    ("ours", "met"),
    [
        pytest.param((7.0, 5.5), None, id="the rounds differ by more than the ways"),
        pytest.param((7.0, 6.8), False, id="every round is slower than each of the other's"),
        pytest.param((7.0,), None, id="one round says nothing"),
    ],
)
def test_a_goal_is_missed_only_beyond_what_rounds_differ_by(ours: tuple[float, float], met: bool | None) -> None:
    runs = [_run("koordinator:cfsQuota", p99, 0.8, seed) for seed, p99 in enumerate((5.0, 6.0))]
    runs += [_run("agent:cfsQuota", p99, 0.8, seed) for seed, p99 in enumerate(ours)]
    (goal,) = (goal for goal in goals.judge(results.rows(runs)) if "than by Koordinator's" in goal.words)
    assert goal.met is met


@pytest.mark.parametrize(
    ("by_second", "met"),
    [
        pytest.param((1.4, 0.1, 1.4, 0.1), True, id="between the bursts batch work has its budget"),
        pytest.param((0.3, 0.1, 0.3, 0.1), False, id="bursts hold it down for good"),
    ],
)
def test_the_goal_of_bursts(by_second: tuple[float, ...], met: bool) -> None:
    bursty = [_run("agent:cfsQuota", 5, 0.75, pattern=name, batch_by_second=by_second) for name in loads.PATTERNS]
    judged = [goal for goal in goals.judge(results.rows(bursty)) if "bursts hold batch down" in goal.words]
    assert [goal.met for goal in judged] == [met] * 3
    assert {goal.load.split(", ")[1] for goal in judged} == {"bursty-100ms", "bursty-1s", "bursty-10s"}


@pytest.mark.parametrize(
    ("batch", "p99", "met"),
    [
        pytest.param("stream", 5.6, [True], id="as fast as the best other way"),
        pytest.param("stream", 6.0, [False], id="slower than the best other way"),
        pytest.param("compute", 6.0, [], id="arithmetic contends for no memory"),
    ],
)
def test_the_goal_beside_memory_bound_work(batch: str, p99: float, met: list[bool]) -> None:
    others = [
        _run("plain", 7, 1.4),
        _run("koordinator:cfsQuota", 5.5, 0.8),
        _run("agent:cfsQuota,threshold=80", 5, 0.9),
    ]
    runs = [dataclasses.replace(run, batch=batch) for run in (*others, _run("agent:guided", p99, 1.3))]
    twice = [dataclasses.replace(run, seed=seed) for run in (_run("alone", 5), *runs) for seed in (1, 2)]
    judged = goals.judge(results.rows(twice))
    assert [goal.met for goal in judged if "memory-bound" in goal.words] == met


@pytest.mark.parametrize(
    ("ours", "fixed", "met"),
    [
        pytest.param((5.4, 1.3), (5.2, 0.8), [True, True], id="within the objective, and more"),
        pytest.param((5.4, 0.7), (5.2, 0.8), [True, False], id="within it, and less"),
        pytest.param((6.5, 1.3), (5.2, 0.8), [False, False], id="more, but beyond the objective"),
        pytest.param((5.4, 1.3), (6.5, 1.4), [True, None], id="the fixed threshold is beyond it"),
    ],
)
def test_the_goals_of_an_objective(ours: tuple[float, float], fixed: tuple[float, float], met: list[bool]) -> None:
    runs = [_run("alone", 5), _run("agent:cfsQuota", *fixed), _run("agent:objective", *ours)]
    judged = goals.judge(results.rows(runs))
    assert [goal.met for goal in judged if goal.words.startswith("objective:")] == met


def test_the_p99_of_an_objective_counts_requests_without_an_answer() -> None:
    with measure.Latencies() as latencies:
        assert math.isnan(latencies.p99_ms(5))
        answered = [(ms * 1_000_000, 2_000_000) for ms in range(0, 8_000, 10)]
        raw = b"".join(struct.pack("=QQ", *pair) for pair in answered)
        os.pwrite(latencies.fileno, raw, 0)
        assert latencies.p99_ms(5) == 2.0
        stuck = [(7_400_000_000 + n, 0) for n in range(20)]
        os.pwrite(latencies.fileno, raw + b"".join(struct.pack("=QQ", *pair) for pair in stuck), 0)
        assert latencies.p99_ms(5) == pytest.approx(592, abs=1)
        assert latencies.p99_ms(0.5) == 2.0


def test_results_of_another_machine_belong_into_another_file() -> None:
    here = Header(2, "6.18", "a processor", {"compute 0": 1.4})
    assert not results.refusal(here, dataclasses.replace(here, iteration_ns={}))
    assert "kernel 6.18 there, 6.12 here" in results.refusal(here, dataclasses.replace(here, kernel="6.12"))
    assert "cgroup 1 there, 2 here" in results.refusal(here, dataclasses.replace(here, cgroup=2))
    assert "cpus 2 there, 4 here" in results.refusal(here, dataclasses.replace(here, cpus=4))


def test_a_file_of_results_reads_as_it_was_written(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "results.jsonl"
    written = Results(path)
    written.begin(Header(2, "6.18", "a processor", {"compute 0": 1.4}))
    written.add(RUN)
    written.add(dataclasses.replace(RUN, seed=2, thrown_away="others used 1 CPU"))
    again = Results(path)
    assert again.header == written.header
    assert again.runs == written.runs
    assert [run.seed for run in again.kept()] == [1]
    path.write_text(path.read_text() + '{"way": "plain"}\n')
    with pytest.raises(ValueError, match=r"results.jsonl:4: not a result of this version"):
        Results(path)


def test_the_page_names_each_way_in_words(tmp_path: pathlib.Path) -> None:
    found = Results(tmp_path / "results.jsonl")
    shown = ("alone", "plain", "agent:cfsQuota,agent.reaction=off", "agent:objective,p99=1.2")
    for run in (_run(way, 6, 1.4) for way in shown):
        found.add(run)
    text = page.document(found)
    for words in (
        "the service alone",
        "Kubernetes groups, no agent",
        "koordlite, cfsQuota, reaction off",
        "1.40",
        "koordlite, objective p99 1.2",
    ):
        assert words in text


@pytest.mark.parametrize("name", ["slow", "agent:cfsQuota,agent.reaction", "koordinator:guided", "agent:guidet"])
def test_a_way_that_does_not_exist_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=name.partition(",")[0]):
        ways.parse(name)


def test_settings_of_a_way_are_those_of_the_configuration_file() -> None:
    way = ways.parse("agent:cfsQuota,agent.reaction=off,cpuSuppress.growHoldSeconds=0,threshold=80")
    assert ways.configuration(way) == {
        "agent": {"reaction": "off"},
        "strategies": {"cpuSuppress": {"growHoldSeconds": 0}},
    }
    assert way.threshold_percent == 80


@pytest.mark.parametrize(
    ("pattern", "seconds"), [("steady", 9.0), ("bursty-1s", 9.0), ("bursty-10s", 10.0), ("diurnal", 60.0)]
)
def test_runs_last_for_whole_periods(pattern: str, seconds: float) -> None:
    assert loads.whole_periods(pattern, 9.0) == seconds
