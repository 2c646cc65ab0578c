"""The picture: what is known, from whom, and what is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from koordlite.model import keys
from koordlite.model.cpuset import EMPTY, CPUSet
from koordlite.model.nrt import ContainerPlacement

Place = Callable[..., ContainerPlacement]


@pytest.mark.parametrize(
    ("on_node", "on_report", "cpus", "source"),
    [
        pytest.param(
            {"reservedCPUs": "0-1"}, {"reservedCPUs": "2"}, "2", "report", id="the resolved list counts first"
        ),
        pytest.param({"reservedCPUs": "0-1"}, {}, "0-1", "annotation", id="then the list on the node"),
        pytest.param({"resources": {"cpu": "2"}}, {}, "0-1", "computed", id="a quantity becomes what the agent takes"),
        pytest.param({"resources": {"cpu": "2"}}, {"reservedCPUs": "0"}, "0", "report", id="unless it was resolved"),
        pytest.param({"resources": {"memory": "2Gi"}}, {}, "", "none", id="memory keeps no CPU"),
        pytest.param(None, {}, "", "none", id="nothing is reserved"),
        pytest.param('{"reservedCPUs":"0-x"}', None, None, "unreadable", id="an unreadable annotation is not nothing"),
        pytest.param("null", None, "", "none", id="null reserves nothing"),
    ],
)
def test_who_keeps_which_cpus(cluster: Any, on_node: object, on_report: object, cpus: str | None, source: str) -> None:
    cluster.node("a", reservation=on_node)
    cluster.report("a", reservation=on_report)
    reserved = cluster.view().nodes["a"].reserved
    assert reserved.koordinator == (None if cpus is None else CPUSet.parse(cpus))
    assert reserved.source == source


def test_kubelets_own_reserve_and_system_cpus_are_known(cluster: Any) -> None:
    cluster.node("a")
    notes = cluster.report("a")["metadata"]["annotations"]
    notes[keys.CPU_MANAGER_POLICY] = (
        '{"policy":"static","options":{"strict-cpu-reservation":"true"},"reservedCPUs":"0"}'
    )
    notes[keys.SYSTEM_QOS] = '{"cpuset":"4-5"}'
    reserved = cluster.view().nodes["a"].reserved
    assert (reserved.kubelet, reserved.strict, reserved.system) == (CPUSet([0]), True, CPUSet([4, 5]))
    assert reserved.cpus == CPUSet([0, 4, 5])


def test_shared_system_cpus_are_nobodys_own(cluster: Any) -> None:
    node = cluster.node("a")
    node["metadata"]["annotations"][keys.SYSTEM_QOS] = '{"cpuset":"4-5","cpusetExclusive":false}'
    assert cluster.view().nodes["a"].reserved.system == EMPTY


def test_the_agents_eyes_count_before_the_promise(cluster: Any, placed: Place) -> None:
    cluster.node("a")
    cluster.report("a", containers=[placed("seen", cpuset="4-5", promised_cpus="2-3", source="koordinator")])
    cluster.pinned("seen", "a", "2-3")
    cluster.pinned("unseen", "a", "6-7")
    seen, unseen = cluster.view().nodes["a"].pods
    assert (seen.observed, seen.containers[0].cpuset) == (True, CPUSet([4, 5]))
    assert (unseen.observed, unseen.containers[0].cpuset) == (False, CPUSet([6, 7]))


def test_kubelets_allocation_is_a_promise_too(cluster: Any) -> None:
    cluster.node("a")
    report = cluster.report("a", policy="SingleNUMANodePodLevel")
    report["metadata"]["annotations"][keys.POD_CPU_ALLOCS] = '[{"uid":"uid-p","cpuset":"2-3","managedByKubelet":true}]'
    cluster.pod("p", "a")
    pod = cluster.view().nodes["a"].pods[0]
    assert (pod.containers[0].source, pod.single_numa, pod.pinned) == ("kubelet", True, CPUSet([2, 3]))


def test_an_allocation_that_is_not_kubelets_is_none(cluster: Any) -> None:
    cluster.node("a")
    cluster.report("a")["metadata"]["annotations"][keys.POD_CPU_ALLOCS] = '[{"uid":"uid-p","cpuset":"2-3"}]'
    cluster.pod("p", "a")
    assert not cluster.view().nodes["a"].pods[0].pinned


@pytest.mark.parametrize(
    ("label", "policy", "single"),
    [
        pytest.param("", "None", False, id="nobody asks"),
        pytest.param("SingleNUMANode", "None", True, id="the node's label asks for its pods"),
        pytest.param("", "SingleNUMANodePodLevel", True, id="kubelet's policy for whole pods as well"),
        pytest.param("Restricted", "SingleNUMANodePodLevel", False, id="the label counts before kubelet"),
    ],
)
def test_the_nodes_numa_policy_holds_for_pods_without_one(cluster: Any, label: str, policy: str, single: bool) -> None:
    cluster.node("a", labels={"node.koordinator.sh/numa-topology-policy": label} if label else {})
    cluster.report("a", policy=policy)
    cluster.pinned("p", "a", "2-3")
    assert cluster.view().nodes["a"].pods[0].single_numa is single


def test_time_is_the_newest_in_the_files_unless_it_is_given(cluster: Any) -> None:
    cluster.node("a")
    cluster.pod("p", "a", started="2026-01-01T08:00:00Z")
    newest = cluster.view(now="")
    assert (newest.time, newest.age(newest.nodes["a"].pods[0])) == ("2026-01-01T08:00:00Z", 0)
    given = cluster.view(now="2026-01-01T09:00:00Z")
    assert (given.time_source, given.age(given.nodes["a"].pods[0])) == ("given", 3600)


@pytest.mark.parametrize(
    ("observed_at", "age"),
    [("2026-01-01T11:59:00Z", 60), ("2026-01-01T12:59:00+01:00", 60), ("yesterday", float("inf"))],
)
def test_the_placement_has_an_age(cluster: Any, observed_at: str, age: float) -> None:
    cluster.node("a")
    cluster.report("a", containers=[], observed_at=observed_at)
    view = cluster.view()
    assert view.placement_age(view.nodes["a"]) == age
    assert bool(view.problems) is (age == float("inf"))


@pytest.mark.parametrize(
    "key", [keys.PLACEMENT, keys.CPU_TOPOLOGY, keys.CPU_MANAGER_POLICY, keys.RESERVATION, keys.POD_CPU_ALLOCS]
)
def test_a_broken_annotation_is_a_problem_and_its_part_unknown(cluster: Any, key: str) -> None:
    cluster.node("a")
    cluster.report("a")["metadata"]["annotations"][key] = "{broken"
    view = cluster.view()
    assert [problem.field for problem in view.problems] == [key]
    assert "a" in view.nodes


def test_ended_pods_are_not_in_the_picture_but_count_as_replicas(cluster: Any) -> None:
    cluster.node("a")
    cluster.pod("done", "a")["status"]["phase"] = "Succeeded"
    cluster.pod("on", "a")
    view = cluster.view()
    assert [pod.pod.name for pod in view.pods()] == ["on"]
    assert view.replicas == {"uid-app": 2}


def test_priority_comes_from_its_class_when_the_pod_has_no_number(cluster: Any) -> None:
    cluster.node("a")
    cluster.pod("p", "a")["spec"]["priorityClassName"] = "high"
    cluster.add({"kind": "PriorityClass", "metadata": {"name": "high"}, "value": 7})
    assert cluster.view().nodes["a"].pods[0].pod.priority == 7


def test_pods_of_absent_nodes_and_a_missing_report_are_said(cluster: Any) -> None:
    cluster.node("a")
    cluster.pod("p", "elsewhere")
    notes = "\n".join(cluster.view().notes)
    assert "1 pods run on nodes that are not in the files, such as elsewhere" in notes
    assert "no NodeResourceTopology" in notes


def test_a_budget_covers_what_its_selector_selects(cluster: Any) -> None:
    cluster.node("a")
    cluster.pod("in", "a", labels={"app": "x"})
    cluster.pod("out", "a", labels={"app": "y"})
    cluster.budget("b", 1, {"app": "x"})
    view = cluster.view()
    assert {uid: [b.key for b in held] for uid, held in view.budgets_by_pod.items()} == {"uid-in": ["default/b"]}
