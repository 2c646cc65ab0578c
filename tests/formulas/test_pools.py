"""Shared CPUs, and the set of one container."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from koordlite.formulas.cpu import pools
from koordlite.formulas.cpu.pools import Pool
from koordlite.model.cpuset import EMPTY, CPUSet, union
from koordlite.model.node import SystemQoS
from koordlite.model.pod.qos import QoSClass
from koordlite.model.pod.values import Pod, ResourceStatus
from koordlite.model.topology import CPU


def texts(found: pools.Pools) -> list[str]:
    return [f"{pool.socket}/{pool.node}:{pool.cpuset}" for pool in found]


def shared(cpus: list[CPU], **given: object) -> tuple[list[str], list[str]]:
    nothing = {"exclusive": EMPTY, "pinned": (), "reserved": EMPTY, "system_exclusive": EMPTY}
    ls, be = pools.shared_pools(cpus=cpus, **{**nothing, **given})  # type: ignore[arg-type]
    return texts(ls), texts(be)


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


def pod(uid: str, qos: str = "", cpus: str = "", phase: str = "Running") -> Pod:
    status = ResourceStatus(CPUSet.parse(cpus))
    return Pod(namespace="a", name=uid, uid=uid, raw_qos=QoSClass(qos), phase=phase, resource_status=status)


def test_what_has_finished_holds_no_cpu() -> None:
    pods = [pod("a", "LSR", "1"), pod("b", "LSE", "2", "Succeeded"), pod("c", "", "3", "Failed"), pod("d", "LS")]
    assert pools.pinned(pods) == [(QoSClass.LSR, CPUSet([1]))]


@pytest.mark.parametrize(
    ("status", "cpus"),
    [
        (PROMISED, "4-5"),
        (NUMA, "2-3,6-7"),
        (MEMORY_ONLY, ""),
        (NOTHING, ""),
        (ResourceStatus(numa_nodes=(5,)), ""),
        (ResourceStatus(numa_nodes=(0, 1)), "0-7"),
    ],
)
def test_promised_cpus(machine, status: ResourceStatus, cpus: str) -> None:
    assert str(pools.promised(status, machine(sockets=2, cores_per_node=2))) == cpus


SETS = some.frozensets(some.integers(0, 17), max_size=6).map(CPUSet)
OWNERS = some.lists(some.tuples(some.sampled_from(QoSClass), SETS), max_size=5)


@given(
    owners=OWNERS,
    exclusive=SETS,
    reserved=SETS,
    system=SETS,
    shape=some.sampled_from([(1, 1, 8), (2, 1, 4), (2, 2, 2)]),
)
def test_pools_partition_the_machine(
    owners: list[tuple[QoSClass, CPUSet]], exclusive: CPUSet, reserved: CPUSet, system: CPUSet, shape: tuple[int, ...]
) -> None:
    """Every CPU is in the pool or has an owner, no CPU both; no CPU is in two pools, none is lost or invented."""
    sockets, nodes, cores = shape
    cpus = [CPU(i, i // 2, i // (2 * cores * nodes), i // (2 * cores)) for i in range(sockets * nodes * cores * 2)]
    everything = CPUSet(cpu.id for cpu in cpus)
    for pinned_too, found in zip(
        (QoSClass, [QoSClass.LSE]),
        pools.shared_pools(cpus=cpus, exclusive=exclusive, pinned=owners, reserved=reserved, system_exclusive=system),
        strict=True,
    ):
        held = [exclusive, reserved, system, *(taken for qos, taken in owners if qos in pinned_too)]
        assert pools.joined(found) == everything - union(held)
        assert sum(len(pool.cpuset) for pool in found) == len(pools.joined(found))
        assert all(pool.cpuset for pool in found)
        node_of = {cpu.id: (cpu.socket, cpu.node) for cpu in cpus}
        assert all(node_of[cpu] == (pool.socket, pool.node) for pool in found for cpu in pool.cpuset)
        assert [(p.socket, p.node) for p in found] == sorted({(p.socket, p.node) for p in found})


@given(owners=OWNERS, reserved=SETS)
def test_best_effort_has_what_latency_sensitive_pods_have_and_lsr_cpus(
    owners: list[tuple[QoSClass, CPUSet]], reserved: CPUSet
) -> None:
    cpus = [CPU(i, i, 0, 0) for i in range(16)]
    ls, be = pools.shared_pools(cpus=cpus, exclusive=EMPTY, pinned=owners, reserved=reserved, system_exclusive=EMPTY)
    assert pools.joined(ls) <= pools.joined(be)


@given(left=SETS, right=SETS)
def test_taking_twice_is_taking_once(left: CPUSet, right: CPUSet) -> None:
    whole = pools.by_numa_node([CPU(i, i, i // 8, i // 4) for i in range(16)])
    assert pools.without(pools.without(whole, left), right) == pools.without(whole, left | right)
