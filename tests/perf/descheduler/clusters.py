"""Clusters of any size as `kubectl get -o json` would write them, the same for the same size.

    python tests/perf/descheduler/clusters.py --nodes 1000 --into DIR

Pods come from workloads of 5 to 100 replicas with owners, labels, several containers, volumes and statuses. One in five
workloads has affinity, one in five spread constraints; one node in twelve is tainted; one workload in three has a
PodDisruptionBudget. About one pod in fifty is misplaced in some way that one of the plugins finds.
"""

from __future__ import annotations

import argparse
import json
import math
import pathlib
import random
from collections.abc import Iterator
from typing import Any

PODS_A_NODE = 30
NAMESPACE_PODS = 500
ZONES = 3
NOW = "2026-01-31T12:00:00Z"
_OLD = "2025-10-01T08:00:00Z"
SIZES = (5, 10, 10, 20, 20, 50, 100)
"""Replicas of workloads."""
Object = dict[str, Any]


def write(folder: pathlib.Path, nodes: int) -> None:
    """One file a kind."""
    folder.mkdir(parents=True, exist_ok=True)
    chance = random.Random(nodes)
    write_list(folder / "nodes.json", "Node", (json.dumps(node(number)) for number in range(nodes)))
    write_list(folder / "topologies.json", "NodeResourceTopology", map(topology, range(nodes)))
    workloads = list(_workloads(nodes * PODS_A_NODE))
    write_list(folder / "pods.json", "Pod", _pods(workloads, nodes, chance))
    write_list(
        folder / "budgets.json", "PodDisruptionBudget", (json.dumps(_budget(w)) for w in workloads if w % 3 == 0)
    )
    namespaces = sorted({_namespace(workload) for workload in workloads})
    write_list(folder / "namespaces.json", "Namespace", (json.dumps(named(name)) for name in namespaces))


def write_list(path: pathlib.Path, kind: str, items: Iterator[str]) -> None:
    """A list of these objects, as an API server gives it."""
    with path.open("w", encoding="utf-8") as file:
        file.write(f'{{"apiVersion":"v1","kind":"{kind}List","metadata":{{"resourceVersion":"1"}},"items":[')
        for number, item in enumerate(items):
            file.write(f",{item}" if number else item)
        file.write("]}")


def _workloads(pods: int) -> Iterator[int]:
    """Numbers of workloads that have so many pods together."""
    left, number = pods, 0
    while left > 0:
        left -= replicas(number)
        yield number
        number += 1


def replicas(workload: int) -> int:
    """How many pods a workload has."""
    return SIZES[workload % len(SIZES)]


def _namespace(workload: int) -> str:
    return f"team-{workload * 31 // NAMESPACE_PODS}"


