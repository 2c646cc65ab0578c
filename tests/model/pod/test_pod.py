"""Pods off the wire."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from koordlite.model import keys
from koordlite.model.cpuset import CPUSet
from koordlite.model.pod import pod_reader
from koordlite.model.pod.qos import KubeQoS, PriorityClass, QoSClass
from koordlite.model.pod.values import Pod, ResourceStatus
from koordlite.model.wire import objects


def read(**given: Any) -> Pod:
    metadata = {"namespace": "shop", "name": "cart", "uid": "u1", **given.pop("metadata", {})}
    text = json.dumps({"metadata": metadata, **given})
    return pod_reader.from_wire(msgspec.json.decode(text, type=objects.PodObject))


def container(name: str = "main", **resources: Any) -> dict[str, Any]:
    return {"name": name, "resources": resources}


def test_identity_classes_and_state() -> None:
    found = read(
        metadata={"labels": {keys.QOS_CLASS: "LSR"}, "deletionTimestamp": "2026-01-01T00:00:00Z"},
        spec={"priority": 9500},
        status={"phase": "Running", "qosClass": "Burstable"},
    )
    assert (found.key, found.uid, found.deleting, found.active) == ("shop/cart", "u1", True, True)
    assert (found.raw_qos, found.qos_class, found.kube_qos) == (QoSClass.LSR, QoSClass.LSR, KubeQoS.BURSTABLE)
    assert found.priority_class is PriorityClass.PROD
    assert not found.is_best_effort


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ({"requests": {"cpu": "0"}, "limits": {"cpu": "0"}}, KubeQoS.BEST_EFFORT),
        ({"limits": {"cpu": "1", "memory": "1Gi"}}, KubeQoS.GUARANTEED),
        ({"limits": {"cpu": "1"}}, KubeQoS.BURSTABLE),
        # A request of 0 is written, so the limit does not stand in for it.
        ({"requests": {"cpu": "0"}, "limits": {"cpu": "1", "memory": "1Gi"}}, KubeQoS.BURSTABLE),
    ],
)
def test_the_class_of_a_pod_whose_status_does_not_say_it(resources: dict[str, Any], expected: KubeQoS) -> None:
    assert read(spec={"containers": [container(**resources)]}).kube_qos is expected


def cpu(amount: str) -> dict[str, Any]:
    return {"requests": {"cpu": amount}}


@pytest.mark.parametrize(
    ("spec", "milli"),
    [
        pytest.param({"containers": [container(**cpu("1")), container("b", **cpu("500m"))]}, 1500, id="sum"),
        pytest.param({"containers": [container(limits={"cpu": "2"})]}, 2000, id="a limit stands for a request"),
        pytest.param({"containers": [container(**cpu("1"))], "overhead": {"cpu": "250m"}}, 1250, id="overhead"),
        pytest.param(
            {"containers": [container(**cpu("1"))], "initContainers": [container("i", **cpu("3"))]},
            3000,
            id="large init",
        ),
        pytest.param(
            {
                "containers": [container(**cpu("1"))],
                "initContainers": [{**container("s", **cpu("2")), "restartPolicy": "Always"}],
            },
            3000,
            id="a sidecar runs beside",
        ),
        pytest.param(
            {
                "containers": [container(**cpu("1"))],
                "initContainers": [
                    {**container("s", **cpu("2")), "restartPolicy": "Always"},
                    container("i", **cpu("4")),
                ],
            },
            6000,
            id="an init container runs beside earlier sidecars",
        ),
        pytest.param({"containers": [container(**cpu("1"))], "resources": cpu("5")}, 5000, id="pod-level requests win"),
    ],
)
def test_effective_cpu_request(spec: dict[str, Any], milli: int) -> None:
    assert read(spec=spec).request_milli("cpu") == milli


def test_a_bad_quantity_is_a_problem_and_counts_nothing() -> None:
    found = read(spec={"containers": [container(requests={"cpu": "1C", "memory": "1Gi"})]})
    assert (found.request_milli(), found.request_value("memory")) == (0, 1024**3)
    assert [problem.value for problem in found.problems] == ["1C"]


def status(**given: Any) -> Pod:
    return read(metadata={"annotations": {keys.RESOURCE_STATUS: json.dumps(given)}})


def test_promised_cpus_and_numa_nodes() -> None:
    entries = [{"node": 1, "resources": {"cpu": "2"}}, {"node": 1}, {"node": 0}]
    found = status(cpuset="0-3", numaNodeResources=entries).resource_status
    assert (found.cpuset, found.numa_nodes, found.numa_cpu) == (CPUSet(range(4)), (1, 0), True)


@pytest.mark.parametrize(
    ("resources", "tied"),
    [
        ({"cpu": "2"}, True),
        ({keys.BATCH_CPU: "2000"}, True),
        ({"memory": "1Gi"}, False),
        ({"cpu": "0"}, False),
        ({}, False),
        (None, False),
    ],
)
def test_only_cpu_ties_cpus_to_numa_nodes(resources: dict[str, str] | None, tied: bool) -> None:
    assert status(numaNodeResources=[{"node": 1, "resources": resources}]).resource_status.numa_cpu is tied


def test_promises_are_read_as_go_reads_them() -> None:
    given = {"CPUSET": "0-3", "NumaNodeResources": [{"NODE": 1, "Resources": {"cpu": 2}}]}
    found = status(**given).resource_status
    assert (found.cpuset, found.numa_nodes, found.numa_cpu) == (CPUSet(range(4)), (1,), True)
    policy = {"annotations": {keys.NUMA_TOPOLOGY_SPEC: '{"NUMATopologyPolicy":"Restricted"}'}}
    assert read(metadata=policy).numa_policy == "Restricted"


@pytest.mark.parametrize("text", ["{", "[]", '{"cpuset":"0-"}', '{"numaNodeResources":[{"resources":{"cpu":"1C"}}]}'])
def test_a_bad_promise_is_a_problem_of_the_pod(text: str) -> None:
    found = read(metadata={"annotations": {keys.RESOURCE_STATUS: text}})
    assert found.resource_status == ResourceStatus()
    (problem,) = found.problems
    assert (problem.object, problem.field, problem.value) == ("pod/shop/cart", keys.RESOURCE_STATUS, text)


def test_containers_with_their_ids_and_states() -> None:
    found = read(
        spec={"containers": [container("a", limits={"cpu": "1"}), container("b")]},
        status={"containerStatuses": [{"name": "a", "containerID": "containerd://x", "state": {"running": {}}}]},
    )
    assert [(each.name, each.id, each.running) for each in found.containers] == [
        ("a", "containerd://x", True),
        ("b", "", False),
    ]


@pytest.mark.parametrize(
    ("label", "kube", "best_effort"),
    [("BE", "Burstable", True), ("", "BestEffort", True), ("LS", "BestEffort", True), ("LS", "Burstable", False)],
)
def test_best_effort_by_label_or_by_cgroup(label: str, kube: str, best_effort: bool) -> None:
    found = read(metadata={"labels": {keys.QOS_CLASS: label}}, status={"qosClass": kube})
    assert found.is_best_effort is best_effort


def test_deprecated_resources_are_those_of_today() -> None:
    old = {"koordinator.sh/batch-cpu": "1k", "koordinator.sh/batch-memory": "1Gi"}
    found = read(spec={"containers": [container(requests=old)]})
    assert (found.request_milli(keys.BATCH_CPU), found.request_value(keys.BATCH_MEMORY)) == (1_000_000, 2**30)
    assert not any(name.startswith("koordinator.sh/") for name in found.requests)


def test_the_name_of_today_wins() -> None:
    both = {"koordinator.sh/batch-cpu": "1", keys.BATCH_CPU: "2"}
    assert read(spec={"containers": [container(requests=both)]}).request_value(keys.BATCH_CPU) == 2


def test_numbers_of_priority() -> None:
    found = read(metadata={"labels": {keys.PRIORITY: "0x10", keys.QOS_CLASS: "BE"}})
    assert (found.raw_priority_class, found.priority_value, found.sub_priority) == (PriorityClass.NONE, 5500, 16)


def test_an_order_that_is_no_number_is_reported_and_counts_as_none() -> None:
    found = read(metadata={"labels": {keys.PRIORITY: "high"}})
    assert found.sub_priority == 0
    assert [(problem.field, problem.value) for problem in found.problems] == [(keys.PRIORITY, "high")]


@pytest.mark.parametrize(
    ("phase", "finished"), [("Succeeded", True), ("Failed", True), ("Running", False), ("", False)]
)
def test_what_has_finished(phase: str, finished: bool) -> None:
    assert read(status={"phase": phase}).finished == finished
