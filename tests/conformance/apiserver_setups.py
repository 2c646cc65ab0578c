"""Objects that recordings list by name only: which they must have been, read off the answers to their selectors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

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
        yield _pod("b1", {"app": "b"}, node="worker-1", phase="Pending")
        yield _pod("b2", {}, node="", phase="Pending")
        yield _pod("a1", {"app": "a", "tier": "x"}, node="worker-1", phase="Running")
        yield _pod("a2", {"app": "a"}, node="worker-2", phase="Failed")
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


def _pod(name: str, labels: dict[str, str], *, node: str, phase: str) -> Any:
    spec: dict[str, Any] = {
        "containers": [{"name": "main", "image": "localhost/busybox:1", "imagePullPolicy": "Never"}]
    }
    spec |= {"nodeName": node} if node else {"schedulerName": "none"}
    meta = {"name": name, "namespace": _SELECTED} | ({"labels": labels} if labels else {})
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": {"phase": phase}}
