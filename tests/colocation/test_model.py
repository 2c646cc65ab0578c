"""The model of the scheduler for large nodes, where arithmetic says what has to come out."""

from __future__ import annotations

import math

import pytest

from tests.perf.colocation import ways
from tests.perf.colocation.emulated import Outcome, simulate
from tests.perf.colocation.model import Limits, Node, ServiceLoad

QUARTER = ServiceLoad(rate=250.0, work_us=1000.0)


def _outcome(way: str, cpus: int = 8, service: ServiceLoad = QUARTER) -> Outcome:
    return simulate(cpus, [service] * cpus, ways.parse(way), seconds=3, settle=2)


@pytest.mark.parametrize(
    ("way", "cpus"),
    [
        pytest.param("plain", 6.0, id="greedy work gets all that services leave: 8 − 8 × 0.25"),
        pytest.param("static:3", 3.0, id="a quota of three CPUs is three CPUs"),
        pytest.param("static:3,period=10", 3.0, id="in short periods too"),
        pytest.param("koordinator:cfsQuota", 3.2, id="the formula by quota: 8 × 65 % − 2"),
        pytest.param("alone", 0.0, id="no work, no CPU"),
    ],
)
def test_cpus_of_batch_work(way: str, cpus: float) -> None:
    assert _outcome(way).batch_cpus == pytest.approx(cpus, abs=0.15)


def test_a_single_server_waits_as_queueing_theory_says() -> None:
    """M/D/1: the mean time in the system is work × (1 + ρ / (2 (1 − ρ)))."""
    node = Node(1, [ServiceLoad(rate=500.0, work_us=1000.0)], Limits(frozenset({0})), batch=False, seed=3)
    node.advance(60e6)
    mean = sum(latency for _, latency in node.latencies) / len(node.latencies)
    assert mean == pytest.approx(1000 * (1 + 0.5 / (2 * 0.5)), rel=0.05)
    assert node.service_us / 60e6 == pytest.approx(0.5, rel=0.03)


def test_idle_cpus_spare_services_the_wait_for_each_other() -> None:
    alone, plain, by_set = (_outcome(way, 16) for way in ("alone", "plain", "koordinator:cpuset"))
    assert plain.p99 > 1.1 * alone.p99, "with no CPU idle a thread waits where it last ran"
    assert by_set.p99 < 1.05 * alone.p99


def test_the_idle_class_is_in_nobodys_way() -> None:
    alone, idle = (_outcome(way) for way in ("alone", "idle"))
    assert idle.p99 == pytest.approx(alone.p99, rel=0.03)
    assert idle.batch_cpus == pytest.approx(6.0, abs=0.15)


def test_guided_leaves_batch_work_more_than_the_formula_and_services_no_slower() -> None:
    plain, guided, formula = (_outcome(way) for way in ("plain", "agent:guided", "agent:cfsQuota"))
    assert guided.batch_cpus > 1.5 * formula.batch_cpus
    assert guided.p99 < 1.1 * plain.p99


def test_guided_takes_away_what_makes_services_wait() -> None:
    """With twelve threads on four CPUs that are busy for two thirds, batch work is in the way of who wakes."""
    crowd = ServiceLoad(rate=100.0, work_us=6700.0, threads=3, is_divided=True)
    plain, guided = (_outcome(way, 4, crowd) for way in ("plain", "agent:guided"))
    assert guided.batch_cpus < plain.batch_cpus


def test_waits_of_services_are_counted() -> None:
    node = Node(1, [ServiceLoad(rate=500.0, work_us=1000.0)] * 2, Limits(frozenset({0})), batch=False, seed=3)
    node.advance(20e6)
    ran, waited = (sum(each[part] for each in node.waits) for part in (0, 1))
    assert ran == pytest.approx(node.service_us)
    assert waited > 0.3 * ran, "two services that each want half of one CPU wait for each other"


def test_a_quota_that_is_lifted_is_no_limit() -> None:
    node = Node(2, [], Limits(frozenset({0, 1}), quota_us=50_000), batch=True, seed=1)
    node.advance(1e6)
    assert node.batch_us == pytest.approx(0.5e6, rel=0.1)
    node.limit(Limits(frozenset({0, 1}), quota_us=math.inf))
    node.advance(2e6)
    assert node.batch_us == pytest.approx(2.5e6, rel=0.05)


def test_an_objective_has_no_model() -> None:
    with pytest.raises(ValueError, match="there is no model of agent:objective"):
        _outcome("agent:objective")
