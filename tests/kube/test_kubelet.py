"""Kubelet's own words: /configz and the CPU manager's checkpoint."""

from __future__ import annotations

import json
from typing import Any

import pytest

from koordlite.kube.kubelet import configz as kubelet
from koordlite.kube.kubelet.configz import CPUManagerState
from koordlite.model.cpuset import CPUSet
from koordlite.model.errors import InputError
from koordlite.model.picture.kubelet import Kubelet, PodCPUs
from koordlite.model.topology import CPU, NUMANode, Topology

# 12 CPUs, two sockets: even cores on socket 0, siblings n and n + 6.
TWELVE = Topology(
    tuple(CPU(n, core=n % 6, socket=n % 2, node=n % 2) for n in range(12)),
    tuple(NUMANode(n, CPUSet(range(n, 12, 2)), 0) for n in range(2)),
)


def configz(**fields: Any) -> bytes:
    return json.dumps({"kubeletconfig": fields}).encode()


def test_policies_are_read() -> None:
    raw = configz(
        cpuManagerPolicy="static",
        cpuManagerPolicyOptions={"full-pcpus-only": "true"},
        topologyManagerPolicy="single-numa-node",
        topologyManagerScope="pod",
        cgroupRoot="/k",
        cgroupDriver="systemd",
        somethingNew=[1],
    )
    assert kubelet.parse_configz(raw) == Kubelet(
        cpu_manager_policy="static",
        cpu_manager_options={"full-pcpus-only": "true"},
        topology_manager_policy="single-numa-node",
        topology_manager_scope="pod",
        cpu_cfs_quota=True,
    )


def test_missing_and_null_fields_have_kubelets_defaults() -> None:
    found = kubelet.parse_configz(configz(cpuManagerPolicy=None, systemReserved=None, cpuCFSQuota=None))
    assert found == Kubelet("none", {}, "none", "container", cpu_cfs_quota=True)
    assert kubelet.parse_configz(configz(cpuCFSQuota=False)).cpu_cfs_quota is False


@pytest.mark.parametrize(
    ("memory_swap", "behavior"),
    [
        pytest.param({"swapBehavior": "LimitedSwap"}, "LimitedSwap", id="limited"),
        pytest.param({"swapBehavior": None}, "", id="null"),
        pytest.param({}, "", id="as kubelet prints its default"),
        pytest.param(None, "", id="kubelet before NodeSwap"),
    ],
)
def test_who_divides_swap_is_read(memory_swap: object, behavior: str) -> None:
    assert kubelet.parse_configz(configz(memorySwap=memory_swap)).swap_behavior == behavior


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({"systemReserved": {"cpu": "200m"}, "kubeReserved": {"cpu": "1800m"}}, "0,6", id="2 CPUs: a core"),
        pytest.param({"kubeReserved": {"cpu": "1001m"}}, "0,6", id="a part of a CPU takes a whole one"),
        pytest.param({"reservedSystemCPUs": "1-4", "kubeReserved": {"cpu": "9"}}, "1-4", id="a list wins"),
        pytest.param({"kubeReserved": {"memory": "1Gi"}}, "", id="no CPU reserved"),
    ],
)
def test_static_policy_reserves(fields: dict[str, Any], expected: str) -> None:
    config = kubelet.parse_configz(configz(cpuManagerPolicy="static", **fields))
    assert str(kubelet.reserved_cpus(config, TWELVE)) == expected


def test_policy_none_reserves_no_cpu() -> None:
    config = kubelet.parse_configz(configz(cpuManagerPolicy="none", reservedSystemCPUs="0"))
    assert kubelet.reserved_cpus(config, TWELVE) == CPUSet()


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        pytest.param({"reservedSystemCPUs": "0,12"}, "only the CPUs 0-11", id="a CPU the machine lacks"),
        pytest.param({"kubeReserved": {"cpu": "13"}}, "not enough cpus", id="more than there are"),
    ],
)
def test_reservations_the_machine_cannot_hold_become_problems(fields: dict[str, Any], why: str) -> None:
    config = kubelet.parse_configz(configz(cpuManagerPolicy="static", **fields))
    seen, problems = kubelet.combine(config, CPUManagerState(), TWELVE)
    assert seen.reserved_cpus == CPUSet()
    assert [why in problem.why for problem in problems] == [True]


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"Unauthorized", id="a refusal as text"),
        pytest.param(b"{}", id="no kubeletconfig"),
        pytest.param(configz(reservedSystemCPUs="0-x"), id="a broken list"),
        pytest.param(configz(kubeReserved={"cpu": "lots"}), id="a broken quantity"),
    ],
)
def test_an_answer_that_cannot_be_read_is_an_error(raw: bytes) -> None:
    with pytest.raises(InputError, match="/configz"):
        kubelet.parse_configz(raw)


STATE = {
    "policyName": "static",
    "defaultCpuSet": "0,3-5",
    "entries": {"uid-b": {"main": "1", "side": "2"}, "uid-a": {"main": "6"}, "uid-c": {"main": ""}},
    "checksum": 1,
}


def test_exclusive_cpus_are_the_union_of_a_pods_containers() -> None:
    assert kubelet.parse_cpu_manager_state(json.dumps(STATE).encode()) == CPUManagerState(
        "static",
        CPUSet({0, 3, 4, 5}),
        (
            PodCPUs("uid-a", CPUSet({6}), {"main": CPUSet({6})}),
            PodCPUs("uid-b", CPUSet({1, 2}), {"main": CPUSet({1}), "side": CPUSet({2})}),
        ),
    )


@pytest.mark.parametrize("raw", [b"", b"\n"], ids=["empty", "newline"])
def test_an_empty_checkpoint_is_no_state(raw: bytes) -> None:
    assert kubelet.parse_cpu_manager_state(raw) == CPUManagerState()


@pytest.mark.parametrize(
    "raw", [b"{", b'{"policyName":"static","defaultCpuSet":"1-"}', b"[]"], ids=["cut off", "list", "shape"]
)
def test_a_checkpoint_that_cannot_be_read_is_an_error(raw: bytes) -> None:
    with pytest.raises(InputError, match="cpu_manager_state"):
        kubelet.parse_cpu_manager_state(raw)


def test_a_container_whose_cpus_cannot_be_read_costs_no_other_and_is_told() -> None:
    raw = b'{"policyName":"static","entries":{"u":{"a":"1-","b":"2"},"v":{"a":"x"}}}'
    state = kubelet.parse_cpu_manager_state(raw)
    assert state.pod_cpus == (PodCPUs("u", CPUSet({2}), {"b": CPUSet({2})}),)
    assert [problem.field for problem in state.problems] == [
        "cpu_manager_state.entries.u.a",
        "cpu_manager_state.entries.v.a",
    ]
    assert kubelet.combine(Kubelet(cpu_manager_policy="static"), state, TWELVE)[1] == state.problems


@pytest.mark.parametrize(("policy", "count"), [("static", 2), ("none", 0)])
def test_a_checkpoint_counts_only_under_the_static_policy(policy: str, count: int) -> None:
    state = kubelet.parse_cpu_manager_state(json.dumps(STATE).encode())
    seen, problems = kubelet.combine(Kubelet(cpu_manager_policy=policy), state, TWELVE)
    assert (len(seen.pod_cpus), problems) == (count, ())