def named(name: str) -> Object:
    """A namespace."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"team": name}}}


def _node_name(number: int) -> str:
    return f"ip-10-{number >> 16 & 255}-{number >> 8 & 255}-{number & 255}.example.internal"


def node(number: int) -> Object:
    """A node of 32 CPUs."""
    amounts = {"cpu": "32", "memory": "131072Mi", "pods": "110", "ephemeral-storage": "200Gi"}
    name = _node_name(number)
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/arch": "amd64",
        "topology.kubernetes.io/zone": f"zone-{number % ZONES}",
        "topology.kubernetes.io/region": "region",
        "node.kubernetes.io/instance-type": f"size-{number % 4}",
        "pool": "batch" if number % 12 == 0 else "general",
    }
    taints = [{"key": "pool", "value": "batch", "effect": "NoSchedule"}] if number % 12 == 0 else []
    conditions = [
        {"type": kind, "status": "True" if kind == "Ready" else "False", "lastHeartbeatTime": NOW, "reason": "Kubelet"}
        for kind in ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
    ]
    images = [{"names": [f"registry.example/app{i}@sha256:{i:064x}"], "sizeBytes": 10**8 + i} for i in range(20)]
    meta = {"name": name, "uid": f"node-{number}", "labels": labels, "creationTimestamp": _OLD}
    meta["annotations"] = {"node.koordinator.sh/reservation": '{"reservedCPUs":"0-1"}'} if number % 10 == 0 else {}
    status = {"capacity": amounts, "allocatable": amounts, "conditions": conditions, "images": images}
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": {"taints": taints}, "status": status}


def topology(number: int) -> str:
    """What its agent reports."""
    rows = [{"id": i, "core": i // 2, "socket": i // 16, "node": i // 16} for i in range(32)]
    notes = {"node.koordinator.sh/cpu-topology": json.dumps({"detail": rows})}
    resources = [
        {"name": name, "capacity": amount, "allocatable": amount, "available": amount}
        for name, amount in (("cpu", "16"), ("memory", "64Gi"))
    ]
    zones = [{"name": f"node-{i}", "type": "Node", "resources": resources} for i in range(2)]
    meta = {"name": _node_name(number), "annotations": notes}
    kind = {"apiVersion": "topology.node.k8s.io/v1alpha1", "kind": "NodeResourceTopology"}
    return json.dumps({**kind, "metadata": meta, "topologyPolicies": ["None"], "zones": zones})


def _budget(workload: int) -> Object:
    meta = {"name": f"app-{workload}", "namespace": _namespace(workload)}
    spec = {"minAvailable": "80%", "selector": {"matchLabels": {"app": f"app-{workload}"}}}
    status = {"disruptionsAllowed": max(1, replicas(workload) // 5), "currentHealthy": replicas(workload)}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": meta, "spec": spec, "status": status}


def _pods(workloads: list[int], nodes: int, chance: random.Random) -> Iterator[str]:
    """Every pod of every workload, on nodes as a scheduler would choose them, but for a few."""
    left = nodes * PODS_A_NODE
    for workload in workloads:
        text = json.dumps(_template(workload), separators=(",", ":"))
        count = min(left, replicas(workload))
        left -= count
        first = chance.randrange(nodes)
        for number in range(count):
            node = _place(workload, number, first, nodes, chance)
            yield filled(text, workload, number, node, chance)


def _place(workload: int, number: int, first: int, nodes: int, chance: random.Random) -> int:
    """Evenly over zones and nodes; the last tenth of the nodes is nearly empty, and a few pods stand wrong."""
    odd = chance.random()
    if odd < 0.005:
        return first
    node = (first + number * _stride(nodes)) % nodes
    if node * 10 >= nodes * 9 and chance.random() < 0.9:
        node = chance.randrange(nodes * 9 // 10)
    while odd > 0.02 and _avoids(workload, node):
        node = chance.randrange(nodes * 9 // 10)
    return node


def _stride(nodes: int) -> int:
    """Goes around all nodes before it comes back, and changes the zone each time."""
    stride = nodes // 3 | 1
    while math.gcd(stride, nodes) > 1 or stride % ZONES == 0:
        stride += 2
    return stride


def _avoids(workload: int, node: int) -> bool:
    """The node is tainted, or not one that the workload's affinity asks for."""
    return node % 12 == 0 or (workload % 10 == 1 and node % 4 == 3)


def filled(text: str, workload: int, number: int, node: int, chance: random.Random) -> str:
    """The template with what differs between replicas."""
    odd = chance.random()
    restarts = "150" if odd < 0.004 else str(int(odd * 3))
    phase = "Failed" if 0.004 <= odd < 0.008 else "Running"
    started = _OLD if 0.008 <= odd < 0.014 else f"2026-01-{1 + int(odd * 29):02d}T{int(odd * 1e4) % 24:02d}:00:00Z"
    address = f"10.{node >> 8 & 255}.{node & 255}.{number & 255}"
    for mark, value in (
        ("@POD@", f"app-{workload}-7d4b9c{workload % 4096:03x}-{number:05d}"),
        ("@UID@", f"{workload:08x}-0000-4000-8000-{number:012x}"),
        ("@NODE@", _node_name(node)),
        ("@IP@", address),
        ("@TOKEN@", f"{workload * 131 + number:05x}"[-5:]),
        ('"@RESTARTS@"', restarts),
        ("@PHASE@", phase),
        ("@STARTED@", started),
    ):
        text = text.replace(mark, value)
    return text


