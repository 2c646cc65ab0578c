"""PodLifeTime: age, states, conditions and exit codes, all of which must hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

NAME = "PodLifeTime"
Evicted = Callable[..., list[str]]
Object = dict[str, Any]


@pytest.mark.parametrize(
    ("created", "goes"),
    [
        pytest.param("2026-01-01T11:50:00Z", False, id="exactly as old as it may be"),
        pytest.param("2026-01-01T11:49:59Z", True, id="one second older"),
        pytest.param("2026-01-01T11:49:59.1Z", False, id="part of a second older"),
        pytest.param("2026-01-01T12:00:05Z", False, id="made in the future"),
        pytest.param(None, True, id="made at an unknown time"),
        pytest.param("2026-01-01T11:49:59+00:00", True, id="zone as an offset"),
    ],
)
def test_age_in_whole_seconds(cluster: Any, evicted: Evicted, created: str | None, goes: bool) -> None:
    cluster.node("a")
    cluster.pod("p", "a")["metadata"]["creationTimestamp"] = created
    assert evicted(NAME, {"maxPodLifeTimeSeconds": 600}) == ["p"] * goes


READY = {"type": "Ready", "status": "False", "reason": "Broken", "lastTransitionTime": "2026-01-01T11:55:00Z"}


@pytest.mark.parametrize(
    ("wanted", "goes"),
    [
        pytest.param([{"type": "Ready"}], True, id="type"),
        pytest.param([{"type": "Ready", "status": "True"}], False, id="another status"),
        pytest.param([{"reason": "Broken", "status": "False"}], True, id="reason and status"),
        pytest.param([{"minTimeSinceLastTransitionSeconds": 300}], True, id="for long enough, to the second"),
        pytest.param([{"minTimeSinceLastTransitionSeconds": 301}], False, id="one second too short"),
        pytest.param([{"type": "Other"}, {"type": "Ready"}], True, id="one of two"),
        pytest.param(
            [{"type": "Timeless", "minTimeSinceLastTransitionSeconds": 0}], False, id="since nobody knows when"
        ),
    ],
)
def test_conditions(cluster: Any, evicted: Evicted, wanted: list[Object], goes: bool) -> None:
    cluster.node("a")
    cluster.pod("p", "a")["status"]["conditions"] = [READY, {"type": "Timeless", "status": "True"}]
    assert evicted(NAME, {"conditions": wanted}) == ["p"] * goes


def test_the_oldest_of_the_cluster_goes_first(cluster: Any, evicted: Evicted) -> None:
    for node, name, hour in (("a", "second", 8), ("a", "third", 9), ("b", "first", 7)):
        cluster.node(node)
        cluster.pod(name, node, started=f"2026-01-01T0{hour}:00:00Z")
    assert evicted(NAME, {"maxPodLifeTimeSeconds": 60}) == ["first", "second", "third"]
    assert evicted(NAME, {"maxPodLifeTimeSeconds": 60}, total=1) == ["first"]


def test_what_the_limit_left_undone_is_told(cluster: Any, work: Callable[..., Any]) -> None:
    cluster.node("a")
    for name in "abc":
        cluster.pod(name, "a")
    plan = work(NAME, {"maxPodLifeTimeSeconds": 60}, per_node=1)
    assert [o.reasons[0].reason for o in plan.kept] == ["LimitPerNode", "LimitPerNode"]


def test_the_finding_says_how_old_and_in_which_state(cluster: Any, work: Callable[..., Any]) -> None:
    cluster.node("a")
    cluster.pod("p", "a", started="2026-01-01T10:00:00Z")["status"]["reason"] = "NodeLost"
    finding = work(NAME, {"maxPodLifeTimeSeconds": 60, "states": ["NodeLost"]}).evict[0].main
    assert finding.fact == "it was made 120m ago, maxPodLifeTimeSeconds is 60; its state is NodeLost"
    assert finding.evidence == {"ageSeconds": 7200, "maxPodLifeTimeSeconds": 60, "state": "NodeLost"}


@pytest.mark.parametrize(
    ("args", "says"),
    [
        pytest.param({}, "needs maxPodLifeTimeSeconds", id="nothing asked for"),
        pytest.param({"states": ["Sleeping"]}, "not one of the accepted words", id="a state nobody knows"),
        pytest.param({"conditions": [{}]}, "a condition needs", id="an empty condition"),
        pytest.param({"maxPodLifeTimeSeconds": -1}, "out of range", id="a negative age"),
        pytest.param(
            {"states": ["Running"], "ownerKinds": {"include": ["a"], "exclude": ["b"]}},
            "not both",
            id="kinds both ways",
        ),
        pytest.param(
            {"states": ["Running"], "namespaces": {"include": ["a"], "exclude": ["b"]}}, "not both", id="namespaces too"
        ),
        pytest.param({"state": ["Running"]}, "did you mean states?", id="a key nobody knows"),
    ],
)
def test_arguments_that_are_refused(refused: Callable[..., str], args: Object, says: str) -> None:
    assert says in refused(NAME, args)
