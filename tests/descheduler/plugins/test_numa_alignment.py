"""NUMAAlignment: whose promise does not hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from descheduler.framework import Finding, Note
from descheduler.plugins import numa_alignment
from koordlite.model.nrt import ContainerPlacement
from tests.support.handles import said

Place = Callable[..., ContainerPlacement]
GIB = 2**30


def judge(cluster: Any, **config: Any) -> list[Finding | Note]:
    return said(numa_alignment, cluster.view(), **config)


def test_a_promise_that_contradicts_itself_needs_no_agent(cluster: Any) -> None:
    cluster.node("a")
    cluster.report("a")
    cluster.pinned("spans", "a", "6-9", single=True)
    cluster.pinned("fits", "a", "2-3", single=True)
    cluster.pinned("free", "a", "4-5,10-11")
    found = [(f.pod, f.reason, f.severity) for f in judge(cluster) if isinstance(f, Finding)]
    assert found == [("uid-spans", "CPUSpansNUMA", "hard")]


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
