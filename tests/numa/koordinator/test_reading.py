"""Whatever nodes and pods carry in annotations: it is read, or refused by name, and the rules go on."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some
from koordinator_nodes import machine, node, quantities, wanted

from koordlite.model.errors import Problem
from koordlite.model.node import Node
from koordlite.model.pod import pod_reader
from koordlite.model.wire import objects
from koordlite.numa.koordinator import ask, assignments, node_report, schedule
from koordlite.numa.koordinator.ask import PodRequest
from koordlite.numa.koordinator.node_report import KoordinatorNode
from koordlite.numa.koordinator.values import NO_ALLOCATION, Allocation, NodeAllocation, Refusal
from koordlite.numa.nrt.reader import Reader

_NAMES = """detail id core socket node cpuset uid managedByKubelet policy options reservedCPUs cpusetExclusive
    cpu memory numaNodeResources resources requiredCPUBindPolicy numaTopologyPolicy"""
NAMES = some.sampled_from(_NAMES.split())
LEAVES = some.one_of(
    some.none(),
    some.booleans(),
    some.integers(-5, 70) | some.integers(),
    some.floats(allow_nan=False),
    some.sampled_from(["", "0-3", "3-1", "0-99999999", "FullPCPUs", "1e999", "4Gi", "x"]),
)
VALUES = some.recursive(
    LEAVES, lambda inner: some.lists(inner, max_size=4) | some.dictionaries(NAMES, inner, max_size=4), max_leaves=12
)
TEXTS = some.one_of(VALUES.map(json.dumps), some.text(max_size=20))
NODE_KEYS = [f"node.koordinator.sh/{name}" for name in ("cpu-topology", "pod-cpu-allocs", "reservation")]
NODE_KEYS += [f"node.koordinator.sh/{name}" for name in ("system-qos-resource", "resource-amplification-ratio")]
NODE_KEYS += ["kubelet.koordinator.sh/cpu-manager-policy"]
POD_KEYS = [f"scheduling.koordinator.sh/{name}" for name in ("resource-spec", "resource-status", "numa-topology-spec")]
ZONES = some.lists(
    some.fixed_dictionaries(
        {
            "name": some.sampled_from(["node-0", "node-1", "node-63", "node-64", "node--1", "numa0"]),
            "type": some.sampled_from(["Node", "Node", "Core"]),
            "resources": some.lists(
                some.fixed_dictionaries(
                    {
                        "name": some.sampled_from(["cpu", "memory", "x/y"]),
                        "allocatable": some.sampled_from(["4", "-1", "8Gi", "", "1e99", "0.5m"]),
                    }
                ),
                max_size=3,
            ),
        }
    ),
    max_size=3,
)


@given(some.dictionaries(some.sampled_from(NODE_KEYS), TEXTS), ZONES, TEXTS)
def test_a_report_is_read_as_far_as_it_can_be(notes: dict[str, str], zones: list[Any], ratio: str) -> None:
    problems: list[Problem] = []
    obj = msgspec.convert({"metadata": {"name": "n", "annotations": notes}, "zones": zones}, objects.NRTObject)
    topology = node_report.read(obj, problems)
    assert {problem.object for problem in problems} <= {"noderesourcetopology/n"}
    node = Node(name="n", annotations={"node.koordinator.sh/resource-amplification-ratio": ratio})
    state = KoordinatorNode.of(node, topology, NO_ALLOCATION, {})
    found = schedule.judge(wanted("2", numa='{"numaTopologyPolicy":"Restricted"}'), state)
    assert isinstance(found, Refusal) or 0 <= found.score <= 100


@given(some.dictionaries(some.sampled_from(POD_KEYS), TEXTS))
def test_a_pod_is_read_or_refused(notes: dict[str, str]) -> None:
    labels = {"koordinator.sh/qosClass": "LSR"}
    meta = {"namespace": "ns", "name": "p", "uid": "p", "annotations": notes, "labels": labels}
    spec = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2", "memory": "1Gi"}}}]}
    pod = pod_reader.from_wire(msgspec.convert({"metadata": meta, "spec": spec}, objects.PodObject))
    found = ask.of(pod)
    assert isinstance(found, PodRequest) or (isinstance(found, Refusal) and found.code == "Error")
    cpus = machine()
    held = NodeAllocation.of(cpus, assignments.allocations([pod]))
    again = schedule.judge(wanted("4"), node(cpus, held.pods.values()))
    assert isinstance(again, Refusal) or again.score >= 0


def test_null_options_of_kubelets_cpu_manager_are_none() -> None:
    note = '{"policy":"static","options":null,"reservedCPUs":"0-1"}'
    obj = msgspec.convert({"metadata": {"name": "n", "annotations": {NODE_KEYS[-1]: note}}}, objects.NRTObject)
    problems: list[Problem] = []
    manager = Reader(obj, problems).cpu_manager
    assert (manager.policy, manager.options, str(manager.reserved_cpus), problems) == ("static", {}, "0-1", [])


def test_a_reservation_affinity_that_cannot_be_read_refuses_every_node() -> None:
    meta = {"name": "p", "annotations": {"scheduling.koordinator.sh/reservation-affinity": "{"}}
    spec = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]}
    refusal = ask.of(pod_reader.from_wire(msgspec.convert({"metadata": meta, "spec": spec}, objects.PodObject)))
    assert isinstance(refusal, Refusal)
    assert refusal.code == "UnschedulableAndUnresolvable"
    assert refusal.reasons[0].startswith("scheduling.koordinator.sh/reservation-affinity: ")


@pytest.mark.parametrize(
    ("notes", "field"),
    [
        ({"node.koordinator.sh/cpu-topology": "{"}, "node.koordinator.sh/cpu-topology"),
        ({NODE_KEYS[1]: '[{"uid":"a","managedByKubelet":true,"cpuset":"x"}]'}, NODE_KEYS[1]),
        ({"kubelet.koordinator.sh/cpu-manager-policy": '{"reservedCPUs":"0-"}'}, "cpu-manager-policy"),
        ({"node.koordinator.sh/reservation": '{"reservedCPUs":"a"}'}, "node.koordinator.sh/reservation"),
        ({"node.koordinator.sh/resource-amplification-ratio": '{"cpu":1e300}'}, "resource-amplification-ratio"),
    ],
)
def test_what_cannot_be_read_is_a_problem_of_the_report(notes: dict[str, str], field: str) -> None:
    problems: list[Problem] = []
    obj = msgspec.convert({"metadata": {"name": "n", "annotations": notes}}, objects.NRTObject)
    node_report.read(obj, problems)
    assert [problem.field.endswith(field.rpartition("/")[2]) for problem in problems] == [True]


def test_one_allocation_that_cannot_be_read_does_not_hide_the_others() -> None:
    text = '[{"uid":"a","managedByKubelet":true,"cpuset":"x"},{"uid":"b","managedByKubelet":true,"cpuset":"2-3"}]'
    obj = msgspec.convert({"metadata": {"annotations": {NODE_KEYS[1]: text}}}, objects.NRTObject)
    assert str(node_report.read(obj, []).reserved) == "2-3"


def test_a_pod_that_has_ended_holds_nothing() -> None:
    note = {POD_KEYS[1]: '{"numaNodeResources":[{"node":0,"resources":{"cpu":"2"}}]}'}
    meta = {"namespace": "ns", "name": "p", "uid": "p", "annotations": note}
    pod = pod_reader.from_wire(msgspec.convert({"metadata": meta, "status": {"phase": "Running"}}, objects.PodObject))
    ended = msgspec.structs.replace(pod, phase="Succeeded")
    assert list(assignments.allocations([pod, ended])) == [Allocation(uid="p", zones={0: quantities(cpu="2")})]