def _template(workload: int) -> Object:
    app = f"app-{workload}"
    labels = {"app": app, "tier": f"tier-{workload % 5}", "pod-template-hash": f"7d4b9c{workload % 4096:03x}"}
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"{app}-7d4b9c", "uid": f"owner-{workload}"}
    meta = {
        "name": "@POD@",
        "generateName": f"{app}-7d4b9c-",
        "namespace": _namespace(workload),
        "uid": "@UID@",
        "labels": labels,
        "annotations": {
            "prometheus.io/scrape": "true",
            "prometheus.io/port": "8080",
            "checksum/config": "f" * 64,
            "cni.projectcalico.org/podIP": "@IP@/32",
        },
        "creationTimestamp": "@STARTED@",
        "resourceVersion": "1",
        "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec(workload), "status": status(workload)}


def spec(workload: int) -> Object:
    """spec of a workload's pods."""
    app = f"app-{workload}"
    wanted: Object = {
        "nodeName": "@NODE@",
        "serviceAccountName": app,
        "priority": 1000 * (workload % 3),
        "schedulerName": "default-scheduler",
        "restartPolicy": "Always",
        "dnsPolicy": "ClusterFirst",
        "tolerations": [
            {
                "key": "node.kubernetes.io/not-ready",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": 300,
            },
            {
                "key": "node.kubernetes.io/unreachable",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": 300,
            },
        ],
        "containers": [container(workload, name) for name in ("main", "proxy")],
        "volumes": [
            {"name": "kube-api-access-@TOKEN@", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}
        ],
    }
    if workload % 10 == 1:
        line = {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["size-0", "size-1", "size-2"]}
        required = {"nodeSelectorTerms": [{"matchExpressions": [line]}]}
        wanted["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    if workload % 10 == 2:
        term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "kubernetes.io/hostname"}
        wanted["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    if workload % 5 == 3:
        spread = {"maxSkew": 2, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}
        wanted["topologySpreadConstraints"] = [{**spread, "labelSelector": {"matchLabels": {"app": app}}}]
    return wanted


def container(workload: int, name: str) -> Object:
    """One container of them."""
    probe = {
        "httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"},
        "periodSeconds": 10,
        "failureThreshold": 3,
    }
    cpu, memory = f"{(100, 250, 500, 1000)[workload % 4]}m", f"{(256, 512, 1024, 2048)[workload % 4]}Mi"
    amounts = {"cpu": cpu, "memory": memory} if name == "main" else {"cpu": "50m", "memory": "64Mi"}
    return {
        "name": name,
        "image": f"registry.example/team/app{workload % 200}:v{workload % 7}",
        "imagePullPolicy": "IfNotPresent",
        "args": [f"--option-{i}=value" for i in range(8)],
        "env": [{"name": f"SETTING_{i}", "value": f"value-{i}-{workload}"} for i in range(12)],
        "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
        "resources": {"requests": amounts, "limits": {"memory": amounts["memory"]}},
        "livenessProbe": probe,
        "readinessProbe": probe,
        "volumeMounts": [{"name": "kube-api-access-@TOKEN@", "mountPath": "/var/run/secrets", "readOnly": True}],
        "terminationMessagePath": "/dev/termination-log",
    }


def status(workload: int) -> Object:
    """status of a workload's pods."""
    conditions = [
        {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": "@STARTED@"}
        for kind in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
    ]
    states = [
        {
            "name": name,
            "containerID": f"containerd://@UID@{name}",
            "image": f"registry.example/team/app{workload % 200}:v{workload % 7}",
            "imageID": f"registry.example/team/app@sha256:{workload:064x}",
            "ready": True,
            "restartCount": "@RESTARTS@",
            "state": {"running": {"startedAt": "@STARTED@"}},
            "lastState": {},
        }
        for name in ("main", "proxy")
    ]
    where = {"hostIP": "10.0.0.1", "podIP": "@IP@", "podIPs": [{"ip": "@IP@"}], "qosClass": "Burstable"}
    return {
        "phase": "@PHASE@",
        "startTime": "@STARTED@",
        "conditions": conditions,
        "containerStatuses": states,
        **where,
    }


def main() -> None:
    """Write one cluster."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--into", type=pathlib.Path, required=True)
    args = parser.parse_args()
    write(args.into, args.nodes)


if __name__ == "__main__":
    main()
