"""Volcano's Numatopology: what is written of a node, when, and what the descheduler reads out of it."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some
from oneobject import OneObject

from descheduler.snapshot import assemble
from descheduler.snapshot.files import Objects
from koordlite.kube.client.access import ApiError
from koordlite.kube.publish import node_reports as writer
from koordlite.kube.publish.background_report import BackgroundReport
from koordlite.kube.publish.node_reports import NUMATOPOLOGY
from koordlite.model import keys, nrt
from koordlite.model.cpuset import CPUSet
from koordlite.model.errors import InputError
from koordlite.model.picture.kubelet import Kubelet, PodCPUs
from koordlite.model.pod.values import Pod
from koordlite.model.topology import CPU, NUMANode, Topology
from koordlite.model.wire import numatopology, objects
from koordlite.model.wire.numatopology import NumatopologyObject

FOUR = Topology(
    tuple(CPU(n, n // 2, n // 2, n // 2) for n in range(4)),
    (NUMANode(0, CPUSet([0, 1]), 2**30), NUMANode(1, CPUSet([2, 3]), 2**30)),
)
NODE = objects.NodeObject(metadata=objects.ObjectMeta(name="n1", uid="u-n1"))


def seen(*held: PodCPUs, pods: tuple[Pod, ...] = ()) -> Any:
    kubelet = Kubelet("static", {}, "single-numa-node", "container", CPUSet([0]), held)
    return SimpleNamespace(kubelet=kubelet, topology=FOUR, pods=pods, node=None)


PINNED = PodCPUs("u1", CPUSet([2, 3]), {"b": CPUSet([3]), "a": CPUSet([2])})
POD = Pod(namespace="ns", name="p", uid="u1")


def test_the_node_as_volcano_reads_it() -> None:
    server = OneObject()
    BackgroundReport(server, "n1", NUMATOPOLOGY).write(writer.numatopology_spec(seen(PINNED, pods=(POD,))), NODE)  # type: ignore[arg-type]
    assert server.held is not None
    assert server.held["metadata"]["ownerReferences"][0]["uid"] == "u-n1"
    assert server.held["spec"] == {
        "policies": {"CPUManagerPolicy": "static", "TopologyManagerPolicy": "single-numa-node"},
        "resReserved": {"cpu": "1"},
        "numares": {"cpu": {"allocatable": "0-1", "capacity": 4}},
        "cpuDetail": {
            "0": {},
            "1": {},
            "2": {"numa": 1, "socket": 1, "core": 1},
            "3": {"numa": 1, "socket": 1, "core": 1},
        },
        "podAllocations": [
            {
                "uid": "u1",
                "name": "p",
                "namespace": "ns",
                "containerAllocations": [
                    {"name": "a", "allocations": {"cpu": "2"}},
                    {"name": "b", "allocations": {"cpu": "3"}},
                ],
            }
        ],
    }


def test_a_pod_that_has_ended_gives_its_cpus_back() -> None:
    ended = Pod(namespace="ns", name="p", uid="u1", phase="Succeeded")
    spec = writer.numatopology_spec(seen(PINNED, pods=(ended,)))
    assert (spec.numares or {})["cpu"].allocatable == "0-3"
    assert spec.pod_allocations is None


def test_nothing_is_written_when_nothing_changed_and_what_changed_replaces() -> None:
    server = OneObject()
    report = BackgroundReport(server, "n1", NUMATOPOLOGY)  # type: ignore[arg-type]
    report.write(writer.numatopology_spec(seen()), NODE)
    report.write(writer.numatopology_spec(seen()), NODE)
    report.write(writer.numatopology_spec(seen(PINNED)), NODE)
    assert server.asked == ["GET", "POST", "GET", "GET", "PUT"]
    assert server.held is not None
    assert server.held["metadata"]["ownerReferences"]


def test_it_is_looked_at_once_a_second_at_most_and_once_a_minute() -> None:
    server = OneObject()
    report = BackgroundReport(server, "n1", NUMATOPOLOGY)  # type: ignore[arg-type]
    for moment, pods in ((0.0, ()), (0.5, (PINNED,)), (1.0, (PINNED,)), (30.0, (PINNED,)), (61.0, (PINNED,))):
        report.observe(seen(*pods), monotonic=moment, wall=0.0, node=NODE)
    report.stop()
    assert server.asked == ["GET", "POST", "GET", "PUT", "GET"]


def test_a_refusal_is_a_problem() -> None:
    class Refusing:
        def request(self, *_: Any, **__: Any) -> Any:
            raise ApiError(403, "Forbidden", "no", named="n1")

    report = BackgroundReport(Refusing(), "n1", NUMATOPOLOGY)  # type: ignore[arg-type]
    report.observe(seen(), monotonic=0.0, wall=0.0, node=NODE)
    report.stop()
    (problem,) = report.problems
    assert (problem.object, "allow this identity" in problem.do) == ("numatopology/n1", True)


def test_what_is_written_reads_back_as_a_node_resource_topology() -> None:
    server = OneObject()
    BackgroundReport(server, "n1", NUMATOPOLOGY).write(writer.numatopology_spec(seen(PINNED, pods=(POD,))), NODE)  # type: ignore[arg-type]
    read = nrt.to_nrt(msgspec.convert(server.held, NumatopologyObject))
    notes = read.metadata.annotations or {}
    assert nrt.decode_cpu_topology(notes[keys.CPU_TOPOLOGY], "n1").cpus == FOUR.cpus
    (held,) = json.loads(notes[keys.POD_CPU_ALLOCS])
    assert (held["uid"], held["cpuset"]) == ("u1", "2-3")
    assert read.attributes == ({"name": "topologyManagerPolicy", "value": "single-numa-node"},)


def test_the_descheduler_takes_it_for_a_node_without_another() -> None:
    found = Objects()
    found.by_kind["Node"][("", "n1")] = NODE
    server = OneObject()
    BackgroundReport(server, "n1", NUMATOPOLOGY).write(writer.numatopology_spec(seen()), NODE)  # type: ignore[arg-type]
    found.by_kind[numatopology.KIND][("", "n1")] = msgspec.convert(server.held, NumatopologyObject)
    view = assemble.view(found, "2026-01-01T00:00:00Z")
    assert view.nodes["n1"].topology_policy == "single-numa-node"
    assert view.problems == ()


@pytest.mark.parametrize("number", ["x", "", "1.5"])
def test_a_number_that_is_none_is_named(number: str) -> None:
    raw = json.dumps({"metadata": {"name": "n1"}, "spec": {"cpuDetail": {number: {}}}}).encode()
    with pytest.raises(InputError, match="numatopology/n1"):
        nrt.to_nrt(msgspec.json.decode(raw, type=NumatopologyObject))


@given(some.dictionaries(some.text(max_size=3), some.builds(numatopology.CPUInfo, some.integers(-1, 3))), some.text())
def test_whatever_it_says_is_read_or_refused(detail: dict[str, numatopology.CPUInfo], cpus: str) -> None:
    pod = numatopology.PodAllocation(
        container_allocations=(numatopology.ContainerAllocation(allocations={"cpu": cpus}),)
    )
    spec = numatopology.NumatopologySpec(cpu_detail=detail, pod_allocations=(pod,))
    try:
        assert nrt.to_nrt(NumatopologyObject(spec=spec)).metadata.annotations
    except InputError as error:
        assert error.problems
