"""Another CPU manager configuration, pod by pod, with kubelet's words where it would not start."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from koordlite.model.cpuset import EMPTY, CPUSet
from koordlite.model.picture.kubelet import (
    Devices,
    Kubelet,
    KubeletResources,
    MemoryBlock,
    PodCPUs,
    PodResources,
    ResourceSet,
)
from koordlite.model.quantity import Quantity
from koordlite.model.topology import CPU, NUMANode, Topology
from koordlite.model.wire import objects
from koordlite.numa.kubelet.change import Change, Checkpoint, Configuration, change
from koordlite.numa.kubelet.cpu_manager import CPUState

CPUS = tuple(CPU(core + thread * 4, core, core // 2, core // 2) for thread in range(2) for core in range(4))
TOPOLOGY = Topology(CPUS, tuple(NUMANode(i, CPUSet(c.id for c in CPUS if c.node == i), 0) for i in (0, 1)))
"""Two NUMA nodes of two cores with two CPUs each: 0-1,4-5 and 2-3,6-7."""
NONE = Kubelet(cpu_manager_policy="none", reserved={"cpu": Quantity.parse("500m")})
ALL = CPUSet.parse("0-7")


def pod(name: str, cpu: str = "", *, limit: bool = True, owner: str = "ReplicaSet", **more: Any) -> objects.PodObject:
    """A pod with one container; `limit` makes it Guaranteed."""
    amounts = {"cpu": cpu, "memory": "1Gi", **more.get("devices", {})} if cpu else {}
    document = {
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": name,
            "creationTimestamp": more.get("created", "2026-01-01T00:00:00Z"),
            "ownerReferences": [{"kind": owner, "name": "own"}] if owner else [],
        },
        "spec": {
            "containers": [{"name": "c", "resources": {"requests": amounts, "limits": amounts if limit else {}}}],
            "priority": more.get("priority", 0),
            "volumes": more.get("volumes", []),
        },
        "status": {"phase": more.get("phase", "Running")},
    }
    return msgspec.convert(document, objects.PodObject)


def static(options: dict[str, str] | None = None, reserved: str = "0,4") -> Configuration:
    return Configuration("static", CPUSet.parse(reserved), options or {})


def planned(
    *pods: objects.PodObject,
    kubelet: Kubelet = NONE,
    target: Configuration | None = None,
    checkpoint: Checkpoint | None = None,
) -> Change:
    return change(kubelet, target or static(), TOPOLOGY, pods, checkpoint)


def outcomes(result: Change) -> dict[str, str]:
    return {effect.pod: effect.outcome for effect in result.effects}


def test_guaranteed_pods_with_whole_cpus_get_them_and_the_others_share_the_rest() -> None:
    result = planned(pod("pinned", "2"), pod("half", "500m"), pod("burst", "1", limit=False), pod("best"))
    assert outcomes(result) == {
        "ns/best": "shared",
        "ns/burst": "shared",
        "ns/half": "shared",
        "ns/pinned": "gets own CPUs",
    }
    assert result.effects[-1].after == CPUSet.parse("1,5")
    assert (result.shared_before, result.shared_after) == (ALL, CPUSet.parse("0,2-4,6-7"))
    assert (result.allocatable_milli_before, result.allocatable_milli_after) == (7500, 6000)
    assert result.obstacle == 'configured policy "static" differs from state checkpoint policy "none"'


def test_pods_are_admitted_the_oldest_first_and_what_has_no_room_left_is_refused() -> None:
    result = planned(
        pod("young", "4", created="2026-01-03T00:00:00Z"),
        pod("old", "4", created="2026-01-01T00:00:00Z"),
        pod("done", "4", phase="Succeeded"),
    )
    assert outcomes(result) == {"ns/old": "gets own CPUs", "ns/young": "refused"}
    assert (result.effects[1].reason, result.effects[1].message) == (
        "OutOfcpu",
        "Node didn't have enough resource: cpu, requested: 4000, used: 4000, capacity: 6000",
    )


def test_an_odd_request_is_refused_under_full_pcpus_only() -> None:
    result = planned(pod("odd", "3"), target=static({"full-pcpus-only": "true"}))
    assert outcomes(result) == {"ns/odd": "refused"}
    assert result.effects[0].reason == "SMTAlignmentError"


def test_the_way_back_to_none_takes_the_own_cpus_away() -> None:
    kubelet = Kubelet(
        cpu_manager_policy="static",
        reserved_cpus=CPUSet.parse("0"),
        listed_reserved_cpus=CPUSet.parse("0"),
        pod_cpus=(PodCPUs("pinned", CPUSet.parse("1,5"), {"c": CPUSet.parse("1,5")}),),
    )
    result = planned(pod("pinned", "2"), kubelet=kubelet, target=Configuration("none", CPUSet.parse("0")))
    assert [(e.outcome, e.before, e.after) for e in result.effects] == [
        ("loses its own CPUs", CPUSet.parse("1,5"), EMPTY)
    ]
    assert (result.shared_before, result.shared_after) == (CPUSet.parse("0,2-4,6-7"), ALL)


OWN = {"pinned": {"c": CPUSet.parse("1,5")}}
STATIC = Kubelet(
    cpu_manager_policy="static",
    reserved_cpus=CPUSet.parse("0,4"),
    listed_reserved_cpus=CPUSet.parse("0,4"),
    pod_cpus=(PodCPUs("pinned", CPUSet.parse("1,5"), OWN["pinned"]),),
)


@pytest.mark.parametrize(
    ("shared", "target", "words"),
    [
        pytest.param("0,2-4,6-7", static(), "", id="the same reservation is taken over"),
        pytest.param("0,2-4,6-7", static({"full-pcpus-only": "true"}), "", id="so is another option"),
        pytest.param(
            "0,2-4,6-7",
            static(reserved="0-1"),
            'not all reserved cpus: "0-1" are present in defaultCpuSet: "0,2-4,6-7"',
            id="a pod has a CPU that is to be reserved",
        ),
        pytest.param(
            "0,2-4,6-7",
            static({"strict-cpu-reservation": "true"}),
            'some of strictly reserved cpus: "0,4" are present in defaultCpuSet: "0,2-4,6-7"',
            id="reserved CPUs are shared and must not be",
        ),
        pytest.param(
            "0,2-4",
            static(),
            'current set of available CPUs "0-7" doesn\'t match with CPUs in state "0-5"',
            id="CPUs came online",
        ),
        pytest.param("", static(), "default cpuset cannot be empty", id="nothing is shared"),
    ],
)
def test_the_checkpoint_in_the_way_with_kubelets_words(shared: str, target: Configuration, words: str) -> None:
    found = Checkpoint("static", CPUState(CPUSet.parse(shared), OWN))
    result = planned(pod("pinned", "2"), kubelet=STATIC, target=target, checkpoint=found)
    assert result.obstacle == words
    # What is taken over keeps its owners; a new state gives CPUs out again, which may be others.
    assert (result.effects[0].outcome == "keeps its CPUs") or words


def test_a_pod_that_has_to_change_its_cpus_is_named_with_both() -> None:
    result = planned(pod("pinned", "2"), kubelet=STATIC, target=static(reserved="0-1"))
    assert result.obstacle
    assert [(e.outcome, e.before, e.after) for e in result.effects] == [
        ("gets other CPUs", CPUSet.parse("1,5"), CPUSet.parse("2,6"))
    ]


@pytest.mark.parametrize(
    ("kubelet", "target", "words"),
    [
        (Kubelet(cpu_manager_policy="none"), static(reserved=""), "greater than zero"),
        (NONE, static(reserved="8"), "CPUs 8 are not on this machine, which has 0-7"),
        (NONE, static(reserved="0-7"), "none left for containers"),
        (NONE, static({"no-such": "true"}), "unknown CPU Manager Policy option: 'no-such'"),
        (NONE, static({"full-pcpus-only": "perhaps"}), "bad value"),
        (
            msgspec.structs.replace(NONE, topology_manager_policy="single-numa-node"),
            static({"align-by-socket": "true"}),
            "incompatible with option align-by-socket",
        ),
    ],
)
def test_a_configuration_that_kubelet_does_not_start_with_is_refused(
    kubelet: Kubelet, target: Configuration, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        planned(kubelet=kubelet, target=target)


def test_an_amount_reserves_as_many_cpus_as_kubelet_would_take() -> None:
    result = planned(target=static(reserved=""))
    assert (str(result.reserved), result.allocatable_milli_after) == ("0", 7500)


def test_the_least_important_pod_leaves_first_and_daemons_stay() -> None:
    result = planned(
        pod("best"),
        pod("high", "1", priority=9500),
        pod("low", "1", priority=1000),
        pod("daemon", "1", owner="DaemonSet"),
        pod("bare", owner="", volumes=[{"name": "scratch", "emptyDir": {}}]),
    )
    assert result.drain == ("ns/bare", "ns/best", "ns/low", "ns/high")
    marks = {effect.pod: (effect.remains, effect.unowned, effect.local_data) for effect in result.effects}
    assert marks["ns/daemon"] == ("DaemonSet", False, False)
    assert marks["ns/bare"] == ("", True, True)


NIC = "vendor.com/nic"


def with_nic(name: str, cpu: str) -> objects.PodObject:
    return pod(name, cpu, devices={NIC: "1"})


def test_a_pod_is_aligned_with_the_memory_and_devices_that_kubelet_has_left() -> None:
    free = ResourceSet(
        devices=(Devices(NIC, ("n0",), (0,)), Devices(NIC, ("n1",), (1,))),
        memory=(MemoryBlock("memory", 2**30, (0,)), MemoryBlock("memory", 2**31, (1,))),
    )
    holder = ResourceSet(devices=(Devices(NIC, ("n1",), (1,)),), memory=(MemoryBlock("memory", 2**30, (1,)),))
    kubelet = msgspec.structs.replace(
        NONE,
        topology_manager_policy="single-numa-node",
        resources=KubeletResources("pod-resources", free, (PodResources("ns", "holder", {"c": holder}),)),
    )
    result = planned(with_nic("holder", "2"), with_nic("near", "2"), with_nic("none", "1"), kubelet=kubelet)
    assert outcomes(result) == {"ns/holder": "gets own CPUs", "ns/near": "gets own CPUs", "ns/none": "refused"}
    holder_cpus, near_cpus = (effect.after for effect in result.effects[:2])
    assert holder_cpus <= CPUSet.parse("2-3,6-7"), "beside the device that it has"
    assert near_cpus == CPUSet.parse("1,5"), "the only device left is there"
    assert result.effects[2].reason == "TopologyAffinityError"


def with_init(name: str, cpu: str, created: str) -> objects.PodObject:
    """A pod with an init container that asked for as much as its only container."""
    one = with_nic(name, cpu)
    init = tuple(msgspec.structs.replace(each, name="first") for each in one.spec.containers or ())
    metadata = msgspec.structs.replace(one.metadata, creation_timestamp=created)
    return msgspec.structs.replace(one, metadata=metadata, spec=msgspec.structs.replace(one.spec, init_containers=init))


@pytest.mark.parametrize("policy", ["none", "best-effort", "restricted", "single-numa-node"])
def test_an_init_container_that_has_ended_asks_for_nothing_again(policy: str) -> None:
    free = ResourceSet(devices=(Devices(NIC, ("n0",), (0,)),), memory=(MemoryBlock("memory", 2**30, (0,)),))
    resources = KubeletResources("pod-resources", free, (PodResources("ns", "a", {"c": free}),))
    kubelet = msgspec.structs.replace(NONE, topology_manager_policy=policy, resources=resources)
    assert outcomes(planned(with_init("a", "2", "2026-01-01T00:00:00Z"), kubelet=kubelet)) == {"ns/a": "gets own CPUs"}


@pytest.mark.parametrize("policy", ["none", "best-effort", "restricted", "single-numa-node"])
def test_a_numa_node_without_memory_to_give_may_be_the_one_with_the_cpus(policy: str) -> None:
    all_of_it = ResourceSet(memory=(MemoryBlock("memory", 2**30, (0,)),))
    resources = KubeletResources("pod-resources", all_of_it, (PodResources("ns", "a", {"c": all_of_it}),))
    kubelet = msgspec.structs.replace(NONE, topology_manager_policy=policy, resources=resources)
    result = planned(pod("a", "3"), pod("b", "2"), kubelet=kubelet, target=static(reserved="0"))
    assert outcomes(result)["ns/a"] == "gets own CPUs"
    assert result.effects[1].reason in ("TopologyAffinityError", "UnexpectedAdmissionError"), "no memory is left"
