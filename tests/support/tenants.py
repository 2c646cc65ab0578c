"""Pods as a tenant writes them: any label, any annotation, in a namespace of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import cyaml
from emulated import Emulated

from koordlite.model.decision import Decision
from koordlite.report.tick import Tick

QOS = "koordinator.sh/qosClass"


def create(
    node: Emulated,
    name: str,
    qos: str = "",
    *,
    namespace: str = "tenant",
    annotations: Mapping[str, str] | None = None,
    requests: Mapping[str, str] | None = None,
    limits: Mapping[str, str] | None = None,
    cpu: str = "100m",
    memory: str = "",
    **labels: str,
) -> None:
    """A running pod with one container; `cpu` and `memory` are what it uses."""
    notes = {"sandbox.koordlite.io/cpu": cpu, **(annotations or {})}
    notes |= {"sandbox.koordlite.io/memory": memory} if memory else {}
    resources = {"requests": dict(requests or {}), "limits": dict(limits or {})}
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{namespace}-{name}",
            "labels": {**({QOS: qos} if qos else {}), **labels},
            "annotations": notes,
        },
        "spec": {"nodeName": "node-a", "containers": [{"name": "main", "resources": resources}]},
        "status": {"phase": "Running"},
    }
    (node.folder / f"{namespace}-{name}.yaml").write_text(cyaml.safe_dump(pod))


def about(tick: Tick, strategy: str, pod: str) -> list[Decision]:
    """What a strategy said about the pod `namespace/name`."""
    return [d for d in tick.decisions if d.strategy == strategy and d.subject == f"pod/{pod}"]
