"""RemovePodsViolatingInterPodAntiAffinity: who is with whom, and who of them goes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

NAME = "RemovePodsViolatingInterPodAntiAffinity"
Object = dict[str, Any]


def avoiding(pod: Object, app: str, key: str = "zone", **more: Any) -> Object:
    """Its required anti-affinity keeps pods with the label `app` away."""
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key, **more}
    rule = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    pod["spec"]["affinity"] = {"podAntiAffinity": rule}
    return pod


@pytest.fixture(autouse=True)
def nodes(cluster: Any) -> None:
    for name, zone in (("a1", "a"), ("a2", "a"), ("b1", "b")):
        cluster.node(name, labels={"zone": zone})
    cluster.node("nowhere")


@pytest.mark.parametrize(
    ("mine", "theirs", "goes"),
    [
        pytest.param("a1", "a1", True, id="same node"),
        pytest.param("a1", "a2", True, id="same domain"),
        pytest.param("a1", "b1", False, id="another domain"),
        pytest.param("nowhere", "nowhere", True, id="same node that has no domain"),
        pytest.param("nowhere", "a1", False, id="a node without a domain shares none"),
    ],
)
def test_only_the_pod_that_declares_it_goes(
    cluster: Any, evicted: Callable[..., Any], mine: str, theirs: str, goes: bool
) -> None:
    avoiding(cluster.pod("p", mine), "web")
    cluster.pod("other", theirs, labels={"app": "web"})
    assert evicted(NAME) == ["p"] * goes


def test_of_pods_that_avoid_each_other_one_stays_in_each_domain(cluster: Any, evicted: Callable[..., Any]) -> None:
    for name, node in (("w1", "a1"), ("w2", "a2"), ("w3", "a2"), ("w4", "b1")):
        avoiding(cluster.pod(name, node, labels={"app": "web"}), "web")
    assert evicted(NAME) == ["w1", "w2"]


def test_the_least_important_of_a_node_goes_first_and_so_saves_the_other(
    cluster: Any, evicted: Callable[..., Any]
) -> None:
    for name, priority in (("high", 100), ("low", 1)):
        avoiding(cluster.pod(name, "a1", labels={"app": "web"}), "web")["spec"]["priority"] = priority
    assert evicted(NAME) == ["low"]


def test_one_that_stays_by_a_limit_is_still_in_the_way(cluster: Any, work: Callable[..., Any]) -> None:
    for name in ("w1", "w2"):
        avoiding(cluster.pod(name, "a1", labels={"app": "web"}), "web")
    plan = work(NAME, total=0)
    assert [(o.pod.pod.name, o.reasons[0].reason) for o in plan.kept] == [("w1", "LimitTotal"), ("w2", "LimitTotal")]


def test_pods_that_are_not_looked_at_are_no_counterparts(cluster: Any, evicted: Callable[..., Any]) -> None:
    avoiding(cluster.pod("p", "a1", labels={"team": "x"}), "web")
    cluster.pod("other", "a1", labels={"app": "web"})
    assert evicted(NAME, {"labelSelector": {"matchLabels": {"team": "x"}}}) == []


def test_the_finding_names_the_counterpart(cluster: Any, work: Callable[..., Any]) -> None:
    avoiding(cluster.pod("p", "a1"), "web")
    for name in ("w1", "w2"):
        cluster.pod(name, "a2", labels={"app": "web"})
    finding = work(NAME).evict[0].main
    assert finding.fact == "default/w1 does, on a2, which shares it, and 1 more"
    assert finding.evidence == {"topologyKey": "zone", "counterpart": "default/w1", "counterparts": 2}
