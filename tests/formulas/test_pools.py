"""Shared CPUs, and the set of one container."""

from __future__ import annotations

import pytest

from koordlite.formulas import pools
from koordlite.formulas.pools import Pool
from koordlite.model.cpuset import EMPTY, CPUSet
from koordlite.model.node import SystemQoS
from koordlite.model.pod import ResourceStatus
from koordlite.model.qos import QoSClass
from koordlite.model.topology import CPU


def texts(found: pools.Pools) -> list[str]:
    return [f"{pool.socket}/{pool.node}:{pool.cpuset}" for pool in found]


def shared(cpus: list[CPU], **given: object) -> tuple[list[str], list[str]]:
    nothing = {"exclusive": EMPTY, "pinned": (), "reserved": EMPTY, "system_exclusive": EMPTY}
    ls, be = pools.shared_pools(cpus=cpus, **{**nothing, **given})  # type: ignore[arg-type]
    return texts(ls), texts(be)


def test_one_pool_for_each_numa_node(machine) -> None:
    whole = ["0/0:0-1,4-5", "1/1:2-3,6-7"]
    assert shared(machine(sockets=2, cores_per_node=2)) == (whole, whole)


@pytest.mark.parametrize(
    ("qos", "be"),
    [
        pytest.param(QoSClass.LSR, "0/0:0-7", id="LSR CPUs stay with BE"),
        pytest.param(QoSClass.LSE, "0/0:1-3,5-7", id="LSE CPUs do not"),
        pytest.param(QoSClass.NONE, "0/0:0-7", id="an unlabelled pod counts as LSR"),
    ],
)
def test_pinned_cpus_leave_the_ls_pool(machine, qos: QoSClass, be: str) -> None:
    assert shared(machine(), pinned=[(qos, CPUSet([0, 4]))]) == (["0/0:1-3,5-7"], [be])


@pytest.mark.parametrize("who", ["exclusive", "reserved", "system_exclusive"])
def test_cpus_somebody_has_alone_leave_both_pools(machine, who: str) -> None:
    left = ["0/0:1-3,5-7"]
    assert shared(machine(), **{who: CPUSet([0, 4])}) == (left, left)


def test_an_emptied_numa_node_has_no_pool(machine) -> None:
    found = shared(machine(sockets=2, cores_per_node=2), reserved=CPUSet.parse("0-1,4-5"))
    assert found == (["1/1:2-3,6-7"], ["1/1:2-3,6-7"])


def test_joined_takes_all_pools_or_those_of_some_nodes() -> None:
    both = (Pool(0, 0, CPUSet([0, 1])), Pool(1, 1, CPUSet([2, 3])))
    assert str(pools.joined(both)) == "0-3"
    assert str(pools.joined(both, nodes=[1, 7])) == "2-3"
    assert pools.joined(both, nodes=[]) == EMPTY


LS = (Pool(0, 0, CPUSet.parse("2-7")), Pool(1, 1, CPUSet.parse("8-15")))
BE = (Pool(0, 0, CPUSet.parse("0-7")), Pool(1, 1, CPUSet.parse("8-15")))
SYSTEM = SystemQoS(CPUSet.parse("0-1"))
PROMISED = ResourceStatus(cpuset=CPUSet.parse("4-5"), numa_nodes=(1,))
NUMA = ResourceStatus(numa_nodes=(1,))
MEMORY_ONLY = ResourceStatus(numa_nodes=(1,), numa_cpu=False)
NOTHING = ResourceStatus()


@pytest.mark.parametrize(
    ("qos", "status", "extra", "cpus"),
    [
        pytest.param("LSR", PROMISED, {}, "4-5", id="promised CPUs win"),
        pytest.param("BE", PROMISED, {"best_effort_cgroup": True}, "4-5", id="promised CPUs win whatever the label"),
        pytest.param("LS", NUMA, {}, "8-15", id="LS follows its promised NUMA node"),
        pytest.param("", NUMA, {"kubelet_policy": "static"}, "8-15", id="also unlabelled under the static policy"),
        pytest.param("LS", MEMORY_ONLY, {}, "2-15", id="memory alone does not tie CPUs"),
        pytest.param("LS", ResourceStatus(numa_nodes=(5,)), {}, None, id="a node without a pool leaves it alone"),
        pytest.param("BE", NUMA, {"best_effort_cgroup": True}, None, id="BE is steered by its parent group"),
        pytest.param("BE", NUMA, {"be_cpu_manager": True}, "8-15", id="unless BE follows NUMA nodes too"),
        pytest.param("SYSTEM", NOTHING, {}, "0-1", id="SYSTEM has its own CPUs"),
        pytest.param("SYSTEM", NOTHING, {"system_qos": SystemQoS()}, "2-15", id="or the shared ones"),
        pytest.param("LS", NOTHING, {"best_effort_cgroup": True}, "2-15", id="the LS label wins over the cgroup"),
        pytest.param("", NOTHING, {"best_effort_cgroup": True}, None, id="best-effort containers are left alone"),
        pytest.param("", NOTHING, {"kubelet_policy": "static"}, None, id="kubelet's static policy is left alone"),
        pytest.param("LS", NOTHING, {"kubelet_policy": "static"}, "2-15", id="but not for LS"),
        pytest.param("", NOTHING, {"kubelet_policy": "none"}, "2-15", id="everybody else shares the LS pools"),
        pytest.param("LS", NOTHING, {"ls_pools": ()}, None, id="an empty set is never an answer"),
    ],
)
def test_container_cpuset(qos: str, status: ResourceStatus, extra: dict[str, object], cpus: str | None) -> None:
    usual = {
        "best_effort_cgroup": False,
        "ls_pools": LS,
        "be_pools": BE,
        "system_qos": SYSTEM,
        "kubelet_policy": "none",
    }
    found = pools.container_cpuset(qos=QoSClass(qos), status=status, **{**usual, **extra})  # type: ignore[arg-type]
    assert found == (None if cpus is None else CPUSet.parse(cpus))
