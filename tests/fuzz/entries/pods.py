"""Pods as the API server hands them on: whatever a tenant writes into labels, annotations and resources of his own."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import tinyprometheus

from koordlite.model import keys
from koordlite.model.cpuset import CPUSet
from koordlite.model.errors import UNREADABLE
from koordlite.model.pod import eviction, pod_reader
from koordlite.model.slo import pod_overrides, qos
from koordlite.model.slo.settings import SLO
from koordlite.model.wire import objects
from koordlite.numa.koordinator import assignments
from koordlite.observe import objectives
from tests.fuzz.frame import Entry

MACHINE = CPUSet(range(8))
NOTES = {
    keys.RESOURCE_STATUS: '{"cpuset":"2-3","numaNodeResources":[{"node":0,"resources":{"cpu":"2","memory":"1Gi"}}]}',
    keys.RESOURCE_SPEC: '{"preferredCPUBindPolicy":"FullPCPUs","preferredCPUExclusivePolicy":"PCPULevel"}',
    keys.EXTENDED_RESOURCE_SPEC: '{"containers":{"main":{"limits":{"kubernetes.io/batch-cpu":"700"},"requests":{}}}}',
    keys.NUMA_TOPOLOGY_SPEC: '{"numaTopologyPolicy":"SingleNUMANode"}',
    keys.CPU_BURST: '{"policy":"auto","cpuBurstPercent":200,"cfsQuotaBurstPercent":300,"cfsQuotaBurstPeriodSeconds":9}',
    keys.CPU_QOS: '{"enable":true,"groupIdentity":2}',
    keys.MEMORY_QOS: '{"policy":"auto","minLimitPercent":20,"throttlingPercent":80,"priority":1}',
    keys.BLKIO_QOS: '{"blocks":[{"name":"sda","type":"device","ioCfg":{"readIOPS":100,"ioWeightPercent":60}}]}',
    keys.POD_RESCTRL: '{"llc":{"schemata":{"range":[0,50]}},"mb":{"schemata":{"percent":50}}}',
    keys.OOM_SCORE_ADJ: "-500",
    keys.WAIT_PERCENT: "5",
    keys.OBJECTIVE: "p99 <= 50",
    keys.OOM_SCORE_ADJ_SPEC: '{"main":-100}',
    keys.EVICTION_PRIORITY: "10",
    keys.EVICTION_POLICY: '["memoryEvict"]',
    keys.CRANE_TOPOLOGY_RESULT: '[{"name":"node0","type":"Node","resources":{"capacity":{"cpu":2}}}]',
    keys.CRANE_CPU_POLICY: "exclusive",
}


def pod(name: str, qos_class: str, **notes: str) -> dict[str, Any]:
    """A running pod with one container and these annotations."""
    amounts = {"cpu": "2", "memory": "1Gi", "kubernetes.io/batch-cpu": "1000", "kubernetes.io/batch-memory": "1Gi"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "tenant",
            "uid": f"uid-{name}",
            "resourceVersion": "12",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {keys.QOS_CLASS: qos_class, keys.PRIORITY: "100", "app": "x"},
            "annotations": notes,
            "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "x", "uid": "u", "controller": True}
            ],
        },
        "spec": {
            "nodeName": "node-a",
            "priority": 5000,
            "containers": [{"name": "main", "resources": {"requests": amounts, "limits": amounts}}],
            "initContainers": [
                {"name": "first", "restartPolicy": "Always", "resources": {"requests": {"cpu": "100m"}}}
            ],
            "overhead": {"cpu": "10m"},
            "tolerations": [{"key": "x", "operator": "Exists", "effect": "NoSchedule"}],
        },
        "status": {
            "phase": "Running",
            "qosClass": "Burstable",
            "containerStatuses": [{"name": "main", "containerID": "containerd://00ff", "state": {"running": {}}}],
        },
    }


SEEDS = [
    *(json.dumps(pod("evil", word, **{key: text})).encode() for key, text in NOTES.items() for word in ("LS",)),
    *(json.dumps(pod("evil", word, **NOTES)).encode() for word in ("LSE", "LSR", "BE", "SYSTEM", "")),
]
_DECODE = msgspec.json.Decoder(objects.PodObject).decode


def read(raw: bytes) -> str:
    """The object, the pod, what its annotations ask for, and which CPUs it gets."""
    try:
        wire = _DECODE(raw)
    except UNREADABLE:
        return "a problem of the watch; its last state stays"
    found = pod_reader.from_wire(wire, MACHINE)
    settings = SLO()
    said = [
        pod_overrides.cpu_burst(found, settings.cpu_burst)[1],
        pod_overrides.cpu_qos(found, qos.CPUQOS())[1],
        pod_overrides.memory_qos(found, qos.MemoryQOS())[1],
        pod_overrides.blkio_qos(found)[1],
        pod_overrides.wait_percent(found)[1],
        pod_overrides.objective(found)[1],
    ]
    try:
        pod_overrides.oom_score_adj(found, "main")
    except ValueError as error:
        said.append(pod_overrides.UnusableAnnotation("oom", "", type(error).__name__))
    eviction.priority(found), eviction.sub_priority(found, 0), eviction.largest_request(found, "cpu")
    (judged,) = assignments.judged(
        [found],
        before={},
        created={},
        pool=assignments.SharedPool(cpus=MACHINE, percent=50, shared_milli=1000),
    )
    assert len(judged.resource_status.cpuset) * 1000 <= max(judged.request_milli(), 0)
    assert len(judged.resource_status.cpuset) <= 4
    list(assignments.allocations([judged]))
    fields = sorted({problem.field for problem in found.problems})
    return f"{found.raw_qos} {found.kube_qos} {fields} {list(map(bool, said))} {judged.resource_status.why[:9]}"


SERVICES = [
    tinyprometheus.vector({("tenant", "web"): 41.5, ("tenant", "db"): "NaN", ("tenant", "x"): "+Inf"}),
    b'{"status":"error","errorType":"bad_data","error":"parse error"}',
    b'{"status":"success","data":{"resultType":"scalar","result":[1,"2"]}}',
]


def objective_values(raw: bytes) -> str:
    """The values of an answer about objectives: numbers from nothing to what stands for infinity."""
    try:
        found = objectives.values(raw)
    except ValueError as error:
        return str(error)[:12]
    assert all(0 <= value <= objectives.LARGEST_VALUE for value in found.values())
    return f"{min(len(found), 3)} values"


ENTRIES = [
    Entry(name="pods", seeds=SEEDS, run=read, weight=4),
    Entry(name="objectives", seeds=SERVICES, run=objective_values),
]
