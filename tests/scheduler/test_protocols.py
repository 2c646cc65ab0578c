"""Nodes on which an agent carries out what a scheduler promised: the rules of Koordinator, Crane and Volcano, by what
pods and nodes ask for."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from koordlite.model import keys
from koordlite.model.cpuset import CPUSet, union
from koordlite.model.wire import crane, objects
from koordlite.scheduler.judgement.nodes import JudgeSettings
from tests.scheduler.builders import Scene, bound, pod

ZONE = {"cpu": "8", "memory": "32Gi"}
CPUS = {
    keys.CPU_TOPOLOGY: json.dumps(
        {"detail": [{"id": n, "core": n // 2, "socket": 0, "node": n // 8} for n in range(16)]}
    )
}
LSR = {"koordinator.sh/qosClass": "LSR", "koordinator.sh/priority-class": "koord-prod"}


def lsr(name: str, cpu: str = "4", **annotations: Any) -> Any:
    obj = pod(name, cpu, annotations={key.replace("_", "-"): text for key, text in annotations.items()})
    obj["metadata"]["labels"] = LSR
    return obj


def koordinator() -> Scene:
    """A node whose agent reports its CPUs, under a kubelet that aligns nothing."""
    scene = Scene()
    scene.node("a", ZONE, ZONE, policy="none", annotations=CPUS)
    return scene


def written(scene: Scene, number: int = -1) -> Any:
    """What the Binding carried."""
    return {key: json.loads(text) for key, text in scene.api.bound[number][2].items()}


def test_koordinators_pods_get_cpus_in_the_binding_and_no_two_the_same() -> None:
    scene = koordinator()
    allocated = []
    for name in ("p", "q", "r", "s"):
        scene.put(lsr(name))
        assert scene.schedule(lsr(name), "a") == "a"
        allocated.append(written(scene)[keys.RESOURCE_STATUS]["cpuset"])
    assert sorted(allocated) == ["0-3", "12-15", "4-7", "8-11"]
    assert scene.filter(lsr("t"), "a") == ([], {"a": "not enough cpus available to satisfy request"})
    assert scene.filter(pod("plain"), "a")[0] == ["a"], "other pods share"
    scene.cluster.remove_pod("ns/q")
    assert scene.filter(lsr("t"), "a")[0] == ["a"]


def test_what_the_watch_brings_back_counts_as_what_was_bound() -> None:
    scene = koordinator()
    scene.put(lsr("p"))
    scene.bind(lsr("p"), "a")
    status = scene.api.bound[0][2]
    obj = bound(lsr("p"), "a")
    obj["metadata"]["annotations"] = status
    scene.put(obj)
    assert len(scene.cluster.assumed) == 0
    scene.put(lsr("q"))
    scene.bind(lsr("q"), "a")
    first, second = (CPUSet.parse(written(scene, n)[keys.RESOURCE_STATUS]["cpuset"]) for n in (0, 1))
    assert (len(first), len(second), first & second) == (4, 4, CPUSet(()))


def test_what_a_pod_that_shrank_in_place_keeps_is_promised_to_nobody_else_and_the_rest_is() -> None:
    scene = koordinator()
    shrunk = bound(lsr("shrunk", "2"), "a")
    shrunk["metadata"]["annotations"] = {keys.RESOURCE_STATUS: '{"cpuset":"0-3"}'}
    scene.put(shrunk)
    for name in ("p", "q", "r"):
        scene.put(lsr(name))
        assert scene.schedule(lsr(name), "a") == "a"
    scene.put(lsr("last", "2"))
    assert scene.schedule(lsr("last", "2"), "a") == "a"
    cpus = [CPUSet.parse(written(scene, n)[keys.RESOURCE_STATUS]["cpuset"]) for n in range(4)]
    assert union(cpus) == CPUSet.parse("2-15") and sum(map(len, cpus)) == 14
    assert scene.filter(lsr("more", "2"), "a")[0] == []


def test_a_claim_of_a_tenant_takes_nothing() -> None:
    scene = koordinator()
    claims = pod("tenant", qos="Burstable", annotations={keys.RESOURCE_STATUS: '{"cpuset":"0-15"}'})
    scene.put(bound(claims, "a"))
    assert scene.filter(lsr("p"), "a")[0] == ["a"]


def test_koordinators_texts_are_the_reasons() -> None:
    scene = koordinator()
    spec = json.dumps({"requiredCPUBindPolicy": "FullPCPUs"})
    odd = lsr("odd", "3", **{keys.RESOURCE_SPEC: spec})
    assert scene.filter(odd, "a")[1] == {"a": "node(s) requested cpus not multiple cpus per core"}
    assert scene.filter(lsr("part", "1500m"), "a")[1] == {"a": "the requested CPUs must be integer"}
    broken = lsr("broken", **{keys.RESOURCE_SPEC: "{"})
    assert "a" in scene.filter(broken, "a")[1]


def test_a_numa_policy_of_the_pod_is_kept_and_promised() -> None:
    scene = koordinator()
    spec = json.dumps({"numaTopologyPolicy": "SingleNUMANode"})
    for name in ("p", "q"):
        obj = lsr(name, "6", **{keys.NUMA_TOPOLOGY_SPEC: spec})
        scene.put(obj)
        assert scene.schedule(obj, "a") == "a"
    zones = [written(scene, n)[keys.RESOURCE_STATUS]["numaNodeResources"][0]["node"] for n in (0, 1)]
    assert sorted(zones) == [0, 1]
    third = lsr("r", "4", **{keys.NUMA_TOPOLOGY_SPEC: spec})
    refusal = scene.filter(third, "a")[1]["a"]
    assert "NUMA" in refusal
    assert scene.filter(third, "a")[1]["a"] == refusal, "the same text each time"


TOPOLOGY = {
    "metadata": {"name": "a"},
    "craneManagerPolicy": {"cpuManagerPolicy": "Static", "topologyManagerPolicy": "SingleNUMANodePodLevel"},
    "zones": [
        {"name": f"node{n}", "type": "Node", "resources": {"capacity": {"cpu": "8"}, "allocatable": {"cpu": "8"}}}
        for n in range(2)
    ],
}


def test_cranes_result_is_written_and_counts_for_the_next() -> None:
    scene = Scene()
    scene.node("a")
    scene.cluster.put_crane(msgspec.convert(TOPOLOGY, crane.TopologyObject))
    zones = []
    for name in ("p", "q"):
        scene.put(pod(name, "6"))
        assert scene.schedule(pod(name, "6"), "a") == "a"
        zones.append(written(scene)["topology.crane.io/topology-result"][0]["name"])
    assert sorted(zones) == ["node0", "node1"]
    assert scene.filter(pod("r", "6"), "a")[1] == {"a": "node(s) had insufficient resource of NUMA node"}
    unaware = pod("s", "4", annotations={"topology.crane.io/topology-awareness": "false"})
    assert scene.filter(unaware, "a")[0] == ["a"], "two CPUs on each are enough for it"
    scene.cluster.remove_crane("a")
    assert scene.filter(pod("r", "6"), "a")[0] == ["a"]
    aware = pod("t", "4", annotations={"topology.crane.io/topology-awareness": "true"})
    assert scene.filter(aware, "a")[1] == {"a": "node(s) failed to get NRT"}


def test_of_a_burstable_pod_the_named_container_counts_and_a_wrong_name_fits_nowhere() -> None:
    scene = Scene()
    scene.node("a")
    scene.cluster.put_crane(msgspec.convert(TOPOLOGY, crane.TopologyObject))

    def mixed(name: str, exclusive: str) -> Any:
        obj = pod(name, "6", annotations={keys.EXCLUSIVE_CONTAINERS: exclusive})
        sidecar = {"name": "sidecar", "resources": {"requests": {"cpu": "100m"}}}
        obj["spec"]["containers"] = [*obj["spec"]["containers"], sidecar]
        return obj

    first = mixed("p", "main")["spec"]["containers"][0]["name"]
    scene.put(mixed("p", first))
    assert scene.schedule(mixed("p", first), "a") == "a"
    (zone,) = written(scene)[keys.CRANE_TOPOLOGY_RESULT]
    assert zone["resources"]["capacity"] == {"cpu": "6"}
    wrong = "pod names containers that cannot have CPUs of their own"
    assert scene.filter(mixed("q", "sidecar"), "a") == ([], {"a": wrong})
    scene.cluster.remove_crane("a")
    assert scene.filter(mixed("r", first), "a")[1]["a"].endswith("and the extender reads it (--crane)")


@pytest.mark.parametrize(
    ("policy", "annotations", "refusal"),
    [
        ("single-numa-node", {}, ""),
        ("restricted", {}, "task topology policy[single-numa-node] is different with node[restricted]"),
        ("single-numa-node", {keys.CPU_MANAGER_POLICY: '{"policy":"none"}'}, "cpu manager policy isn't static"),
    ],
)
def test_a_policy_that_volcano_would_ask_for(policy: str, annotations: dict[str, str], refusal: str) -> None:
    scene = Scene()
    scene.node("a", ZONE, ZONE, policy=policy, annotations=annotations)
    asks = pod("p", "2", annotations={"volcano.sh/numa-topology-policy": "single-numa-node"})
    assert scene.filter(asks, "a")[1].get("a", "") == refusal
    ignoring = Scene(JudgeSettings(check_volcano=False))
    ignoring.node("a", ZONE, ZONE, policy=policy, annotations=annotations)
    assert ignoring.filter(asks, "a")[0] == ["a"]


def test_no_report_is_volcanos_first_text() -> None:
    scene = Scene()
    scene.node("a")
    asks = pod("p", "2", annotations={"volcano.sh/numa-topology-policy": "restricted"})
    assert scene.filter(asks, "a")[1] == {"a": "numa info is empty"}


@pytest.mark.parametrize(
    ("cpu", "zones", "passes"),
    [
        pytest.param("6", ({"cpu": "6"}, {"cpu": "0"}), True, id="one NUMA node has enough"),
        pytest.param("6", ({"cpu": "4"}, {"cpu": "4"}), False, id="an empty one would, so two will not do"),
        pytest.param("12", ({"cpu": "8"}, {"cpu": "8"}), True, id="it needs two even on an empty machine"),
        pytest.param("12", ({"cpu": "8"}, {"cpu": "2"}), False, id="two together have too few"),
    ],
)
def test_restricted_is_checked_as_kubelet_does_unless_it_is_turned_off(
    cpu: str, zones: tuple[dict[str, str], ...], passes: bool
) -> None:
    for check in (True, False):
        scene = Scene(JudgeSettings(check_restricted=check))
        scene.node("a", *zones, policy="restricted", totals={"cpu": "8"})
        assert bool(scene.filter(pod("p", cpu), "a")[0]) is (passes or not check)


def test_a_pod_of_a_daemon_set_is_not_cranes() -> None:
    scene = Scene()
    scene.node("a")
    scene.cluster.put_crane(msgspec.convert({**TOPOLOGY, "zones": []}, crane.TopologyObject))
    obj = pod("p", "6")
    assert scene.filter(obj, "a")[0] == []
    obj["metadata"]["ownerReferences"] = [{"kind": "DaemonSet", "name": "d"}]
    assert scene.extender.filter(msgspec.convert(obj, objects.PodObject), ["a"])[0] == ["a"]
