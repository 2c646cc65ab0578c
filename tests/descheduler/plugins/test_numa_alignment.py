"""NUMAAlignment: whose promise does not hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from descheduler.framework import Finding, Note
from descheduler.plugins import numa_alignment
from koordlite.model.nrt import ContainerPlacement
from tests.support.handles import said

Place = Callable[..., ContainerPlacement]
GIB = 2**30


def judge(cluster: Any, **config: Any) -> list[Finding | Note]:
    return said(numa_alignment, cluster.view(), **config)


@pytest.mark.parametrize(
    ("fields", "expected", "fact"),
    [
        pytest.param(
            {"cpuset": "6-9", "single_numa": True, "exclusive": True},
            ("CPUSpansNUMA", "hard"),
            "is on NUMA 0-1: CPUs 6-9 (NUMA 0-1)",
            id="CPUs over two nodes",
        ),
        pytest.param(
            {"cpuset": "0-3", "promised_cpus": "2-3", "source": "koordinator"},
            ("CPUOutsideAssignment", "fixable"),
            "may run on CPUs 0-3 (NUMA 0); 0-1 were not promised",
            id="a cpuset wider than promised",
        ),
        pytest.param(
            {"cpuset": "8-9", "promised_nodes": (0,), "source": "koordinator"},
            ("CPUWrongNUMA", "fixable"),
            "runs on CPUs 8-9 (NUMA 1)",
            id="the wrong node",
        ),
        pytest.param(
            {"cpuset": "2-3", "single_numa": True, "memory_by_numa": {0: GIB, 1: GIB}},
            ("RemoteMemory", "hard"),
            "1024 MiB (50%) of its memory is not on NUMA 0",
            id="memory far away",
        ),
        pytest.param(
            {"cpuset": "2-3", "single_numa": True, "mems": "0-1"},
            ("MemsSpanNUMA", "exposed"),
            "may take memory from NUMA 1 as well",
            id="memory that could go away",
        ),
    ],
)
def test_what_is_found(
    cluster: Any, placed: Place, fields: dict[str, Any], expected: tuple[str, str], fact: str
) -> None:
    cluster.node("a")
    cluster.report("a", containers=[placed("p", **fields)])
    cluster.pod("p", "a")
    (finding,) = judge(cluster)
    assert isinstance(finding, Finding)
    assert (finding.reason, finding.severity, finding.fact) == (*expected, fact)


def test_a_promise_that_contradicts_itself_needs_no_agent(cluster: Any) -> None:
    cluster.node("a")
    cluster.report("a")
    cluster.pinned("spans", "a", "6-9", single=True)
    cluster.pinned("fits", "a", "2-3", single=True)
    cluster.pinned("free", "a", "4-5,10-11")
    found = [(f.pod, f.reason, f.severity) for f in judge(cluster) if isinstance(f, Finding)]
    assert found == [("uid-spans", "CPUSpansNUMA", "hard")]


def test_containers_of_one_pod_on_two_nodes(cluster: Any, placed: Place) -> None:
    cluster.node("a")
    two = [placed("p", cpuset=cpus, single_numa=True, scope="pod") for cpus in ("2-3", "8-9")]
    cluster.report("a", containers=two, policy="SingleNUMANodePodLevel")
    cluster.pod("p", "a")
    (finding,) = judge(cluster)
    assert (finding.reason, getattr(finding, "container", "")) == ("PodSpansNUMA", "*")


def test_a_policy_the_node_does_not_run(cluster: Any) -> None:
    cluster.node("a")
    notes = cluster.report("a", policy="BestEffortContainerLevel")["metadata"]["annotations"]
    notes["kubelet.koordinator.sh/cpu-manager-policy"] = '{"policy":"static"}'
    cluster.pod("p", "a", annotations={"volcano.sh/numa-topology-policy": "single-numa-node"})
    (finding,) = judge(cluster)
    assert isinstance(finding, Finding)
    assert finding.reason == "PolicyMismatch"
    assert finding.fact == "the node runs topology manager best-effort, CPU manager static"


def test_thresholds_come_from_the_configuration(cluster: Any, placed: Place) -> None:
    cluster.node("a")
    memory = {0: 9 * GIB, 1: GIB // 2}
    cluster.report("a", containers=[placed("p", cpuset="2-3", single_numa=True, memory_by_numa=memory)])
    cluster.pod("p", "a")
    assert judge(cluster) == []
    assert len(judge(cluster, remote_memory_ratio=0.01)) == 1
    assert judge(cluster, remote_memory_ratio=0.01, remote_memory_mib=1024) == []


def test_without_a_topology_nothing_is_judged_and_it_is_said(cluster: Any) -> None:
    cluster.node("a")
    cluster.pinned("p", "a", "6-9", single=True)
    cluster.node("b")
    cluster.pod("free", "b")
    (note,) = judge(cluster)
    assert isinstance(note, Note)
    assert (note.node, note.reason) == ("a", "TopologyUnknown")


def test_a_stale_placement_is_said(cluster: Any, placed: Place) -> None:
    cluster.node("a")
    cluster.report("a", containers=[placed("p", cpuset="6-9", single_numa=True)], observed_at="2026-01-01T11:00:00Z")
    cluster.pod("p", "a")
    (note,) = judge(cluster)
    assert isinstance(note, Note)
    assert note.text == "the agent last reported 1h ago, more than 3m: its pods are not judged"
