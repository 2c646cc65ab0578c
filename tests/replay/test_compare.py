"""A record under other settings: the same settings change nothing, a higher threshold gives best effort more."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import msgspec
import pytest

from koordlite import config
from koordlite.changes.cgroup import CgroupChange
from koordlite.changes.eviction import EvictPod
from koordlite.record.reader import Record
from koordlite.record.round_record import RoundRecord
from koordlite.replay import compare, html, text
from koordlite.replay import json as as_json
from koordlite.replay.verify import Judge
from koordlite.replay.what_if import Course, Other
from koordlite.report.json.run_report import encode


def threshold(percent: int) -> dict[str, str]:
    document = {"clusterStrategy": {"enable": True, "cpuSuppressThresholdPercent": percent}}
    colocation = {"enable": True, "metricAggregateDurationSeconds": 10}
    return {"resource-threshold-config": json.dumps(document), "colocation-config": json.dumps(colocation)}


def found(record: Record, other: Other) -> compare.Comparison:
    return compare.compare(record.rounds(), other)


def test_the_same_settings_lead_to_the_same_limits(record: Record) -> None:
    judge, course, steps = Judge(), Course(Other()), 0
    for moment in record.rounds():
        shown = course.snapshot(moment)
        decisions = judge.decisions(shown)
        course.carried_out(shown, decisions)
        mine = [d for d in moment.decisions if d.strategy == "cpuSuppress"]
        assert [d for d in decisions if d.strategy == "cpuSuppress"] == mine
        steps += sum(isinstance(change, CgroupChange) for decision in mine for change in decision.changes)
    assert steps > 2, "the limit moved"


def test_the_same_settings_differ_in_nothing(record: Record) -> None:
    same = found(record, Other())
    assert same.be_cpu_seconds_gained == same.be_cpu_seconds_lost == 0
    assert same.recorded.be_cpu_seconds_allowed == same.other.be_cpu_seconds_allowed > 0
    assert same.recorded.seconds_above_threshold == same.other.seconds_above_threshold
    assert same.turns_seen == 0


def test_the_same_settings_write_the_same(record: Record) -> None:
    same = found(record, Other())
    assert same.other.writes_by_kind == same.recorded.writes_by_kind
    assert {"Node", "NodeResourceTopology", "cpuset.cpus"} <= same.recorded.writes_by_kind.keys()
    assert same.limits_enforced
    assert text.ONLY_OBSERVED not in text.text(same) + html.document(same)


def test_what_best_effort_would_have_used_is_a_range_where_it_was_held_down(record: Record) -> None:
    more = found(record, Other(threshold={"cpu_suppress_threshold_percent": 90}))
    assert more.recorded.be_cpu_seconds_least == more.recorded.be_cpu_seconds_most == more.be_cpu_seconds_used
    assert more.other.be_cpu_seconds_least == more.be_cpu_seconds_used
    assert more.other.be_cpu_seconds_most == pytest.approx(more.be_cpu_seconds_used + more.be_cpu_seconds_gained)
    assert more.other.be_cpu_seconds_budget > more.recorded.be_cpu_seconds_budget > 0
    less = found(record, Other(threshold={"cpu_suppress_threshold_percent": 30}))
    assert less.other.be_cpu_seconds_most == pytest.approx(less.be_cpu_seconds_used - less.be_cpu_seconds_lost)
    for shown in (text.text(more), html.document(more)):
        assert "BE used" in shown and "of its budget by the formula" in shown


def test_without_a_limit_best_effort_gets_no_more_than_stood_idle(record: Record) -> None:
    free = found(record, Other(modes={"cpuSuppress": "observe"}, threshold={"enable": False}))
    moments = list(record.rounds())
    capacity = moments[0].snapshot.node.capacity_milli / 1000  # type: ignore[union-attr]
    node = sum(m.snapshot.usage.node.cpu for m in moments[1:] if m.snapshot.usage.node) / 1000
    assert free.be_cpu_seconds_gained <= free.seconds * capacity - node + 1


def test_where_nothing_is_enforced_it_says_why_no_limit_moves(record: Record) -> None:
    observed = found(record, Other(modes={"cpuSuppress": "observe"}, threshold={"cpu_suppress_threshold_percent": 90}))
    assert not observed.limits_enforced
    assert text.ONLY_OBSERVED in text.text(observed)
    assert text.ONLY_OBSERVED in html.document(observed)
    assert json.loads(encode(as_json.document(observed)))["limitsEnforced"] is False


@pytest.mark.parametrize("by", ["one field", "the ConfigMap"])
def test_a_higher_threshold_gives_best_effort_more(record: Record, by: str) -> None:
    one = {"cpu_suppress_threshold_percent": 90}
    other = Other(threshold=one) if by == "one field" else Other(config=threshold(90))
    more = found(record, other)
    assert more.other.be_cpu_seconds_allowed > more.recorded.be_cpu_seconds_allowed
    assert more.be_cpu_seconds_gained > 0
    assert more.be_cpu_seconds_lost == 0


def test_a_lower_threshold_costs_work_that_was_done(record: Record) -> None:
    less = found(record, Other(threshold={"cpu_suppress_threshold_percent": 30}))
    assert 0 < less.be_cpu_seconds_lost < less.be_cpu_seconds_used
    assert less.be_cpu_seconds_gained == 0


def test_time_above_the_threshold_by_a_cpu_or_more_is_told_apart(record: Record) -> None:
    low = found(record, Other(threshold={"cpu_suppress_threshold_percent": 30}))
    assert 0 < low.recorded.seconds_well_above_threshold < low.recorded.seconds_above_threshold
    assert low.recorded.seconds_well_above_threshold < low.other.seconds_well_above_threshold, (
        "30 % is less than two CPUs"
    )
    assert low.other.seconds_well_above_threshold <= low.other.seconds_well_above_threshold_most
    assert "  by a CPU or more" in text.text(low)
    assert "by a CPU or more (less is rounding: limits are whole CPUs)" in html.document(low)
    assert json.loads(encode(as_json.document(low)))["other"]["secondsWellAboveThreshold"] >= 0


def test_without_suppression_nothing_is_held_down(record: Record) -> None:
    off = found(record, Other(threshold={"enable": False}))
    assert off.other.be_limit_min == off.other.be_limit_max
    assert off.turns_seen > 0
    assert off.turns[0].recorded != off.turns[0].other


def test_in_mode_observe_nothing_would_have_been_written(record: Record) -> None:
    modes = dict.fromkeys(config.default().strategies, "observe")
    looked_on = found(record, Other(modes=modes))  # type: ignore[arg-type]
    assert looked_on.other.writes == 0
    assert looked_on.recorded.writes > 0


def test_a_run_of_observing_can_be_enforced_afterwards(record: Record) -> None:
    observe = {n: dataclasses.replace(s, mode="observe") for n, s in config.default().strategies.items()}
    moments = [msgspec.structs.replace(m, settings=observe, applied=()) for m in record.rounds()]
    modes = dict.fromkeys(observe, "enforce")
    enforced = compare.compare(moments, Other(modes=modes))  # type: ignore[arg-type]
    assert enforced.recorded.writes == 0
    assert enforced.other.writes > 0


def test_pods_that_would_have_been_evicted_are_gone_and_counted_once(eventful: tuple[Path, list[RoundRecord]]) -> None:
    folder, moments = eventful
    rule = dataclasses.replace(moments[0].settings["memoryEvict"], max_evictions_per_round=3)  # type: ignore[call-arg]
    other = Other(settings={**moments[0].settings, "memoryEvict": rule})
    more = compare.compare(Record(folder).rounds(), other)
    recorded = {c.name for m in moments for d in m.decisions for c in d.changes if isinstance(c, EvictPod)}
    assert {name.partition("/")[2] for name in more.recorded.evictions} == recorded
    assert sorted(more.other.evictions) == ["ns/first", "ns/second", "ns/third"]


def test_a_gap_of_the_record_counts_for_nothing(record: Record) -> None:
    moments = list(record.rounds())
    late = [msgspec.structs.replace(moment, wall=moment.wall + 86_400) for moment in moments[30:]]
    assert compare.compare([*moments[:30], *late], Other()).seconds == pytest.approx(58)


def test_a_long_record_is_thinned(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "MOST_POINTS", 16)
    points = found(record, Other()).points
    assert 8 <= len(points) <= 16
    assert points[0].recorded.time < points[-1].recorded.time


def test_the_text_has_both_sides_and_what_lies_between(record: Record) -> None:
    shown = text.text(found(record, Other(threshold={"cpu_suppress_threshold_percent": 90})))
    for part in ("recorded", "changed", "BE was allowed", "gained", "LS alone was above", "evictions", "writes"):
        assert part in shown


def test_the_json_has_every_number(record: Record) -> None:
    document = json.loads(encode(as_json.document(found(record, Other(threshold={"enable": False})))))
    assert (document["version"], document["kind"]) == (1, "koordlite-replay")
    assert document["recorded"]["writes"] > 0
    assert document["points"][5]["other"]["beLimit"]
    turn = document["turns"][0]
    assert turn["recorded"] != turn["other"]


def test_the_page_draws_both_limits_and_escapes_names(record: Record) -> None:
    page = html.document(found(record, Other(threshold={"enable": False})), title="a <b> c")
    assert page.count("<svg") == 2
    assert "limit of BE, changed" in page
    assert "a &lt;b&gt; c" in page
    assert "<script" not in page
