"""RemoveFailedPods: failed pods that are old enough, for the reasons asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

NAME = "RemoveFailedPods"
Evicted = Callable[..., list[str]]
Object = dict[str, Any]
ANY_AGE = {"minPodLifetimeSeconds": 0}


def failed(cluster: Any, name: str = "p", **changes: Any) -> Object:
    pod: Object = cluster.pod(name, "a", **changes)
    pod["status"].update({"phase": "Failed", "reason": "Evicted"})
    return pod


@pytest.fixture(autouse=True)
def node(cluster: Any) -> None:
    cluster.node("a")


@pytest.mark.parametrize(
    ("created", "args", "goes"),
    [
        pytest.param("2026-01-01T11:00:00Z", {}, True, id="an hour is old enough without a word"),
        pytest.param("2026-01-01T11:00:01Z", {}, False, id="a second less is not"),
        pytest.param("2026-01-01T11:59:59Z", ANY_AGE, True, id="null asks for no age"),
        pytest.param(None, {"minPodLifetimeSeconds": 60}, True, id="unknown age is old"),
        pytest.param("2026-01-01T12:00:09Z", ANY_AGE, True, id="0 is any age, also by a clock that is ahead"),
        pytest.param("2026-01-01T12:00:09Z", {"minPodLifetimeSeconds": 1}, False, id="ahead is younger than any age"),
    ],
)
def test_age(cluster: Any, evicted: Evicted, created: str | None, args: Object, goes: bool) -> None:
    failed(cluster)["metadata"]["creationTimestamp"] = created
    assert evicted(NAME, args) == ["p"] * goes


STATUS = {
    "containerStatuses": [{"name": "m", "state": {"terminated": {"reason": "Error", "exitCode": 2}}}],
    "initContainerStatuses": [{"name": "i", "state": {"waiting": {"reason": "CreateContainerConfigError"}}}],
}


@pytest.mark.parametrize(
    ("args", "goes"),
    [
        pytest.param({"reasons": ["Evicted"]}, True, id="reason of the pod"),
        pytest.param({"reasons": ["Error"]}, True, id="reason of a container"),
        pytest.param({"reasons": ["CreateContainerConfigError"]}, False, id="init containers are not asked"),
        pytest.param(
            {"reasons": ["CreateContainerConfigError"], "includingInitContainers": True}, True, id="unless told to"
        ),
        pytest.param({"exitCodes": [2]}, True, id="exit code"),
        pytest.param({"exitCodes": [1]}, False, id="another exit code"),
        pytest.param({"exitCodes": [2], "reasons": ["Other"]}, False, id="both must hold"),
        pytest.param({"excludeOwnerKinds": ["ReplicaSet"]}, False, id="of an owner that is left out"),
        pytest.param({"excludeOwnerKinds": ["Job"]}, True, id="of another owner"),
    ],
)
def test_what_is_asked_for(cluster: Any, evicted: Evicted, args: Object, goes: bool) -> None:
    failed(cluster)["status"].update(STATUS)
    assert evicted(NAME, {**ANY_AGE, **args}) == ["p"] * goes


def test_the_finding_says_why_it_failed(cluster: Any, work: Callable[..., Any]) -> None:
    failed(cluster)["status"].update(STATUS)
    finding = work(NAME).evict[0].main
    assert finding.fact == "it has failed: Evicted, Error; it was made 4h ago"
    assert finding.evidence == {"reasons": "Evicted,Error", "exitCodes": "2"}


def test_a_term_that_only_pods_that_have_ended_have_is_in_nobody_s_way(cluster: Any, evicted: Evicted) -> None:
    cluster.node("b")
    term = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname"}
    pod = failed(cluster, labels={"app": "web"})
    pod["spec"]["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    assert evicted(NAME, ANY_AGE) == ["p"]


def test_a_failed_pod_takes_no_room_from_others(cluster: Any, evicted: Evicted) -> None:
    """Its owner has replaced it already, so none comes for it."""
    cluster.node("c")["spec"]["taints"] = [{"key": "drain", "effect": "NoSchedule"}]
    cluster.objects[0]["spec"]["unschedulable"] = True  # The node of the failed pod: only b takes pods.
    cluster.node("b", cpu="4")
    failed(cluster, cpu="4")
    cluster.pod("q", "c", cpu="4")
    before = ((NAME, ANY_AGE),)
    assert evicted("RemovePodsViolatingNodeTaints", evictor={"nodeFit": True}, before=before) == ["p", "q"]
