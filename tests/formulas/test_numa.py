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
    found = numa.policy_mismatch(policy=wanted, node_policy=node, cpu_manager_policy=cpu)
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
    found = numa.policy_mismatch(policy="single-numa-node", node_policy=node, cpu_manager_policy=cpu)
    assert found is not None and found.evidence["node"] == named


@given(st.frozensets(st.integers(0, 7), min_size=1), st.frozensets(st.integers(0, 15)))
def test_a_container_inside_its_promise_is_never_wrong(promised: frozenset[int], extra: frozenset[int]) -> None:
    inside = CPUSet(promised & extra or promised)
    placed = container(source="koordinator", promised_cpus=str(CPUSet(promised)), cpuset=str(inside), single_numa=True)
    assert not list(numa.container_violations(placed, TOPOLOGY, DEFAULT))
