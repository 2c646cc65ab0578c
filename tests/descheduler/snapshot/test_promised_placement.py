"""Promises of Crane, Volcano and kubelet's `restricted`, and Crane's reserved CPUs: read, judged, kept elsewhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from descheduler.framework import Finding
from descheduler.picture.cluster import PodView
from descheduler.plugins import numa_alignment, reserved_cpus
from koordlite.model import keys
from koordlite.model.cpuset import CPUSet
from koordlite.model.nrt import ContainerPlacement
from tests.support.handles import said

Place = Callable[..., ContainerPlacement]
VOLCANO = "volcano.sh/numa-topology-policy"
EXCLUDES = "topology.crane.io/exclude-reserved-cpus"


def only(cluster: Any, name: str = "p") -> PodView:
    found: PodView = next(p for p in cluster.view().pods() if p.pod.name == name)
    return found


def findings(cluster: Any, plugin: Any) -> list[Finding]:
    return [a for a in said(plugin, cluster.view()) if isinstance(a, Finding)]


def crane(cluster: Any, reserved: str) -> None:
    attributes = {"go.crane.io/reserved-system-cpus": reserved}
    version = "topology.crane.io/v1alpha1"
    meta = {"name": "a"}
    cluster.add({"kind": "NodeResourceTopology", "apiVersion": version, "metadata": meta, "attributes": attributes})


def result(*zones: str) -> dict[str, str]:
    written = [{"name": z, "type": "Node", "resources": {"capacity": {"cpu": "2"}}} for z in zones]
    return {"topology.crane.io/topology-result": json.dumps(written)}


@pytest.mark.parametrize(
    ("zones", "nodes", "single"),
    [
        pytest.param(("node1",), (1,), True, id="one zone is one NUMA node"),
        pytest.param(("node0", "node1"), (0, 1), False, id="two zones may span"),
    ],
)
def test_crane_promises_zones(cluster: Any, zones: tuple[str, ...], nodes: tuple[int, ...], single: bool) -> None:
    cluster.node("a")
    cluster.report("a")
    cluster.pod("p", "a", annotations={**result(*zones), "topology.crane.io/cpu-policy": "exclusive"})
    (container,) = only(cluster).containers
    assert (container.source, container.promised_nodes) == ("crane", nodes)
    assert (container.single_numa, container.exclusive) == (single, True)


def test_a_container_off_cranes_zone_is_the_agents_to_repair(cluster: Any, placed: Place) -> None:
    cluster.node("a")
    cluster.report("a", containers=[placed("p", source="none", cpuset="6-9")])
    cluster.pod("p", "a", annotations=result("node0"))
    found = {f.reason: f.severity for f in findings(cluster, numa_alignment)}
    assert found == {"CPUSpansNUMA": "fixable"}


@pytest.mark.parametrize(
    ("cpuset", "fix_failed", "found"),
    [
        pytest.param("0-1", False, {}, id="as promised"),
        pytest.param("0-3", False, {"CPUOutsideAssignment": "fixable"}, id="the agent puts it back"),
        pytest.param("4-5", False, {"CPUOutsideAssignment": "fixable"}, id="another CPU of the NUMA node"),
        pytest.param("0-15", True, {"CPUOutsideAssignment": "hard", "CPUSpansNUMA": "hard"}, id="only a move cures it"),
    ],
)
def test_what_the_agent_reports_of_a_crane_promise_is_judged_and_not_the_promise_alone(
    cluster: Any, placed: Place, cpuset: str, fix_failed: bool, found: dict[str, str]
) -> None:
    promise = {"source": "crane", "exclusive": True, "single_numa": True, "scope": "pod", "promised_nodes": (0,)}
    container = placed("p", cpuset=cpuset, promised_cpus="0-1", fix_failed=fix_failed, **promise)
    side = msgspec.structs.replace(placed("p", source="none", cpuset="0-15"), container="side")
    cluster.node("a")
    cluster.report("a", containers=[container, side])
    cluster.pod("p", "a", annotations=result("node0"))
    assert {f.reason: f.severity for f in findings(cluster, numa_alignment)} == found, "and the side container is free"


def test_a_promise_of_cranes_that_cannot_be_read_is_said(cluster: Any) -> None:
    cluster.node("a")
    cluster.report("a")
    cluster.pod("p", "a", annotations={"topology.crane.io/topology-result": '[{"name":"zone0"}]'})
    view = cluster.view()
    (problem,) = view.problems
    assert (problem.object, problem.field) == ("pod/default/p", "topology.crane.io/topology-result")
    assert only(cluster).containers == ()


@pytest.mark.parametrize(("asks", "found"), [("true", ["crane"]), ("True", []), ("", [])])
def test_cranes_reserved_cpus_bind_only_who_asks(cluster: Any, placed: Place, asks: str, found: list[str]) -> None:
    cluster.node("a")
    cluster.report("a", containers=[placed("p", source="none", cpuset="0-15")])
    crane(cluster, "0-1")
    cluster.pod("p", "a", annotations={EXCLUDES: asks} if asks else {})
    answers = findings(cluster, reserved_cpus)
    assert [f.evidence["owner"] for f in answers] == found
    assert {f.severity for f in answers} <= {"fixable"}


def test_both_kinds_of_one_name_are_kept_apart(cluster: Any) -> None:
    cluster.node("a")
    cluster.report("a", reservation={"reservedCPUs": "2"})
    crane(cluster, "0-1")
    reserved = cluster.view().nodes["a"].reserved
    assert (reserved.koordinator, reserved.crane) == (CPUSet.parse("2"), CPUSet.parse("0-1"))


def test_cranes_list_that_cannot_be_read_is_said(cluster: Any) -> None:
    cluster.node("a")
    crane(cluster, "0-x")
    (problem,) = cluster.view().problems
    assert "reserved-system-cpus" in problem.field


@pytest.mark.parametrize(
    ("policy", "cpus", "memory", "single"),
    [
        pytest.param("RestrictedContainerLevel", "0-3", "1Gi", True, id="what could fit on one node must"),
        pytest.param("RestrictedContainerLevel", "0-11", "1Gi", False, id="what is too large may span"),
        pytest.param("RestrictedContainerLevel", "0-3", "40Gi", False, id="so may what asks for too much memory"),
        pytest.param("BestEffortContainerLevel", "0-3", "1Gi", False, id="best-effort promises nothing"),
    ],
)
def test_restricted_promises_one_node_to_what_fits(
    cluster: Any, placed: Place, *, policy: str, cpus: str, memory: str, single: bool
) -> None:
    cluster.node("a")
    container = placed("p", exclusive=True, promised_cpus=cpus, cpuset=cpus)
    cluster.report("a", policy=policy, containers=[container])
    cluster.pod("p", "a", memory=memory)
    assert only(cluster).containers[0].single_numa is single


def test_volcano_promises_what_kubelet_was_asked_for(cluster: Any, placed: Place) -> None:
    cluster.node("a")
    cluster.report("a", containers=[placed("p", exclusive=True, promised_cpus="6-9", cpuset="6-9")])
    cluster.pod("p", "a", annotations={VOLCANO: "single-numa-node"})
    assert "CPUSpansNUMA" in {f.reason for f in findings(cluster, numa_alignment)}


@pytest.mark.parametrize(
    ("policy", "manager", "verdict"),
    [
        pytest.param("SingleNUMANodeContainerLevel", "static", "to b", id="a node with the policy"),
        pytest.param("SingleNUMANodeContainerLevel", "none", "FitsNowhere", id="the policy without the CPU manager"),
        pytest.param("BestEffortContainerLevel", "static", "FitsNowhere", id="another policy"),
    ],
)
def test_a_mismatch_is_cured_only_where_the_policy_runs(cluster: Any, policy: str, manager: str, verdict: str) -> None:
    for name, words in (("a", "BestEffortContainerLevel"), ("b", policy)):
        cluster.node(name)
        notes = cluster.report(name, policy=words)["metadata"]["annotations"]
        notes[keys.CPU_MANAGER_POLICY] = json.dumps({"policy": "static" if name == "a" else manager})
    cluster.pod("p", "a", annotations={VOLCANO: "single-numa-node"})
    (outcome,) = cluster.plan().outcomes
    assert (outcome.reasons[0].reason if outcome.reasons else f"to {outcome.target}") == verdict


@pytest.mark.parametrize(
    ("fields", "homes"),
    [
        pytest.param({"cpuset": "6-9"}, {"a", "b"}, id="CPUs: a new start on its node cures it, too"),
        pytest.param({"cpuset": "2-3", "memory_by_numa": {0: 1 << 30, 1: 1 << 30}}, {"b"}, id="memory: it would not"),
    ],
)
def test_the_better_home_of_a_finding(cluster: Any, placed: Place, fields: dict[str, Any], homes: set[str]) -> None:
    cluster.node("a")
    cluster.report("a", containers=[placed("p", exclusive=True, single_numa=True, **fields)])
    cluster.node("b")
    cluster.report("b")
    cluster.pod("p", "a")
    (outcome,) = cluster.plan().evict
    assert outcome.search
    assert {place.node for place in outcome.search.places} == homes


def test_a_quantity_avoids_the_cpus_that_pods_hold_as_the_agent_does(cluster: Any) -> None:
    cluster.node("a", reservation={"resources": {"cpu": "2"}})
    cluster.report("a")
    cluster.pinned("p", "a", "0-1")
    reserved = cluster.view().nodes["a"].reserved
    assert reserved.source == "computed"
    assert reserved.koordinator is not None
    assert len(reserved.koordinator) == 2
    assert not reserved.koordinator & CPUSet.parse("0-1")
    assert findings(cluster, reserved_cpus) == []
