"""Which pod leaves first by Koordinator's order, and how well it cures the node."""

from __future__ import annotations

from typing import Any

import pytest

from descheduler.utilization import levels
from koordlite.model import keys


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(
            {"labels": {keys.PRIORITY_CLASS: "koord-free"}}, {"labels": {keys.PRIORITY_CLASS: "koord-mid"}}, id="band"
        ),
        pytest.param({"labels": {keys.QOS_CLASS: "LS"}}, {"labels": {keys.QOS_CLASS: "LSE"}}, id="koordinator's class"),
        pytest.param({"annotations": {levels.DELETION_COST: "-1"}}, {}, id="deletion cost"),
        pytest.param({}, {"annotations": {keys.EVICTION_COST: "10"}}, id="eviction cost"),
        pytest.param({}, {"annotations": {keys.EVICTION_COST: "many"}, "started": "2026-01-01T07:00:00Z"}, id="age"),
    ],
)
def test_who_goes_first(cluster: Any, first: dict[str, Any], second: dict[str, Any]) -> None:
    """Names are against them, so that only the difference can decide."""
    cluster.pod("z-first", "n", **first)
    cluster.pod("a-second", "n", **second)
    pods = sorted(cluster.view().unbound, key=levels.sort_key(lambda pod: None))
    assert [pod.pod.name for pod in pods] == ["z-first", "a-second"]


def test_the_pod_that_was_created_last_goes_first_whenever_it_started(cluster: Any) -> None:
    cluster.pod("a", "n", started="2026-01-01T07:00:00Z")["status"]["startTime"] = "2026-01-01T07:30:00Z"
    cluster.pod("b", "n", started="2026-01-01T07:10:00Z")["status"]["startTime"] = "2026-01-01T07:10:00Z"
    pods = sorted(cluster.view().unbound, key=levels.sort_key(lambda pod: None))
    assert [pod.pod.name for pod in pods] == ["b", "a"]


def test_pods_that_were_not_measured_go_last(cluster: Any) -> None:
    for name in ("a", "b", "c"):
        cluster.pod(name, "n")
    scores = {"b": 1.0, "c": 2.0}
    pods = sorted(cluster.view().unbound, key=levels.sort_key(lambda pod: scores.get(pod.pod.name)))
    assert [pod.pod.name for pod in pods] == ["c", "b", "a"]


@pytest.mark.parametrize(
    ("used", "excess", "score"),
    [
        pytest.param({"cpu": 8}, {"cpu": 16}, 0.5, id="half of what is needed"),
        pytest.param({"cpu": 16}, {"cpu": 16}, 2.0, id="exactly enough is best"),
        pytest.param({"cpu": 32}, {"cpu": 16}, 1.5, id="more than enough"),
        pytest.param({"cpu": 8, "memory": 5}, {"cpu": 16, "memory": 5}, 1.25, id="the mean of two"),
        pytest.param({"memory": 5}, {"cpu": 16}, 0.0, id="nothing of what is needed"),
        pytest.param({"cpu": 16, "memory": 5}, {"cpu": 16}, 1.0, id="a resource without excess counts as 0"),
        pytest.param({"cpu": 16, "pods": 1}, {"cpu": 16, "pods": 1}, 2.0, id="without a weight it is left out"),
    ],
)
def test_relief(used: dict[str, int], excess: dict[str, int], score: float) -> None:
    assert levels.relief(used, excess, {"cpu": 1, "memory": 1}) == score


@pytest.mark.parametrize("text", ["+5", "007", "5_0", " 5", "5.0", "99999999999"])
def test_a_cost_that_kubernetes_refuses_is_none(cluster: Any, text: str) -> None:
    cluster.pod("a", "n", annotations={levels.DELETION_COST: text})
    cluster.pod("b", "n", annotations={levels.DELETION_COST: "0"})
    first, second = map(levels.sort_key(lambda pod: None), cluster.view().unbound)
    assert first[:-1] == second[:-1]


def test_fullness_is_a_weighted_mean_in_thousandths() -> None:
    used, held = {"cpu": 5, "memory": 30}, {"cpu": 10, "memory": 20}
    assert levels.fullness(used, held, {"cpu": 1, "memory": 1}) == (500 + 1000) // 2
    assert levels.fullness(used, held, {"cpu": 3, "memory": 1}) == (1500 + 1000) // 4
    assert levels.fullness(used, {}, {"cpu": 1}) == 0
