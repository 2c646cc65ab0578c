"""RemovePodsViolatingTopologySpreadConstraint: which pods have to leave for domains to be level."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

NAME = "RemovePodsViolatingTopologySpreadConstraint"
Object = dict[str, Any]
WEB = {"matchLabels": {"app": "web"}}


def constraint(**changes: Any) -> Object:
    base = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": WEB}
    return {**base, **changes}


def zones(cluster: Any, *counts: int, **changes: Any) -> list[list[Object]]:
    """A node in each zone, with so many pods that have one constraint."""
    made = []
    for number, count in enumerate(counts):
        cluster.node(f"n{number}", labels={"zone": f"z{number}"})
        pods = [cluster.pod(f"p{number}-{i:02}", f"n{number}", labels={"app": "web"}, cpu="100m") for i in range(count)]
        for pod in pods:
            pod["spec"]["topologySpreadConstraints"] = [constraint(**changes)]
        made.append(pods)
    return made


def test_pods_that_fit_nowhere_lower_stay_and_others_go_for_them(cluster: Any, evicted: Callable[..., Any]) -> None:
    pods, _ = zones(cluster, 3, 1)
    for pod in pods[1:]:
        pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "500"
    assert evicted(NAME) == ["p0-00"]
    pods[0]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "500"
    assert evicted(NAME) == []
    assert evicted(NAME, {"topologyBalanceNodeFit": False}) == ["p0-02"]


@pytest.mark.parametrize(
    ("counts", "gone"),
    [
        pytest.param((3, 1), ["p0-00"], id="one goes, and fits"),
        pytest.param((5, 1), ["p0-04", "p0-00"], id="two go, and one of them fits"),
    ],
)
def test_without_node_fit_pods_that_fit_go_first_all_the_same(
    cluster: Any, evicted: Callable[..., Any], counts: tuple[int, ...], gone: list[str]
) -> None:
    pods, _ = zones(cluster, *counts)
    for pod in pods[1:]:
        pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "500"
    assert sorted(evicted(NAME, {"topologyBalanceNodeFit": False})) == sorted(gone)


def test_a_pod_that_goes_anyway_is_the_one_that_has_to(cluster: Any, evicted: Callable[..., Any]) -> None:
    pods, _ = zones(cluster, 3, 1)
    pods[0]["metadata"]["creationTimestamp"] = "2025-01-01T00:00:00Z"
    assert evicted(NAME, before=(("PodLifeTime", {"maxPodLifeTimeSeconds": 86400}),)) == ["p0-00"]


def test_the_evictor_s_node_fit_sees_that_a_pod_would_lie_no_better(cluster: Any, work: Callable[..., Any]) -> None:
    first, *_ = zones(cluster, 2, 3, 4)
    for pod in first:
        pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "8"
    plan = work(NAME, {"topologyBalanceNodeFit": False}, evictor={"nodeFit": True})
    assert [o.reasons[0].reason for o in plan.kept] == ["FitsNowhere"]
    assert [o.pod.pod.name for o in work(NAME, {"topologyBalanceNodeFit": False}).evict] == ["p2-03"]


def test_a_pod_goes_once_for_two_constraints(cluster: Any, work: Callable[..., Any]) -> None:
    pods, _ = zones(cluster, 4, 0)
    for pod in pods:
        pod["spec"]["topologySpreadConstraints"].append(constraint(topologyKey="kubernetes.io/hostname"))
    plan = work(NAME)
    assert [o.pod.pod.name for o in plan.evict] == ["p0-02", "p0-03"]
    assert [len(o.findings) for o in plan.evict] == [1, 1]


def test_pods_of_nodes_that_do_not_count_make_no_domain(cluster: Any, evicted: Callable[..., Any]) -> None:
    pods = zones(cluster, 2, 2, 5)
    for pod in pods[0] + pods[1]:
        pod["spec"]["nodeSelector"] = {"small": "yes"}
    for node in cluster.objects:
        if node["metadata"]["name"] in ("n0", "n1"):
            node["metadata"]["labels"]["small"] = "yes"
    for pod in pods[2]:
        del pod["spec"]["topologySpreadConstraints"]
    assert evicted(NAME) == []


def test_the_finding_has_the_numbers(cluster: Any, work: Callable[..., Any]) -> None:
    zones(cluster, 3, 1)
    finding = work(NAME).evict[0].main
    assert finding.promise == "a constraint of default/p0-00 allows a skew of 1 over zone"
    assert finding.fact == "zone=z0 has 3 of the pods that it counts, another domain has 1"
    assert finding.evidence == {"topologyKey": "zone", "domain": "z0", "onDomain": 3, "onSmallest": 1, "maxSkew": 1}


def test_a_word_that_is_no_constraint_is_refused(refused: Callable[..., str]) -> None:
    assert "not one of the accepted words" in refused(NAME, {"constraints": ["foo"]})
