"""What a running descheduler answers and logs: health by age and result, metrics under upstream's names, log lines."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from handclock import HandClock
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from descheduler.evictors import eviction_api
from descheduler.plan import Attempt
from descheduler.policy import reader
from descheduler.serve import page
from descheduler.serve.endpoints import Endpoints
from descheduler.serve.log import CycleLog
from descheduler.serve.loop import CycleResult
from descheduler.serve.metrics import Metrics
from koordlite.model.errors import Problem
from koordlite.report.log_levels import LogLevels
from tests.descheduler.conftest import RESTARTS as POLICY


@pytest.fixture
def told(cluster: Any) -> CycleResult:
    """A dry run: one pod to evict, one kept because it has no owner."""
    cluster.node("a")
    cluster.node("b")
    for name, owner in (("restless", "two"), ("bare", "")):
        cluster.pod(name, "a", owner=owner, restarts=50)
    plan = cluster.plan(POLICY)
    setup = reader.setup(reader.parse(POLICY, "policy.yaml"))
    seconds = {("p", "RemovePodsHavingTooManyRestarts"): 0.02}
    return CycleResult(
        number=1,
        began=1000.0,
        seconds=2.0,
        setup=setup,
        leader=True,
        dry_run=True,
        plan=plan,
        attempts=eviction_api.prepare(plan),
        plugin_seconds=seconds,
    )


def failed(told: CycleResult) -> CycleResult:
    return msgspec.structs.replace(told, plan=None, attempts=(), error="the server is away", unreachable=True)


@pytest.fixture
def time() -> HandClock:
    return HandClock(0.0)


@pytest.fixture
def endpoints(time: HandClock) -> Endpoints:
    return Endpoints(Metrics().registry, interval_seconds=100.0, monotonic=time)


def get(endpoints: Endpoints, path: str) -> tuple[int, str]:
    answer = endpoints.answer(path, {}, "")
    return answer.status, answer.body.decode()


@pytest.mark.parametrize(
    ("seconds", "status"),
    [pytest.param(359.0, 200, id="three intervals and a minute"), pytest.param(361.0, 503, id="a moment later")],
)
def test_health_ends_when_no_good_cycle_comes(
    endpoints: Endpoints, time: HandClock, seconds: float, status: int
) -> None:
    time.now = seconds
    assert get(endpoints, "/healthz")[0] == status


def test_a_failed_cycle_does_not_count_as_a_sign_of_life(
    endpoints: Endpoints, time: HandClock, told: CycleResult
) -> None:
    time.now = 300.0
    endpoints.publish(told)
    time.now = 600.0
    endpoints.publish(failed(told))
    assert get(endpoints, "/healthz")[0] == 200
    time.now = 300.0 - 2.0 + 361.0
    status, words = get(endpoints, "/healthz")
    assert status == 503 and "the server is away" in words


def test_ready_means_that_the_cluster_was_reached(endpoints: Endpoints, told: CycleResult) -> None:
    assert get(endpoints, "/readyz")[0] == 503
    endpoints.publish(told)
    assert get(endpoints, "/readyz") == (200, "leader, dry run\n")
    endpoints.publish(failed(told))
    assert get(endpoints, "/readyz")[0] == 503
    endpoints.publish(msgspec.structs.replace(told, leader=False))
    assert get(endpoints, "/readyz") == (200, "standby, dry run\n")


def test_a_cycle_that_fails_though_the_cluster_answers_leaves_it_ready(endpoints: Endpoints, told: CycleResult) -> None:
    endpoints.publish(told)
    endpoints.publish(msgspec.structs.replace(failed(told), error="403 Forbidden: no", unreachable=False))
    assert get(endpoints, "/readyz") == (200, "leader, dry run; the last cycle failed: 403 Forbidden: no\n")
    (condition,) = json.loads(get(endpoints, "/report.json")[1])["conditions"]
    assert condition == {"type": "LastCycleFailed", "status": "True", "message": "403 Forbidden: no"}
    for path in ("/report", "/report.txt"):
        assert "The last cycle failed, this is the report of the one before: 403 Forbidden" in get(endpoints, path)[1]
    endpoints.publish(told)
    assert "conditions" not in json.loads(get(endpoints, "/report.json")[1])


def test_the_last_good_report_stays(endpoints: Endpoints, told: CycleResult) -> None:
    assert get(endpoints, "/report.json")[0] == 503
    endpoints.publish(told)
    endpoints.publish(failed(told))
    assert json.loads(get(endpoints, "/report.json")[1])["evict"][0]["pod"] == "default/restless"
    assert "<!doctype html>" in get(endpoints, "/report")[1]
    assert "default/restless" in get(endpoints, "/report.txt")[1]
    assert get(endpoints, "/nothing")[0] == 404


def samples(metrics: Metrics) -> dict[str, list[tuple[Mapping[str, str], float]]]:
    found: dict[str, list[tuple[Mapping[str, str], float]]] = {}
    for family in text_string_to_metric_families(generate_latest(metrics.registry).decode()):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def test_metrics_have_the_names_of_upstream(told: CycleResult) -> None:
    metrics = Metrics()
    metrics.observe(told)
    found = samples(metrics)
    labels = {
        "result": "dry-run",
        "strategy": "RemovePodsHavingTooManyRestarts",
        "profile": "p",
        "namespace": "default",
        "node": "a",
    }
    assert found["descheduler_pods_evicted_total"] == [(labels, 1.0)]
    assert found["descheduler_pods_evicted"] == [(labels, 1.0)]
    for prefix in ("descheduler_", "descheduler_descheduler_"):
        assert found[f"{prefix}loop_duration_seconds_sum"] == [({}, 2.0)]
        ((strategy, seconds),) = found[f"{prefix}strategy_duration_seconds_sum"]
        assert (strategy["strategy"], seconds) == ("RemovePodsHavingTooManyRestarts", 0.02)
    assert found["descheduler_build_info"][0][1] == 1.0


def test_metrics_tell_failures_and_why_pods_were_kept(told: CycleResult) -> None:
    metrics = Metrics()
    metrics.observe(told)
    metrics.observe(msgspec.structs.replace(failed(told), began=2000.0, leader=False))
    found = samples(metrics)
    assert found["descheduler_pods_kept_total"] == [({"reason": "BarePod"}, 1.0)]
    assert found["descheduler_cycle_errors_total"] == [({}, 1.0)]
    assert found["descheduler_last_cycle_timestamp_seconds"] == [({}, 2000.0)]
    assert found["descheduler_last_success_timestamp_seconds"] == [({}, 1000.0)]
    assert found["descheduler_leader"] == [({}, 0.0)]


def test_what_could_not_be_judged_is_counted_shown_and_logged(
    told: CycleResult, caplog: pytest.LogCaptureFixture
) -> None:
    assert told.plan
    plugin = told.plan.plugins[0]
    unsure = msgspec.structs.replace(told.plan, not_judged=2, not_judged_by={plugin: 2})
    metrics = Metrics()
    metrics.observe(msgspec.structs.replace(told, plan=unsure))
    assert samples(metrics)["descheduler_pods_not_judged"] == [({"strategy": plugin}, 2.0)]
    metrics.observe(told)
    assert samples(metrics)["descheduler_pods_not_judged"] == [({"strategy": plugin}, 0.0)]
    caplog.set_level(logging.INFO, "descheduler")
    CycleLog().tell(msgspec.structs.replace(told, plan=unsure))
    assert "notJudged=2" in caplog.records[-1].getMessage()
    assert f"2 by {plugin}" in page.document(msgspec.structs.replace(told, plan=unsure), ())


@pytest.mark.parametrize(
    ("result", "word"),
    [
        ("Evicted", "success"),
        ("InBackground", "background"),
        ("JobCreated", "background"),
        ("Blocked", "error"),
        ("Failed", "error"),
    ],
)
def test_results_are_counted_by_upstreams_word(told: CycleResult, result: str, word: str) -> None:
    assert told.plan
    attempt = Attempt("default/restless", result, {}, uid="uid-restless")
    metrics = Metrics()
    metrics.observe(msgspec.structs.replace(told, attempts=(attempt,), dry_run=False))
    ((labels, _),) = samples(metrics)["descheduler_pods_evicted_total"]
    assert labels["result"] == word


@pytest.mark.parametrize("result", ["Deferred", "NotTried"])
def test_what_was_not_asked_for_is_no_failed_eviction(told: CycleResult, result: str) -> None:
    metrics = Metrics()
    attempt = Attempt("default/restless", result, {}, uid="uid-restless")
    metrics.observe(msgspec.structs.replace(told, attempts=(attempt,), dry_run=False))
    assert "descheduler_pods_evicted_total" not in samples(metrics)


def test_one_line_a_decision_and_none_twice(told: CycleResult, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "descheduler")
    narrator = CycleLog()
    narrator.tell(told)
    lines = [record.getMessage() for record in caplog.records]
    assert [text.split()[:3] for text in lines] == [
        ["event=decision", "verdict=evict", "pod=default/restless"],
        ["event=decision", "verdict=kept", "pod=default/bare"],
        ["event=cycle", "number=1", "seconds=2.0"],
    ]
    assert "keptBy=BarePod" in lines[1]
    caplog.clear()
    narrator.tell(told)
    assert [record.getMessage().split()[0] for record in caplog.records] == ["event=cycle"]


def test_a_rejected_policy_is_told_once(told: CycleResult, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "descheduler")
    narrator = CycleLog()
    broken = msgspec.structs.replace(told, problems=(Problem("policy.yaml", "$", "x", "no policy", "fix it"),))
    for each in (broken, broken, told):
        narrator.tell(each)
    said = [text for record in caplog.records if "event=policy" in (text := record.getMessage())]
    assert [text.split()[1] for text in said] == ["result=rejected", "result=accepted"]


def test_what_is_logged_changes_while_it_runs_and_changes_back(time: HandClock) -> None:
    levels = LogLevels(now=time, logger="quiet", flows=())
    endpoints = Endpoints(None, interval_seconds=100.0, monotonic=time, levels=levels)
    quiet = logging.makeLogRecord({"name": "quiet.log", "levelno": logging.DEBUG})
    other = logging.makeLogRecord({"name": "quieter", "levelno": logging.DEBUG})
    assert (levels.filter(quiet), levels.filter(other)) == (False, True)
    assert endpoints.put("/loglevel", b'{"level": "debug", "forSeconds": 600}').status == 200
    assert levels.filter(quiet)
    assert json.loads(get(endpoints, "/loglevel")[1])["default"] == "debug"
    assert endpoints.put("/loglevel", b'{"level": "warning", "forSeconds": 60}').status == 200
    assert not levels.filter(quiet)
    time.now = 60.0
    assert json.loads(get(endpoints, "/loglevel")[1])["default"] == "info"
    assert endpoints.put("/loglevel", b'{"level": "off"}').status == 200
    time.now = 9999.0
    assert json.loads(get(endpoints, "/loglevel")[1])["default"] == "off"
    for of in ('"flow": "bind"', '"pod": "a/b", "flow": "x"'):
        refused = endpoints.put("/loglevel", f'{{"level": "debug", {of}}}'.encode())
        assert refused.status == 400
        assert b"one level for all lines; leave pod and flow out" in refused.body
    assert endpoints.put("/loglevel", b"{").status == 400
    assert endpoints.put("/elsewhere", b"{}").status == 404
