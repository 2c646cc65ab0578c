"""Promise against fact, on a machine with CPUs 0-7 on NUMA node 0 and 8-15 on node 1."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlite.formulas.topology import numa
from koordlite.model import nrt
from koordlite.model.cpuset import CPUSet
from koordlite.model.topology import CPU, NUMANode, Topology

GIB = 2**30
TOPOLOGY = Topology(
    tuple(CPU(i, i, i // 8, i // 8) for i in range(16)),
    tuple(NUMANode(n, CPUSet(range(8 * n, 8 * n + 8)), 0) for n in range(2)),
)
DEFAULT = numa.MemoryThresholds()


def container(**fields: Any) -> nrt.ContainerPlacement:
    sets = {key: CPUSet.parse(fields.pop(key)) for key in ("cpuset", "mems", "promised_cpus") if key in fields}
    return nrt.ContainerPlacement(namespace="n", pod="p", uid="u", container="c", **sets, **fields)


def single(**fields: Any) -> nrt.ContainerPlacement:
    return container(source="kubelet", exclusive=True, single_numa=True, **fields)


def koordinator(**fields: Any) -> nrt.ContainerPlacement:
    return container(source="koordinator", exclusive=True, **fields)


@pytest.mark.parametrize(
    ("placed", "expected"),
    [
        pytest.param(single(cpuset="2-5", mems="0"), [], id="inside one node all is well"),
        pytest.param(container(cpuset="0-15"), [], id="the shared pool may span nodes"),
        pytest.param(single(cpuset="6-9"), [("CPUSpansNUMA", "hard")], id="kubelet's container over two nodes moves"),
        pytest.param(
            koordinator(cpuset="0-3", promised_cpus="0-1"),
            [("CPUOutsideAssignment", "fixable")],
            id="a widened cpuset is written anew",
        ),
        pytest.param(
            koordinator(cpuset="0-3", promised_cpus="0-1", fix_failed=True),
            [("CPUOutsideAssignment", "hard")],
            id="what the agent could not write has to move",
        ),
        pytest.param(
            koordinator(cpuset="8-9", promised_nodes=(0,)), [("CPUWrongNUMA", "fixable")], id="the other node's CPUs"
        ),
        pytest.param(
            koordinator(cpuset="8-9", promised_cpus="0-1"),
            [("CPUOutsideAssignment", "fixable"), ("CPUWrongNUMA", "fixable")],
            id="promised CPUs name the node as well",
        ),
        pytest.param(
            koordinator(cpuset="6-9", promised_cpus="6-9", single_numa=True),
            [("CPUSpansNUMA", "hard")],
            id="a promise that spans itself cannot be kept by writing it again",
        ),
        pytest.param(
            container(source="kubelet", exclusive=True, cpuset="6-9", promised_cpus="6-9"),
            [],
            id="without single-numa-node an exclusive container may span",
        ),
        pytest.param(single(cpuset="2-3", mems="0-1"), [("MemsSpanNUMA", "exposed")], id="memory may still spill"),
        pytest.param(
            single(cpuset="2-3", devices=(nrt.Device(id="gpu", numa=1), nrt.Device(id="nic"))),
            [("DeviceRemote", "hard")],
            id="a device on the other node counts, one of unknown node does not",
        ),
        pytest.param(
            single(cpuset="6-9", memory_by_numa={0: GIB, 1: GIB}),
            [("CPUSpansNUMA", "hard")],
            id="memory is not judged when nobody can say which node is right",
        ),
        pytest.param(single(cpuset="40-41"), [], id="CPUs the machine does not have say nothing"),
    ],
)
def test_container_violations(placed: nrt.ContainerPlacement, expected: list[tuple[str, str]]) -> None:
    found = numa.container_violations(placed, TOPOLOGY, DEFAULT)
    assert [(violation.reason, violation.severity) for violation in found] == expected


@pytest.mark.parametrize(
    ("local", "remote", "counts"),
    [
        pytest.param(0, 63 * 2**20, False, id="under 64 MiB is never remote memory"),
        pytest.param(0, 64 * 2**20, True, id="64 MiB and all of it is"),
        pytest.param(9 * GIB, GIB, False, id="exactly a tenth is not"),
        pytest.param(9 * GIB, GIB + 1, True, id="more than a tenth is"),
    ],
)
def test_remote_memory_needs_both_many_bytes_and_a_good_part(local: int, remote: int, counts: bool) -> None:
    placed = single(cpuset="0-1", memory_by_numa={0: local, 1: remote})
    found = [v.reason for v in numa.container_violations(placed, TOPOLOGY, DEFAULT)]
    assert found == (["RemoteMemory"] if counts else [])


def test_a_pod_promised_to_one_node_as_a_whole_may_not_stand_on_two() -> None:
    two = [single(cpuset="0-1", scope="pod"), single(cpuset="8-9", scope="pod")]
    wrong = numa.pod_spans(two, TOPOLOGY)
    assert wrong is not None
    assert (wrong.reason, wrong.evidence["nodes"]) == ("PodSpansNUMA", "0-1")
    assert numa.pod_spans(two[:1], TOPOLOGY) is None
    assert numa.pod_spans([single(cpuset="0-1"), single(cpuset="8-9")], TOPOLOGY) is None


@pytest.mark.parametrize(
    ("wanted", "node", "cpu", "wrong"),
    [
        pytest.param("single-numa-node", "best-effort", "static", True, id="another topology policy"),
        pytest.param("single-numa-node", "single-numa-node", "none", True, id="no CPU manager"),
        pytest.param("single-numa-node", "single-numa-node", "static", False, id="the same"),
        pytest.param("none", "best-effort", "none", False, id="none asks nothing"),
        pytest.param("restricted", "", "", False, id="an unknown node is not judged"),
    ],
)
def test_policy_mismatch(wanted: str, node: str, cpu: str, wrong: bool) -> None:
    found = numa.policy_mismatch(wanted=wanted, node_policy=node, cpu_manager_policy=cpu)
    assert (found is not None) is wrong


@pytest.mark.parametrize(
    ("node", "cpu", "named"),
    [
        pytest.param("best-effort", "static", "best-effort", id="another topology policy"),
        pytest.param("single-numa-node", "none", "cpu-manager-none", id="a CPU manager that aligns nothing"),
        pytest.param("best-effort", "none", "cpu-manager-none", id="both: nothing is aligned"),
    ],
)
def test_policy_mismatch_names_what_stands_in_the_way(node: str, cpu: str, named: str) -> None:
    found = numa.policy_mismatch(wanted="single-numa-node", node_policy=node, cpu_manager_policy=cpu)
    assert found is not None and found.evidence["node"] == named


@pytest.mark.parametrize(
    ("placed", "strict", "severity"),
    [
        pytest.param(koordinator(cpuset="0-3"), True, "hard", id="an exclusive container has to move"),
        pytest.param(container(cpuset="0-15"), True, "fixable", id="a shared one follows its pool"),
        pytest.param(container(cpuset="0-15", fix_failed=True), True, "hard", id="unless that failed"),
        pytest.param(container(cpuset="0-15"), False, None, id="kubelet lets the shared pool on by design"),
        pytest.param(koordinator(cpuset="0-3"), False, "hard", id="but exclusive containers never belong there"),
        pytest.param(koordinator(cpuset="4-7"), True, None, id="elsewhere all is well"),
    ],
)
def test_reserved_use(placed: nrt.ContainerPlacement, strict: bool, severity: str | None) -> None:
    found = numa.reserved_use(placed, owner="koordinator", reserved=CPUSet([0, 1]), strict=strict)
    assert (found.severity if found else None) == severity


@given(st.frozensets(st.integers(0, 7), min_size=1), st.frozensets(st.integers(0, 15)))
def test_a_container_inside_its_promise_is_never_wrong(promised: frozenset[int], extra: frozenset[int]) -> None:
    inside = CPUSet(promised & extra or promised)
    placed = container(source="koordinator", promised_cpus=str(CPUSet(promised)), cpuset=str(inside), single_numa=True)
    assert not list(numa.container_violations(placed, TOPOLOGY, DEFAULT))
