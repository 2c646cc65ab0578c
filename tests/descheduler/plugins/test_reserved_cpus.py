"""ReservedCPUs: who is on CPUs that somebody else keeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from descheduler.framework import Finding, Note
from descheduler.plugins import reserved_cpus
from koordlite.model import keys
from koordlite.model.nrt import ContainerPlacement
from tests.support.handles import said

Place = Callable[..., ContainerPlacement]
LIST = {"reservedCPUs": "0-1"}


def judge(cluster: Any, **config: Any) -> list[Finding | Note]:
    return said(reserved_cpus, cluster.view(), **config)


@pytest.mark.parametrize(
    ("cpus", "found"),
    [
        pytest.param("0-3", [("hard", 2, "0-1")], id="pinned over two reserved CPUs"),
        pytest.param("1,4", [("hard", 1, "1")], id="pinned over one"),
        pytest.param("2-3", [], id="pinned beside them"),
    ],
)
def test_a_pinned_pod_on_reserved_cpus(cluster: Any, cpus: str, found: list[tuple[str, int, str]]) -> None:
    cluster.node("a", reservation=LIST)
    cluster.report("a")
    cluster.pinned("p", "a", cpus)
    answers = judge(cluster)
    assert [(f.severity, f.weight, f.evidence["cpus"]) for f in answers if isinstance(f, Finding)] == found


def test_a_pod_of_the_shared_pool_is_never_moved_for_it(cluster: Any, placed: Place) -> None:
    cluster.node("a", reservation=LIST)
    cluster.report("a", containers=[placed("p", source="none", cpuset="0-15")])
    cluster.pod("p", "a")
    finding = judge(cluster)[0]
    assert isinstance(finding, Finding)
    assert (finding.severity, finding.cure) == (
        "fixable",
        "the agent takes the CPUs out of its cpuset; nothing has to move",
    )


def test_what_the_agent_could_not_write_is_hard(cluster: Any, placed: Place) -> None:
    cluster.node("a", reservation=LIST)
    cluster.report("a", containers=[placed("p", source="none", cpuset="0-15", fix_failed=True)])
    cluster.pod("p", "a")
    assert [f.severity for f in judge(cluster) if isinstance(f, Finding)] == ["hard"]


def test_system_pods_may_run_there(cluster: Any) -> None:
    cluster.node("a", reservation=LIST)
    cluster.report("a")
    cluster.pinned("p", "a", "0-1")["metadata"]["labels"][keys.QOS_CLASS] = "SYSTEM"
    assert judge(cluster) == []


@pytest.mark.parametrize("gone", ["Succeeded", "Failed", "deleted"])
def test_pods_that_ended_or_are_going_are_not_judged(cluster: Any, gone: str) -> None:
    cluster.node("a", reservation=LIST)
    pod = cluster.pinned("p", "a", "0-1")
    if gone == "deleted":
        pod["metadata"]["deletionTimestamp"] = "2026-01-01T11:59:00Z"
    else:
        pod["status"]["phase"] = gone
    assert judge(cluster) == []


@pytest.mark.parametrize("strict", [True, False])
def test_kubelets_reserve_binds_shared_pods_only_when_strict(cluster: Any, placed: Place, strict: bool) -> None:
    cluster.node("a")
    containers = [placed("own", exclusive=True, cpuset="0-1"), placed("shared", source="none", cpuset="0-15")]
    notes = cluster.report("a", containers=containers)["metadata"]["annotations"]
    options = '"options":{"strict-cpu-reservation":"true"},' if strict else ""
    notes[keys.CPU_MANAGER_POLICY] = f'{{"policy":"static",{options}"reservedCPUs":"0"}}'
    cluster.pod("own", "a")
    cluster.pod("shared", "a")
    found = [(f.pod, f.severity, f.evidence["owner"]) for f in judge(cluster) if isinstance(f, Finding)]
    own, shared = ("uid-own", "hard", "kubelet"), ("uid-shared", "fixable", "kubelet")
    assert found == ([own, shared] if strict else [own])


@pytest.mark.parametrize(
    ("reservation", "words"),
    [
        pytest.param({"resources": {"cpu": "2"}}, "is a quantity", id="a bare quantity"),
        pytest.param('{"reservedCPUs":"x"}', "cannot be read", id="an unreadable annotation"),
    ],
)
def test_unknown_reserved_cpus_are_said_and_nobody_is_blamed(cluster: Any, reservation: object, words: str) -> None:
    cluster.node("a", reservation=reservation)
    cluster.pinned("p", "a", "0-1")
    answers = judge(cluster)
    assert [a.reason for a in answers] == ["ReservedCPUsUnknown"]
    assert isinstance(answers[0], Note)
    assert words in answers[0].text


def test_a_stale_placement_is_said_and_the_node_left_alone(cluster: Any, placed: Place) -> None:
    cluster.node("a", reservation=LIST)
    cluster.report("a", containers=[placed("p", exclusive=True, cpuset="0-1")], observed_at="2026-01-01T11:56:00Z")
    cluster.pinned("p", "a", "0-1")
    assert [a.reason for a in judge(cluster)] == ["StalePlacement"]
    assert [a.reason for a in judge(cluster, max_report_age="10m")] == ["UsesReservedCPU"]


@pytest.mark.parametrize(("started", "kept"), [("2026-01-01T11:58:00Z", True), ("2026-01-01T11:55:00Z", False)])
def test_a_young_pod_is_found_but_kept(cluster: Any, started: str, kept: bool) -> None:
    cluster.node("a", reservation=LIST)
    cluster.pinned("p", "a", "0-1", started=started)
    (outcome,) = cluster.plan().outcomes
    assert ("PodTooYoung" in {refusal.reason for refusal in outcome.reasons}) == kept


def test_the_sentences_name_cpus_and_node(cluster: Any) -> None:
    cluster.node("a", reservation=LIST)
    cluster.pinned("p", "a", "1,4")
    finding = judge(cluster)[0]
    assert isinstance(finding, Finding)
    assert finding.promise == "CPUs 0-1 of a are reserved for processes outside Kubernetes"
    assert finding.fact == "was given CPUs 1,4, of which 1 is reserved"


def test_a_pinned_pod_that_the_agent_keeps_off_reserved_cpus_runs_on_too_few_and_has_to_move(
    cluster: Any, placed: Place
) -> None:
    cluster.node("a", reservation=LIST)
    own = {"source": "koordinator", "exclusive": True, "promised_cpus": "0-3"}
    cluster.report("a", containers=[placed("p", cpuset="2-3", **own)])
    cluster.pinned("p", "a", "0-3")
    (finding,) = judge(cluster)
    assert isinstance(finding, Finding)
    assert (finding.reason, finding.severity) == ("UsesReservedCPU", "hard")
    assert finding.fact == (
        "was given CPUs 0-3, of which 0-1 are reserved; the agent keeps it off them, so it runs on CPUs 2-3"
    )
