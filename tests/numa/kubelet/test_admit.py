"""Admission as a whole: what kubelet gives, what it refuses and why, and that the books stay right."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlite.model.cpuset import EMPTY, CPUSet, union
from koordlite.model.picture.kubelet import MemoryBlock
from koordlite.model.topology import CPU, NUMANode, Topology
from koordlite.model.wire import objects
from koordlite.numa.kubelet import merge, requests
from koordlite.numa.kubelet.admit import KubeletNode, admit, empty_node
from koordlite.numa.kubelet.cpu_manager import CPUOptions
from koordlite.numa.kubelet.device_manager import DeviceState
from koordlite.numa.kubelet.memory_manager import first_state
from koordlite.numa.kubelet.requests import ContainerRequest, PodRequest

GIB = 2**30
CPUS = tuple(CPU(core + thread * 8, core, core // 4, core // 4) for thread in range(2) for core in range(8))
TOPOLOGY = Topology(
    CPUS, tuple(NUMANode(i, CPUSet(c.id for c in CPUS if c.node == i), 16 * GIB, ((0, 10), (1, 21))) for i in (0, 1))
)
"""Two NUMA nodes of four cores with two CPUs each: 0-3,8-11 and 4-7,12-15; 16 GiB each."""
MEMORY = first_state((0, 1), [MemoryBlock("memory", 15 * GIB, (0,)), MemoryBlock("memory", 16 * GIB, (1,))])
NICS = DeviceState({"vendor.com/nic": {"n0": frozenset({0}), "n1": frozenset({1}), "n2": frozenset({1})}})


def empty(policy: merge.Policy = "single-numa-node", scope: merge.Scope = "container", **more: object) -> KubeletNode:
    return empty_node(TOPOLOGY, policy=policy, scope=scope, reserved=CPUSet.parse("0,8"), **more)  # type: ignore[arg-type]


def pod(*cpus: int, uid: str = "pod", kind: requests.Kind = "app", memory: int = 0) -> PodRequest:
    amounts = {"memory": memory} if memory else {}
    return PodRequest(
        uid, tuple(ContainerRequest(f"c{i}", cpus=n, memory=amounts, kind=kind) for i, n in enumerate(cpus))
    )


def test_a_container_gets_cpus_of_one_numa_node_without_the_reserved_ones() -> None:
    answer = admit(empty(), pod(4))
    assert answer.admitted
    assert [(each.cpus, each.nodes) for each in answer.allocations] == [(CPUSet.parse("1-2,9-10"), (0,))]
    assert answer.node.cpus.shared == CPUSet.parse("0,3-8,11-15")


def test_the_refusal_has_kubelets_words_and_the_numbers() -> None:
    full = admit(empty(), pod(5, uid="a")).node
    full = admit(full, pod(6, uid="b")).node
    answer = admit(full, pod(3, uid="c"))
    assert (answer.reason, answer.message) == (
        "TopologyAffinityError",
        "Resources cannot be allocated with Topology locality",
    )
    assert answer.evidence == {"container": "c0", "policy": "single-numa-node", "cpus": 3, "freeCPUs": "0: 1, 1: 2"}
    assert answer.node is full
    assert admit(admit(full, pod(2, uid="c")).node, pod(1, uid="d")).admitted


def test_policy_none_takes_cpus_of_several_numa_nodes() -> None:
    answer = admit(empty("none"), pod(12))
    assert answer.admitted
    assert len(answer.allocations[0].cpus) == 12
    refused = admit(answer.node, pod(3, uid="other"))
    assert refused.reason == "UnexpectedAdmissionError"
    assert refused.message == (
        "Allocate failed due to not enough cpus available to satisfy request: requested=3, available=2, "
        "which is unexpected"
    )


def test_whole_cores_or_nothing() -> None:
    options = CPUOptions(full_cores=True)
    odd = admit(empty(cpu_options=options), pod(3))
    assert odd.reason == "SMTAlignmentError"
    assert odd.message == "SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2"


def test_siblings_of_reserved_cpus_are_no_whole_cores() -> None:
    one = empty_node(TOPOLOGY, policy="none", reserved=CPUSet.parse("0"), cpu_options=CPUOptions(full_cores=True))
    message = admit(admit(one, pod(14, uid="most")).node, pod(2)).message
    assert "available physical CPUs = 0, requested CPUs = 2, CPUs per core = 2" in message


@pytest.mark.parametrize(("scope", "admitted"), [("container", True), ("pod", False)])
def test_pod_scope_wants_one_numa_node_for_all_containers(scope: merge.Scope, admitted: bool) -> None:
    answer = admit(empty(scope=scope), pod(5, 5))
    assert answer.admitted is admitted
    assert bool(answer.evidence.get("container")) is False


def test_restricted_wants_as_many_nodes_as_an_empty_machine_would_need() -> None:
    split = admit(admit(empty(), pod(5, uid="a")).node, pod(5, uid="b")).node
    strict = msgspec.structs.replace(split, managers=msgspec.structs.replace(split.managers, policy="restricted"))
    loose = msgspec.structs.replace(split, managers=msgspec.structs.replace(split.managers, policy="best-effort"))
    assert admit(strict, pod(4)).reason == "TopologyAffinityError"
    assert admit(loose, pod(4)).allocations[0].nodes == (0, 1)


def test_cpus_of_init_containers_are_used_again_and_those_of_sidecars_are_not() -> None:
    init, sidecar, app = (
        ContainerRequest("init", cpus=6, kind="init"),
        ContainerRequest("side", cpus=2, kind="sidecar"),
        ContainerRequest("app", cpus=4),
    )
    answer = admit(empty(), PodRequest("pod", (init, sidecar, app)))
    given = {each.container: each.cpus for each in answer.allocations}
    assert given["side"] <= given["init"]
    assert given["app"] == given["init"] - given["side"]
    assert answer.node.without("pod") == empty()
    larger = admit(empty(), PodRequest("pod", (init, sidecar, msgspec.structs.replace(app, cpus=5))))
    assert larger.reason == "TopologyAffinityError", "CPUs that can be used again bind the app container to their node"


def test_memory_follows_the_numa_node_of_the_cpus_and_devices() -> None:
    one = empty(memory=MEMORY, devices=NICS)
    ask = PodRequest(
        "pod",
        (ContainerRequest("c", cpus=2, memory={"memory": 4 * GIB}, devices={"vendor.com/nic": 2, "other.io/x": 1}),),
    )
    answer = admit(one, ask)
    (given,) = answer.allocations
    assert given.nodes == (1,)
    assert given.cpus == CPUSet.parse("4,12")
    assert given.memory == (MemoryBlock("memory", 4 * GIB, (1,)),)
    assert given.devices == {"vendor.com/nic": frozenset({"n1", "n2"})}
    again = admit(answer.node, msgspec.structs.replace(ask, uid="more"))
    assert again.reason == "TopologyAffinityError"
    assert again.evidence["free vendor.com/nic"] == "0: 1, 1: 0"
    assert again.evidence["free memory"] == f"0: {15 * GIB}, 1: {12 * GIB}"
    assert answer.node.without("pod") == one


def test_a_numa_node_in_a_group_serves_nobody_alone() -> None:
    grouped = admit(empty("best-effort", memory=MEMORY), pod(0, memory=20 * GIB)).node
    assert grouped.memory.nodes[0].group == (0, 1)
    small = admit(grouped, pod(0, uid="small", memory=GIB))
    assert small.allocations[0].memory == (MemoryBlock("memory", GIB, (0, 1)),)
    strict = msgspec.structs.replace(grouped, managers=msgspec.structs.replace(grouped.managers, policy="restricted"))
    assert admit(strict, pod(0, uid="small", memory=GIB)).reason == "TopologyAffinityError"


def test_memory_of_init_containers_is_used_again() -> None:
    init = ContainerRequest("init", memory={"memory": 8 * GIB}, kind="init")
    app = ContainerRequest("app", memory={"memory": 6 * GIB})
    answer = admit(empty(memory=MEMORY), PodRequest("pod", (init, app)))
    assert answer.node.memory.nodes[0].free("memory") == 7 * GIB
    assert answer.node.memory.of("pod", "init") == (MemoryBlock("memory", 2 * GIB, (0,)),)
    assert answer.node.without("pod") == empty(memory=MEMORY)


def test_kubelet_does_not_start_on_more_numa_nodes_than_it_may_have() -> None:
    many = Topology(CPUS, tuple(NUMANode(i, EMPTY, GIB) for i in range(9)))
    with pytest.raises(ValueError, match="more than 8 NUMA Nodes"):
        admit(empty_node(many, policy="restricted"), pod(1))


CONTAINER = {"name": "c", "resources": {"limits": {"cpu": "2", "memory": "1Gi", "vendor.com/nic": "1"}}}


def read(spec: object, qos: str = "Guaranteed") -> PodRequest:
    raw = {"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": spec, "status": {"qosClass": qos}}
    return requests.of_pod(msgspec.convert(raw, objects.PodObject, strict=False))


def test_what_a_pod_asks_for_is_read_from_its_object() -> None:
    sidecar = {**CONTAINER, "name": "s", "restartPolicy": "Always"}
    asked = read({"containers": [CONTAINER], "initContainers": [{**CONTAINER, "name": "i"}, sidecar]})
    assert [(c.name, c.kind, c.cpus, c.memory, c.devices) for c in asked.containers] == [
        ("i", "init", 2, {"memory": GIB}, {"vendor.com/nic": 1}),
        ("s", "sidecar", 2, {"memory": GIB}, {"vendor.com/nic": 1}),
        ("c", "app", 2, {"memory": GIB}, {"vendor.com/nic": 1}),
    ]
    assert (asked.cpus, asked.memory, asked.devices) == (4, {"memory": 2 * GIB}, {"vendor.com/nic": 2})


@pytest.mark.parametrize(
    ("spec", "qos"),
    [
        ({"containers": [CONTAINER]}, "Burstable"),
        ({"containers": [CONTAINER], "resources": {"limits": {"cpu": "2"}}}, "Guaranteed"),
    ],
)
def test_other_pods_have_only_their_devices_aligned(spec: object, qos: str) -> None:
    (container,) = read(spec, qos).containers
    assert (container.cpus, container.memory, container.devices) == (0, {}, {"vendor.com/nic": 1})


asks = st.lists(
    st.builds(
        ContainerRequest,
        name=st.sampled_from("abc"),
        cpus=st.integers(0, 9),
        memory=st.builds(lambda n: {"memory": n * GIB}, st.integers(1, 20)),
        devices=st.builds(lambda n: {"vendor.com/nic": n} if n else {}, st.integers(0, 3)),
        kind=st.sampled_from(["init", "sidecar"]),
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda c: c.name,
).map(lambda found: (*found[:-1], msgspec.structs.replace(found[-1], kind="app")))


@given(
    coming=st.lists(asks, min_size=1, max_size=8),
    leaving=st.lists(st.integers(0, 7)),
    policy=st.sampled_from(merge.POLICIES),
    scope=st.sampled_from(merge.SCOPES),
    options=st.sampled_from([CPUOptions(), CPUOptions(full_cores=True), CPUOptions(across_numa=True)]),
)
def test_the_books_stay_right_whoever_comes_and_goes(
    coming: list[tuple[ContainerRequest, ...]],
    leaving: list[int],
    policy: merge.Policy,
    scope: merge.Scope,
    options: CPUOptions,
) -> None:
    fresh = now = empty(policy, scope, cpu_options=options, memory=MEMORY, devices=NICS)
    for number, containers in enumerate(coming):
        answer = admit(now, PodRequest(str(number), containers))
        assert answer.admitted or answer.node is now
        for each, container in zip(answer.allocations, containers, strict=False):
            assert len(each.cpus) == container.cpus
            assert policy != "single-numa-node" or scope == "pod" or len(TOPOLOGY.numa_of(each.cpus)) <= 1
        now = answer.node
        if number in leaving:
            now = now.without(str(number))
        held = union(cpus for own in now.cpus.assigned.values() for cpus in own.values())
        assert not held & now.cpus.shared
        assert held | now.cpus.shared == TOPOLOGY.cpuset
        assert not held & CPUSet.parse("0,8")
        for part in now.memory.nodes.values():
            for table in part.tables.values():
                assert 0 <= table.free <= table.allocatable
    for number in range(len(coming)):
        now = now.without(str(number))
    assert now == fresh
