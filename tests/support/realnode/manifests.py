"""A folder of manifests as the cluster of one node, edited while the agent reads it."""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

from realnode.pods import RUNTIME, Pod
from realnode.tree import parse_list

NODE = "testnode"
RESERVATION = "node.koordinator.sh/reservation"
Document = Mapping[str, Any]


class Manifests:
    """Each object is a file; JSON is YAML too. Files are replaced whole, as an editor or a ConfigMap mount does."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def node(self, *, reservation: object | None = None) -> None:
        """The Node with this machine's size; `reservation` is an object, or text to write as it is."""
        cpus = len(os.sched_getaffinity(0))
        amounts = {"cpu": str(cpus), "memory": f"{_memory_kib()}Ki", "pods": "110"}
        notes = {} if reservation is None else {RESERVATION: _text(reservation)}
        metadata = {"name": NODE, "annotations": notes}
        status = {"capacity": amounts, "allocatable": amounts}
        self._write("node.yaml", {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status})

    def config(self, **documents: object) -> None:
        """The ConfigMap: `threshold`, `qos`, `burst` and `colocation` are its documents, as objects or text."""
        names = {
            "threshold": "resource-threshold-config",
            "qos": "resource-qos-config",
            "burst": "cpu-burst-config",
            "colocation": "colocation-config",
        }
        self._write(
            "config.yaml",
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "slo-controller-config", "namespace": "koordinator-system"},
                "data": {names[word]: _text(document) for word, document in documents.items()},
            },
        )

    def pod(self, pod: Pod, *, named: bool = True) -> None:
        """A running pod; unless `named`, its status has no ids of containers yet."""
        notes = dict(pod.notes)
        if pod.crane:
            zones = [{"name": f"node{n}", "type": "Node", "resources": {"capacity": {"cpu": c}}} for n, c in pod.crane]
            notes["topology.crane.io/topology-result"] = json.dumps(zones)
        if pod.pinned:
            notes["scheduling.koordinator.sh/resource-status"] = json.dumps({"cpuset": pod.pinned})
        metadata = {
            "name": pod.name,
            "namespace": "default",
            "uid": pod.uid,
            "labels": {"koordinator.sh/qosClass": pod.koord_qos, **dict(pod.labels)},
            "annotations": notes,
        }
        whole = len(parse_list(pod.pinned)) or sum(count for _, count in pod.crane)
        cpu = str(whole) if whole else "100m"
        asked = {"cpu": cpu, "memory": "16Mi"}
        amounts = {"requests": asked} if pod.kube_qos != "BestEffort" else {}
        amounts |= {"limits": asked} if whole else {}
        if pod.batch:
            cpu_memory = zip(("kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"), pod.batch, strict=True)
            batch = {name: str(value) for name, value in cpu_memory}
            amounts = {"requests": batch, "limits": batch}
        containers = [{"name": name, "image": "test", "resources": amounts} for name in pod.containers]
        statuses = [
            {"name": name, "containerID": f"{RUNTIME}://{pod.container_id(name)}", "state": {"running": {}}}
            for name in pod.containers
        ]
        status = {"phase": "Running", "qosClass": pod.kube_qos, "containerStatuses": statuses if named else []}
        spec = {"nodeName": NODE, "containers": containers}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}
        self._write(f"pod-{pod.name}.yaml", body)

    def cpu_manager(self, default: str, **exclusive: Mapping[str, str]) -> None:
        """Kubelet's checkpoint under the static policy: its default set, and the sets of containers by pod uid."""
        self._write("cpu_manager_state", {"policyName": "static", "defaultCpuSet": default, "entries": exclusive})

    def kubelet(self, **settings: object) -> None:
        """Kubelet's configuration."""
        head = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}
        self._write("kubelet.yaml", {**head, **settings})

    def remove(self, pod: Pod) -> None:
        """The pod is deleted."""
        (self.folder / f"pod-{pod.name}.yaml").unlink()

    def _write(self, name: str, body: Document) -> None:
        aside = self.folder / f".{name}.new"
        aside.write_text(json.dumps(body, indent=1))
        aside.replace(self.folder / name)


def threshold(policy: str = "cpuset", *, percent: int = 65, enable: bool = True) -> Document:
    """The document resource-threshold-config with one strategy for all nodes."""
    strategy = {"enable": enable, "cpuSuppressPolicy": policy, "cpuSuppressThresholdPercent": percent}
    return {"clusterStrategy": strategy}


def _text(document: object) -> str:
    return document if isinstance(document, str) else json.dumps(document)


def _memory_kib() -> int:
    return int(pathlib.Path("/proc/meminfo").read_text().split()[1])
