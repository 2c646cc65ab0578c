"""Objects of which recordings say little: names, titles and notes; what they must have been, by the answers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from apiserver.requests import Target

_SELECTED = "rec-sel"
_DEMO = {
    "be-batch": "Running",
    "crash": "Running",
    "done": "Succeeded",
    "gu-frac": "Running",
    "gu-lsr": "Running",
    "ls-burst": "Running",
}


def of(recording: list[Any]) -> Iterator[Any]:
    """The objects of a recording's unrecorded set-up, oldest first."""
    if any(f"/namespaces/{_SELECTED}/" in each["request"]["path"] for each in recording):
        yield _selected("b1", {"app": "b"}, node="worker-1", phase="Pending")
        yield _selected("b2", {}, node="", phase="Pending")
        yield _selected("a1", {"app": "a", "tier": "x"}, node="worker-1", phase="Running")
        yield _selected("a2", {"app": "a"}, node="worker-2", phase="Failed")
    if any("/namespaces/koord-demo/" in each["request"]["path"] for each in recording):
        for name, phase in _DEMO.items():
            yield _demo(name, phase)


def later(interaction: Any) -> Iterator[Any]:
    """Objects made between the interactions, just before this one."""
    if "labelSelector=rec%3Dsel" in interaction["request"]["path"]:
        for name in ("sel-n1", "sel-n2"):
            yield {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"rec": "sel"}}}


def _demo(name: str, phase: str) -> Any:
    labels = {"app": name} | ({"grp": "pdb"} if name == "be-batch" else {})
    meta = {"name": name, "namespace": "koord-demo", "labels": labels}
    spec = {"nodeName": "node-a", "containers": [{"name": "main", "image": "localhost/busybox:1"}]}
    status = {"phase": phase, "conditions": [{"type": "Ready", "status": "True"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": status}


def _selected(name: str, labels: dict[str, str], *, node: str, phase: str) -> Any:
    spec: dict[str, Any] = {
        "containers": [{"name": "main", "image": "localhost/busybox:1", "imagePullPolicy": "Never"}]
    }
    spec |= {"nodeName": node} if node else {"schedulerName": "none"}
    meta = {"name": name, "namespace": _SELECTED} | ({"labels": labels} if labels else {})
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": {"phase": phase}}


def budgets(interaction: Any, at: Target) -> Iterator[Any]:
    """Budgets that notes describe: `set up unrecorded: two PDBs {minAvailable:2, ...}`."""
    note = interaction["note"]
    if "set up unrecorded" not in note:
        return
    label = re.search(r"app=(\w+)|app In \((\w+)\)", note)
    labels = {"app": label[1] or label[2]} if label else {}
    selector: dict[str, Any] | None = {"matchLabels": labels} if labels else {}
    if "without selector" in note:
        selector = None
    allowed = re.search(r"disruptionsAllowed (\d+)", note)
    counts = {"observedGeneration": 1, "disruptionsAllowed": int(allowed[1]) if allowed else 0}
    counts |= {"currentHealthy": 3, "desiredHealthy": 2, "expectedPods": 3}
    limit: dict[str, Any] = {"maxUnavailable": "50%"} if "maxUnavailable" in note else {"minAvailable": 1}
    spec = limit | ({} if selector is None else {"selector": selector})
    names = ["pdb-b1", "pdb-b2"] if "two PDBs" in note else ["pdb-empty" if selector == {} else f"pdb-{at.name}"]
    for name in names:
        meta = {"name": name, "namespace": at.namespace, "generation": 1}
        yield {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": meta,
            "spec": spec,
            "status": counts,
        }


def pod(at: Target, title: str) -> Any:
    """A pod that only an eviction names: its title says in which state, its name which application it is of."""
    phase = next((word for word in ("Pending", "Succeeded", "Failed") if word in title), "Running")
    application = re.match(r"[a-z]+", at.name)
    ready = "False" if "not Ready" in title else "True"
    status = {"phase": phase, "conditions": [{"type": "Ready", "status": ready}] if phase == "Running" else []}
    labels = {"app": application[0]} if application and "without labels" not in title else {}
    meta = {"name": at.name, "namespace": at.namespace, "labels": labels}
    spec = {"nodeName": "worker-1", "containers": [{"name": "main", "image": "i"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": status}
