"""`numa explain`: the causes by which a pod is not aligned, each with its numbers."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import msgspec
import pytest
from reported import tick_of

from koordlite.model.cpuset import CPUSet
from koordlite.model.node import ResolvedReservation, SystemQoS
from koordlite.model.picture.groups import Cgroup, Layout, MemoryPlace, PodGroups
from koordlite.model.picture.kubelet import Kubelet, KubeletResources, PodCPUs, PodResources, ResourceSet
from koordlite.model.picture.published import Published
from koordlite.model.picture.usage import Usage
from koordlite.model.pod.qos import KubeQoS, QoSClass
from koordlite.model.pod.values import ContainerInfo, Pod, ResourceStatus
from koordlite.model.quantity import Quantity
from koordlite.model.slo.settings import SLO, NUMAPolicy
from koordlite.model.snapshot import Snapshot
from koordlite.model.topology import CPU, NUMANode, Topology
from koordlite.report.explain import numa
from koordlite.report.explain.subject import explain
from koordlite.resctrl.values import Resctrl

GROUP = "kubepods/podp"
STATIC = Kubelet("static", {}, "single-numa-node", "container")


def pod(cpu: str = "2", *, kube: KubeQoS = KubeQoS.GUARANTEED, **more: Any) -> Pod:
    asked = {"cpu": Quantity.parse(cpu)}
    container = ContainerInfo("main", "", True, asked, asked)
    return Pod(namespace="ns", name="p", uid="p", kube_qos=kube, requests=asked, containers=(container,), **more)


def checks(snapshot: Snapshot, **modes: str) -> dict[str, list[tuple[str, str]]]:
    """Verdict and sentence by what was looked at."""
    tick = tick_of(time=0.0, node="n", modes=modes, snapshot=snapshot)
    found: dict[str, list[tuple[str, str]]] = {}
    for check in numa.answer("ns/p", tick).document["checks"]:
        found.setdefault(check["about"], []).append((check["verdict"], check["sentence"]))
    return found


TOPOLOGY = Topology(
    tuple(CPU(cpu, cpu, cpu // 4, cpu // 4) for cpu in range(8)),
    (NUMANode(0, CPUSet(range(4)), 2**34), NUMANode(1, CPUSet(range(4, 8)), 2**34)),
)


@pytest.fixture
def seen() -> Snapshot:
    """Eight CPUs on two NUMA nodes, and one pod on all of them."""
    nothing = Usage(None, {}, {})
    return Snapshot(
        time=1.0,
        taken_at="2026-01-01T00:00:00Z",
        node=None,
        slo=SLO(),
        topology=TOPOLOGY,
        reserved=ResolvedReservation(),
        system_qos=SystemQoS(),
        kubelet=STATIC,
        layout=Layout(2, "systemd", "kubepods", "kubepods/burstable", "kubepods/besteffort"),
        pods=(pod(),),
        places={"p": PodGroups(GROUP, {"main": f"{GROUP}/main"}, ())},
        cgroups={f"{GROUP}/main": Cgroup(CPUSet(range(8)), CPUSet(range(8)), -1)},
        usage=nothing,
        average=nothing,
        resctrl=Resctrl(absent="none"),
        published=Published({}, {}),
        memory_places={f"{GROUP}/main": MemoryPlace(CPUSet([0, 1]), {0: 2**30, 1: 2**30})},
    )


def test_nothing_stands_in_the_way(seen: Snapshot) -> None:
    found = checks(seen)
    assert {verdict for group in found.values() for verdict, _ in group} == {"ok", "note"}
    assert found["runs"] == [
        ("note", "main may run on CPUs 0-7 (NUMA 0, 1, no promise); memory NUMA 0 1.0 GiB, NUMA 1 1.0 GiB")
    ]


def test_first_cause_kubelet_aligns_nothing(seen: Snapshot) -> None:
    ((verdict, sentence),) = checks(dataclasses.replace(seen, kubelet=Kubelet("none", {}, "none", "container")))[
        "policy"
    ]
    assert verdict == "cause"
    assert "CPU manager is none, its topology manager none" in sentence


def test_second_cause_its_own_rules_narrow_the_choice(seen: Snapshot) -> None:
    narrowed = dataclasses.replace(seen, pods=(pod(constraints=("podAntiAffinity",)),))
    ((verdict, sentence),) = checks(narrowed)["placement"]
    assert (verdict, "podAntiAffinity" in sentence) == ("note", True)
    assert "koordlite scheduler explain ns/p" in sentence


def test_third_cause_no_numa_node_has_what_it_asks_for(seen: Snapshot) -> None:
    other = PodResources("ns", "q", {"c": ResourceSet(CPUSet([2, 3]))})
    own = PodResources("ns", "p", {"main": ResourceSet(CPUSet([0, 1]))})
    resources = KubeletResources("pod-resources", ResourceSet(CPUSet(range(1, 8))), (other, own))
    kubelet = msgspec.structs.replace(STATIC, resources=resources)
    asking = dataclasses.replace(seen, pods=(pod("5"),), kubelet=kubelet)
    have = "(NUMA 0: 1.0 CPU; NUMA 1: 4.0 CPU)"
    assert checks(asking)["space"] == [
        ("cause", f"it asks for 5.0 CPU; without it no single NUMA node has that {have}")
    ]
    four = dataclasses.replace(asking, pods=(pod("4"),))
    assert checks(four)["space"] == [("ok", f"it asks for 4.0 CPU; without it NUMA 1 would have that {have}")]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (pod(kube=KubeQoS.BURSTABLE), "it is Burstable"),
        (pod("1500m"), "not whole CPUs: main 1500m"),
    ],
)
def test_what_kubelet_never_aligns_is_named(seen: Snapshot, wrong: Pod, words: str) -> None:
    ((verdict, sentence),) = checks(dataclasses.replace(seen, pods=(wrong,)))["class"]
    assert (verdict, words in sentence) == ("cause", True)


@pytest.mark.parametrize(("mode", "verdict"), [("observe", "cause"), ("enforce", "ok")])
def test_an_assignment_needs_the_strategy_that_applies_it(seen: Snapshot, mode: str, verdict: str) -> None:
    assigned = pod(raw_qos=QoSClass.LSR, resource_status=ResourceStatus(CPUSet([0, 1])))
    found = checks(dataclasses.replace(seen, pods=(assigned,)), cpusetPools=mode)
    assert found["policy"][0][0] == verdict
    assert f"is in mode {mode}" in found["policy"][0][1]


def test_an_assignment_that_is_not_believed_is_a_cause(seen: Snapshot) -> None:
    refused = ResourceStatus(refused=CPUSet([0]), why="another pod has them")
    found = checks(dataclasses.replace(seen, pods=(pod(resource_status=refused),)))
    assert found["assignment"] == [("cause", "the CPUs 0 are not given: another pod has them")]


def test_a_promise_that_does_not_hold_is_a_cause_with_its_facts(seen: Snapshot) -> None:
    held = msgspec.structs.replace(STATIC, pod_cpus=(PodCPUs("p", CPUSet([0, 1]), {"main": CPUSet([0, 1])}),))
    found = checks(dataclasses.replace(seen, kubelet=held))
    assert ("cause", "main: CPUSpansNUMA (hard): nodes 0-1") in found["violation"]


def test_a_pod_that_failed_is_told_from_one_that_runs(seen: Snapshot) -> None:
    found = checks(dataclasses.replace(seen, pods=(pod(phase="Failed"),)))
    assert "TopologyAffinityError" in found["runs"][0][1]


def test_the_question_is_one_of_explain(seen: Snapshot) -> None:
    tick = tick_of(time=0.0, node="n", snapshot=seen)
    assert explain("numa ns/p", tick).startswith("pod ns/p on n\n")
    assert json.loads(explain("numa p", tick, output="json"))["pod"] == "ns/p"
    with pytest.raises(ValueError, match="no pod 'q' on this node; its pods: ns/p"):
        explain("numa q", tick)


def test_first_cause_a_scheduler_s_plugin_may_be_off(seen: Snapshot) -> None:
    asking = pod(annotations={"volcano.sh/numa-topology-policy": "single-numa-node"})
    ((verdict, sentence),) = checks(dataclasses.replace(seen, pods=(asking,)))["plugin"]
    assert verdict == "note" and "/rest/scheduling/v1/numaaware" in sentence
    assert "plugin" not in checks(seen)


@pytest.mark.parametrize(("is_open", "words"), [(True, "nearest together"), (False, "far apart")])
def test_a_pod_that_needs_several_numa_nodes_is_told_how_they_are_chosen(
    seen: Snapshot, is_open: bool, words: str
) -> None:
    slo = SLO(numa_policy=NUMAPolicy(distance=is_open))
    assert words in checks(dataclasses.replace(seen, pods=(pod("6"),), slo=slo))["distance"][0][1]
    assert "distance" not in checks(dataclasses.replace(seen, slo=slo))


def test_numa_nodes_of_a_container_are_shown_with_their_distance(seen: Snapshot) -> None:
    rows = [((0, 10), (1, 21)), ((0, 21), (1, 10))]
    nodes = [msgspec.structs.replace(each, distances=row) for each, row in zip(TOPOLOGY.nodes, rows, strict=True)]
    measured = msgspec.structs.replace(TOPOLOGY, nodes=tuple(nodes))
    assert "NUMA 0, 1, mean distance 15.5" in checks(dataclasses.replace(seen, topology=measured))["runs"][0][1]
