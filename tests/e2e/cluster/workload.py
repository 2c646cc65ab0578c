"""Pods for scenarios, and a controller that replaces those that kubelet refused."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Mapping
from typing import Any

from koordlite.kube.client.access import Api
from koordlite.model.wire import objects

NAMESPACE = "default"
RESERVATIONS = "/apis/scheduling.koordinator.sh/v1alpha1/reservations"
MIXED = (
    *([(("1", "1Gi"),)] * 4),
    *([(("2", "2Gi"),)] * 6),
    *([(("4", "4Gi"),)] * 6),
    *([(("6", "6Gi"),)] * 4),
    *([(("8", "12Gi"),)] * 3),
    (("12", "8Gi"),),
    *([(("2", "2Gi"), ("2", "8Gi"))] * 2),
)
"""CPU and memory by container, as often as they come."""


class Replicas:
    """A ReplicaSet, and its controller: a listener of `Nodes` that makes a pod for each that is gone."""

    def __init__(self, api: Api, name: str, count: int, cpu: str, *, scheduler: str, node: str) -> None:
        """`node`: where the first pods are."""
        self._api, self._cpu, self._scheduler, self.name, self.count = api, cpu, scheduler, name, count
        self._numbers = itertools.count(1)
        selector = {"matchLabels": {"app": name}}
        spec = {"replicas": count, "selector": selector, "template": {"metadata": {"labels": {"app": name}}}}
        spec["template"]["spec"] = {"containers": [{"name": "c", "image": "x"}]}  # type: ignore[index]
        made = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": name}, "spec": spec}
        answer = json.loads(self._api.request("POST", "/apis/apps/v1/namespaces/default/replicasets", body=made).body)
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": answer["metadata"]["uid"]}
        self._owner = owner | {"controller": True}
        for _ in range(count):
            self._make(node)

    def owns(self, pod: objects.PodObject) -> bool:
        """Tell whether it is one of these."""
        return (pod.metadata.labels or {}).get("app") == self.name and pod.metadata.name.startswith(self.name)

    def __call__(self, pod: objects.PodObject | None, key: str) -> None:
        """Make another one for one that was deleted."""
        if pod is None and key.startswith(f"{NAMESPACE}/{self.name}-"):
            self._make("")

    def _make(self, node: str) -> None:
        amounts = {"cpu": self._cpu, "memory": "1Gi"}
        container = {"name": "c", "image": "x", "resources": {"requests": amounts, "limits": amounts}}
        spec = {"schedulerName": self._scheduler, "containers": [container], "terminationGracePeriodSeconds": 1}
        meta = {"name": f"{self.name}-{next(self._numbers)}", "labels": {"app": self.name}}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": meta | {"ownerReferences": [self._owner]}}
        body["spec"] = spec | ({"nodeName": node} if node else {})
        self._api.request("POST", f"/api/v1/namespaces/{NAMESPACE}/pods", body=body)


class Pods:
    """Creates pods; as a listener of `Nodes` it replaces each that failed, as a ReplicaSet does."""

    def __init__(self, api: Api, scheduler: str, *, seed: int = 1) -> None:
        self._api, self._scheduler, self._chance = api, scheduler, random.Random(seed)
        self._numbers = itertools.count(1)
        self._made: dict[str, dict[str, Any]] = {}
        self._replaced: set[str] = set()
        self.replaces = True

    def burst(self, count: int) -> None:
        """That many Guaranteed pods of mixed sizes at once."""
        for _ in range(count):
            self.create(*self._chance.choice(MIXED))

    def create(self, *containers: tuple[str, str], name: str = "", **given: Any) -> str:
        """One Guaranteed pod; its name. `labels`, `priority`, `annotations`, `requests` (of the first container),
        `node`, where it is bound."""
        name = name or f"pod-{next(self._numbers)}"
        parts = []
        for place, (cpu, memory) in enumerate(containers):
            amounts = {"cpu": cpu, "memory": memory, **(given.get("requests", {}) if not place else {})}
            resources = {"requests": amounts, "limits": amounts}
            parts.append({"name": f"c{place}", "image": "x", "resources": resources})
        spec: dict[str, Any] = {
            "schedulerName": self._scheduler,
            "containers": parts,
            "terminationGracePeriodSeconds": 1,
        }
        if given.get("priority"):
            spec["priorityClassName"] = given["priority"]
        if given.get("node"):
            spec["nodeName"] = given["node"]
        meta = {"name": name, "labels": given.get("labels") or {}, "annotations": given.get("annotations") or {}}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
        self._made[name] = pod
        self._api.request("POST", f"/api/v1/namespaces/{NAMESPACE}/pods", body=pod)
        return name

    def delete(self, name: str) -> None:
        """Delete one; its kubelet ends it."""
        self._api.request("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods/{name}")

    def reserve(self, name: str, cpu: str) -> None:
        """A Reservation for pods with the label app=NAME."""
        amounts = {"cpu": cpu, "memory": "1Gi"}
        container = {"name": "c", "image": "x", "resources": {"requests": amounts, "limits": amounts}}
        spec = {"schedulerName": self._scheduler, "containers": [container]}
        template = {"metadata": {"namespace": NAMESPACE}, "spec": spec}
        owners = [{"labelSelector": {"matchLabels": {"app": name}}}]
        made = {"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "Reservation", "metadata": {"name": name}}
        self._api.request("POST", RESERVATIONS, body={**made, "spec": {"owners": owners, "template": template}})

    def phase(self, reservation: str) -> str:
        """How far the Reservation is."""
        found = json.loads(self._api.request("GET", f"{RESERVATIONS}/{reservation}").body)
        return str(found.get("status", {}).get("phase", ""))

    def phases(self) -> list[str]:
        """How far all of them are."""
        found = json.loads(self._api.request("GET", RESERVATIONS).body)["items"]
        return [str(each.get("status", {}).get("phase", "")) for each in found]

    def __call__(self, pod: objects.PodObject | None, key: str) -> None:
        """Replace a pod that failed."""
        if pod is None or not self.replaces or pod.status.phase != "Failed" or pod.metadata.uid in self._replaced:
            return
        made = self._made.get(pod.metadata.name)
        if made is None:
            return
        self._replaced.add(pod.metadata.uid)
        name = f"pod-{next(self._numbers)}"
        again = {**made, "metadata": {**made["metadata"], "name": name}}
        self._made[name] = again
        self._api.request("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods/{pod.metadata.name}", body=_AT_ONCE)
        self._api.request("POST", f"/api/v1/namespaces/{NAMESPACE}/pods", body=again)


_AT_ONCE: Mapping[str, Any] = {"gracePeriodSeconds": 0}


def priority_class(api: Api, name: str, value: int) -> None:
    """A PriorityClass."""
    head = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
    api.request("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", body={**head, "value": value})
