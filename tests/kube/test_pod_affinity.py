"""PodAffinity: what the agent writes about pods of its node that talk to each other."""

from __future__ import annotations

import itertools
import json
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import yaml
from oneobject import OneObject

from koordlite.kube.publish import node_reports
from koordlite.kube.publish.background_report import BackgroundReport
from koordlite.model.cpuset import CPUSet
from koordlite.model.picture.affinity import AffinityState, Connections, Talk
from koordlite.model.picture.groups import Cgroup, MemoryPlace, PodGroups
from koordlite.model.pod.values import ContainerInfo, Pod
from koordlite.model.topology import CPU, NUMANode, Topology
from koordlite.model.wire import objects
from koordlite.model.wire.pod_affinity import PodAffinityObject

FOUR = Topology(
    tuple(CPU(n, n // 2, n // 2, n // 2) for n in range(4)),
    (NUMANode(0, CPUSet([0, 1]), 2**30), NUMANode(1, CPUSet([2, 3]), 2**30)),
)
NODE = objects.NodeObject(metadata=objects.ObjectMeta(name="n1", uid="u-n1"))


def pod(uid: str, phase: str = "Running") -> Pod:
    return Pod(
        namespace="ns",
        name=uid,
        uid=uid,
        phase=phase,
        containers=(ContainerInfo("main", f"cri://{uid}", True, {}, {}),),
    )


def snapshot(*talks: Talk, cpus: dict[str, str], pods: tuple[Pod, ...] | None = None) -> Any:
    """Pods `a`, `b` and `c` on two NUMA nodes of two CPUs; `cpus` by pod."""
    groups = {uid: PodGroups(f"kubepods/pod{uid}", {"main": f"kubepods/pod{uid}/main"}) for uid in cpus}
    cgroups = {f"kubepods/pod{uid}/main": Cgroup(effective=CPUSet.parse(text)) for uid, text in cpus.items()}
    return SimpleNamespace(
        topology=FOUR,
        pods=pods if pods is not None else tuple(map(pod, cpus)),
        places=groups,
        cgroups=cgroups,
        memory_places={"kubepods/poda/main": MemoryPlace(CPUSet([0]), {})},
        affinity=AffinityState(connections=Connections(rounds=1, totals={}, talks=talks)),
    )


def test_pairs_and_places_are_written_with_the_columns_of_oenuma() -> None:
    spec = node_reports.pod_affinity_spec(snapshot(Talk("a", "b", 9), cpus={"a": "0-1", "b": "2", "c": "3"}))
    assert json.loads(msgspec.json.encode(spec)) == {
        "connections": 8,
        "apart": 8,
        "pairs": [{"first": "ns/a", "second": "ns/b", "connections": 8}],
        "podAffinity": [
            {
                "numaNum": 0,
                "podName": "a",
                "namespace": "ns",
                "containers": [{"name": "main", "containerId": "cri://a", "cpuset": "0-1", "memset": "0"}],
            },
            {
                "numaNum": 1,
                "podName": "b",
                "namespace": "ns",
                "containers": [{"name": "main", "containerId": "cri://b", "cpuset": "2"}],
            },
        ],
    }


@pytest.mark.parametrize(
    ("cpus", "apart"),
    [({"a": "0", "b": "1"}, 0), ({"a": "0", "b": "2"}, 4), ({"a": "0-2", "b": "0-2"}, 4)],
    ids=["one NUMA node has both", "each has its own", "both lie on two"],
)
def test_connections_of_pods_that_do_not_share_a_numa_node_are_apart(cpus: dict[str, str], apart: int) -> None:
    assert node_reports.pod_affinity_spec(snapshot(Talk("a", "b", 4), cpus=cpus)).apart == apart


@pytest.mark.parametrize(("count", "written"), [(1, 1), (7, 4), (8, 8), (1000, 512)])
def test_counts_are_written_as_powers_of_two_so_that_a_busy_service_writes_seldom(count: int, written: int) -> None:
    assert (
        node_reports.pod_affinity_spec(snapshot(Talk("a", "b", count), cpus={"a": "0", "b": "1"})).connections
        == written
    )


def test_a_pod_that_has_ended_is_in_no_pair() -> None:
    pods = (pod("a"), pod("b", "Succeeded"))
    spec = node_reports.pod_affinity_spec(snapshot(Talk("a", "b", 4), cpus={"a": "0", "b": "1"}, pods=pods))
    assert (spec.pairs, spec.pod_affinity) == (None, None)


def test_many_pairs_are_cut_to_what_the_schema_allows(spec_schema: dict[str, Any]) -> None:
    names = [f"p{n}" for n in range(300)]
    talks = [Talk(first, second, 2) for first, second in itertools.pairwise(names)]
    spec = node_reports.pod_affinity_spec(snapshot(*talks, cpus=dict.fromkeys(names, "0")))
    pairs = spec_schema["properties"]["pairs"]["maxItems"]
    assert len(spec.pairs or ()) == pairs == node_reports.MOST_PAIRS
    assert len(spec.pod_affinity or ()) <= spec_schema["properties"]["podAffinity"]["maxItems"]


def test_every_field_that_is_written_is_in_the_schema(spec_schema: dict[str, Any]) -> None:
    written = json.loads(
        msgspec.json.encode(node_reports.pod_affinity_spec(snapshot(Talk("a", "b", 9), cpus={"a": "0", "b": "1-2"})))
    )

    def check(value: Any, schema: dict[str, Any]) -> None:
        if isinstance(value, dict):
            assert value.keys() <= schema["properties"].keys()
            for key, inner in value.items():
                check(inner, schema["properties"][key])
        for inner in value if isinstance(value, list) else ():
            check(inner, schema["items"])

    check(written, spec_schema)


@pytest.fixture
def spec_schema(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The schema of `spec` as shipped."""
    path = request.config.rootpath / "manifests" / "crds" / "podaffinity" / "podaffinities.yaml"
    (version,) = yaml.safe_load(path.read_text())["spec"]["versions"]
    schema: dict[str, Any] = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return schema


def test_the_object_is_made_once_and_replaced_when_it_differs() -> None:
    server = OneObject()
    report = BackgroundReport(server, "n1", node_reports.POD_AFFINITY)  # type: ignore[arg-type]
    for cpus in ("2", "2", "1"):
        picture = snapshot(Talk("a", "b", 4), cpus={"a": "0", "b": cpus})
        report.write(node_reports.pod_affinity_spec(picture), NODE)
    path = "/apis/numa.koordlite.io/v1alpha1/podaffinities"
    assert server.asked == ["GET", "POST", "GET", "GET", "PUT"]
    assert server.paths == [f"{path}/n1", path, *[f"{path}/n1"] * 3]
    kept = msgspec.convert(server.held, PodAffinityObject)
    assert (kept.spec.apart, (kept.metadata.owner_references or ())[0].uid) == (0, "u-n1")
