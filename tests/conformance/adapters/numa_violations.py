"""Who breaks which NUMA promise, and who is on reserved CPUs: the two plugins, through the product's reader."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from descheduler.framework import Finding, PodView, View, judgeable
from descheduler.plugins import numa_alignment, reserved_cpus
from koordlite.model import keys, nrt
from koordlite.model.cpuset import EMPTY, CPUSet
from tests.conformance.adapters import adapter
from tests.conformance.descheduler_view import NOW, picture
from tests.support.handles import said

NODE, POD = "node", "pod"
SOURCES = {
    "kubelet-state": "kubelet",
    "kubelet": "kubelet",
    "koord-resource-status": "koordinator",
    "koord-system-qos": "koordinator",
    "crane-topology-result": "crane",
}


@adapter("numa.violation")
def violations(given: Any, expect: Any) -> tuple[Any, Any]:
    view = _view(given)
    (pod,) = (pod for node in view.nodes.values() for pod in node.all_pods)
    found = [_violation(finding) for finding in _findings(view, given.get("config") or {})]
    answer = {"violations": found, "evictable": any(f["severity"] == "hard" for f in found), **_terminal(pod)}
    return answer, expect


def _terminal(pod: PodView) -> dict[str, str]:
    return {} if judgeable(pod) else {"reason": "terminal"}


def _findings(view: View, config: Any) -> Iterator[Finding]:
    options = dict(_threshold(key, value) for key, value in config.items() if key.startswith("remoteMemory"))
    for answer in (*said(numa_alignment, view, **options), *said(reserved_cpus, view)):
        if isinstance(answer, Finding) and answer.reason != "OvercommittedBesideReserve":
            yield answer


def _threshold(key: str, value: float) -> tuple[str, float]:
    """A ratio, or an amount in MiB where the key says so, else in bytes."""
    if key.endswith("Ratio"):
        return "remote_memory_ratio", value
    return "remote_memory_mib", int(value if "MiB" in key else value // 2**20)


def _violation(finding: Finding) -> dict[str, Any]:
    return {
        "container": finding.container,
        "code": finding.reason,
        "severity": finding.severity,
        "detail": _DETAILS[finding.reason](finding.evidence),
    }


def _nodes(evidence: Any) -> list[int]:
    return list(CPUSet.parse(evidence["nodes"]))


_DETAILS: dict[str, Any] = {
    "CPUOutsideAssignment": lambda e: e["cpus"],
    "CPUSpansNUMA": _nodes,
    "CPUWrongNUMA": _nodes,
    "RemoteMemory": lambda e: e["remoteRatio"],
    "MemsSpanNUMA": _nodes,
    "DeviceRemote": lambda e: e["devices"].split(","),
    "PodSpansNUMA": _nodes,
    "PolicyMismatch": lambda e: {"pod": e["pod"], "node": e["node"]},
    "UsesReservedCPU": lambda e: {"owner": e["owner"], "cpus": e["cpus"]},
}


def _view(given: Any) -> View:
    node, pod = given["node"], given["pod"]
    crane = {
        "kind": "NodeResourceTopology",
        "apiVersion": "topology.crane.io/v1alpha1",
        "metadata": {"name": NODE},
        "attributes": {"go.crane.io/reserved-system-cpus": node.get("craneReservedSystemCPUs", "")},
    }
    report = {"metadata": {"name": NODE, "annotations": _notes(node, pod)}, "attributes": _attributes(node)}
    return picture({"nodes": [_node(node)], "pods": [_pod(pod)], "topologies": [report, crane]})


def _node(node: Any) -> Any:
    written: dict[str, Any] = {}
    if "koordReservedCPUs" in node:
        written["reservedCPUs"] = node["koordReservedCPUs"]
    if reserved_count(node):
        written["resources"] = {"cpu": reserved_count(node)}
    notes = {keys.RESERVATION: json.dumps(written)} if written else {}
    return {"metadata": {"name": NODE, "annotations": notes}, "spec": {}, "status": {}}


def reserved_count(node: Any) -> str:
    """The quantity that is reserved, under whatever key that begins so; empty when there is none."""
    named = (value for key, value in node.items() if key.startswith("koordReserved") and key != "koordReservedCPUs")
    value = next(named, "")
    return str(value.get("cpu", "") if isinstance(value, dict) else value)


def _attributes(node: Any) -> Any:
    names = ("topologyManagerPolicy", "topologyManagerScope")
    return [{"name": name, "value": node["kubelet"][name]} for name in names if name in node.get("kubelet", {})]


def _notes(node: Any, pod: Any) -> dict[str, str]:
    kubelet = node.get("kubelet") or {}
    names = ("id", "core", "socket", "node")
    rows = [dict(zip(names, row[:4], strict=True)) for row in node.get("topology") or ()]
    manager = nrt.CPUManagerPolicy(
        policy=kubelet.get("cpuManagerPolicy", ""),
        options=_options(kubelet),
        reserved_cpus=CPUSet.parse(kubelet.get("reservedSystemCPUs", "")) or EMPTY,
    )
    containers = tuple(_placement(container) for container in pod["containers"])
    placement = nrt.Placement(observed_at=NOW, generation=1, containers=containers)
    return {
        keys.CPU_TOPOLOGY: json.dumps({"detail": rows}),
        keys.CPU_MANAGER_POLICY: nrt.encode_cpu_manager_policy(manager),
        keys.PLACEMENT: nrt.encode(placement),
    }


def _options(kubelet: Any) -> dict[str, str]:
    """Strict reservation, as an option of the CPU manager or as a switch of its own."""
    given = kubelet.get("cpuManagerPolicyOptions") or kubelet.get("options") or {}
    if not isinstance(given, dict):
        given = {text.partition("=")[0]: text.partition("=")[2] or "true" for text in given}
    written = {**kubelet, **given}
    strict = [str(value).lower() for key, value in written.items() if key.lower().startswith("strict")]
    return {"strict-cpu-reservation": strict[0]} if strict else {}


def _placement(container: Any) -> nrt.ContainerPlacement:
    promise, actual = container.get("promise") or {}, container.get("actual") or {}
    return nrt.ContainerPlacement(
        namespace="default",
        pod=POD,
        uid=POD,
        container=container["name"],
        source=SOURCES.get(promise.get("source", ""), "none"),
        exclusive=promise.get("exclusive", False),
        single_numa=promise.get("singleNUMA", False),
        scope=promise.get("scope", "container"),
        promised_cpus=CPUSet.parse(promise.get("cpuset", "")),
        promised_nodes=tuple(promise.get("numa") or ()),
        cpuset=CPUSet.parse(actual.get("cpuset", "")),
        mems=CPUSet.parse(actual.get("mems", "")),
        memory_by_numa={int(node): used for node, used in (actual.get("memoryByNUMA") or {}).items()},
        devices=tuple(nrt.Device(id=d["id"], numa=d["numa"]) for d in actual.get("devices") or ()),
        fix_failed=actual.get("fixFailed", False),
    )


def _pod(pod: Any) -> Any:
    labels = {keys.QOS_CLASS: pod["koordQoS"]} if pod.get("koordQoS") else {}
    meta = {"name": POD, "namespace": "default", "uid": POD, "labels": labels, "annotations": pod["annotations"]}
    if pod.get("deletionTimestamp"):
        meta["deletionTimestamp"] = pod["deletionTimestamp"]
    spec = {"nodeName": NODE, "containers": [{"name": c["name"]} for c in pod["containers"]]}
    return {"metadata": meta, "spec": spec, "status": {"phase": pod["phase"], "qosClass": pod["qos"]}}
