"""EvictionRequests for servers before Kubernetes 1.37: the kinds as CRDs, a stand-in for their controller and for a
responder, and a descheduler that is started anew for each cycle."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
from apibench import until

from descheduler.cycle import planner
from descheduler.evictors.executor import PlanExecutor
from descheduler.evictors.migration import Progress
from descheduler.plan import Attempt, EvictionPlan
from descheduler.policy import reader
from descheduler.snapshot import assemble, cluster
from koordlite.kube.client.access import Api, ApiError
from koordlite.model import times

ROOT = "/apis/lifecycle.k8s.io/v1alpha1"
RESPONDER = "example.com/handover"
MERGE = "application/merge-patch+json"
Object = dict[str, Any]
_ANY = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_TARGET = {
    "type": "object",
    "required": ["pod"],
    "properties": {
        "pod": {
            "type": "object",
            "required": ["name", "uid"],
            "properties": {"name": {"type": "string"}, "uid": {"type": "string"}},
        }
    },
}
_REQUEST = {
    "type": "object",
    "required": ["target", "requester", "intent"],
    "properties": {
        "target": _TARGET,
        "requester": {"type": "string", "pattern": "^[a-z0-9.-]+/[A-Za-z0-9._-]+$"},
        "intent": {"type": "string", "enum": ["Eviction", "Withdrawn"]},
    },
}
_EVICTION = {"type": "object", "required": ["target"], "properties": {"target": _TARGET}}


def define(api: Api) -> None:
    """Have the server serve both kinds."""
    for kind, spec in (("EvictionRequest", _REQUEST), ("Eviction", _EVICTION)):
        plural = f"{kind.lower()}s"
        schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": _ANY}}}
        version = {
            "name": "v1alpha1",
            "served": True,
            "storage": True,
            "schema": schema,
            "subresources": {"status": {}},
        }
        names = {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()}
        body = {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {
                "name": f"{plural}.lifecycle.k8s.io",
                "annotations": {"api-approved.kubernetes.io": "unapproved, test only"},
            },
            "spec": {"group": "lifecycle.k8s.io", "scope": "Namespaced", "names": names, "versions": [version]},
        }
        api.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body=body)
        until(lambda plural=plural: _served(api, plural))


def _served(api: Api, plural: str) -> bool:
    try:
        api.request("GET", f"{ROOT}/{plural}")
    except ApiError:
        return False
    return True


def listed(api: Api, plural: str) -> list[Object]:
    """All objects of a kind."""
    return json.loads(api.request("GET", f"{ROOT}/{plural}").body)["items"]


class Controller:
    """An Eviction for each request that is not withdrawn, with one responder, which says what the test says."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def work(self, message: str = "") -> None:
        """One round."""
        wanted = {
            item["spec"]["target"]["pod"]["uid"]: item
            for item in listed(self._api, "evictionrequests")
            if item["spec"]["intent"] == "Eviction"
        }
        present = {item["metadata"]["name"]: item for item in listed(self._api, "evictions")}
        for uid, item in present.items():
            if uid not in wanted:
                self._api.request("DELETE", self._path(item, "evictions"))
        for uid, item in wanted.items():
            body = {
                "apiVersion": "lifecycle.k8s.io/v1alpha1",
                "kind": "Eviction",
                "metadata": {"name": uid, "namespace": item["metadata"]["namespace"]},
                "spec": {"target": item["spec"]["target"]},
            }
            if uid not in present:
                where = f"{ROOT}/namespaces/{item['metadata']['namespace']}/evictions"
                self._api.request("POST", where, body=body)
            status = {
                "targetResponders": [{"name": RESPONDER, "priority": 500, "state": "Active"}],
                "responders": [{"name": RESPONDER, "message": message}],
            }
            self._write(body, "evictions", status)

    def fail(self, message: str) -> None:
        """No responder has evicted any of the pods."""
        for item in listed(self._api, "evictionrequests"):
            failed = {"type": "Failed", "status": "True", "reason": "NoResponderSucceeded", "message": message}
            self._write(item, "evictionrequests", {"conditions": [failed]})

    def _write(self, item: Object, plural: str, status: Object) -> None:
        path = f"{self._path(item, plural)}/status"
        self._api.request("PATCH", path, body={"status": status}, content_type=MERGE)

    def _path(self, item: Object, plural: str) -> str:
        return f"{ROOT}/namespaces/{item['metadata']['namespace']}/{plural}/{item['metadata']['name']}"


class Descheduler:
    """A process that is started for each cycle, and remembers nothing."""

    def __init__(self, api: Api, policy: str, now: Callable[[], float]) -> None:
        self.api, self.policy, self._now = api, policy, now
        self.progress: list[Progress] = []

    def plan(self) -> tuple[PlanExecutor, EvictionPlan]:
        """The plan for the cluster as it is, and what carries it out."""
        setup = reader.setup(reader.parse(self.policy, "policy"))
        view = msgspec.structs.replace(assemble.view(cluster.read(self.api)), time=times.show(self._now()))
        executor = PlanExecutor(
            self.api, lambda _seconds: True, wall=self._now, tell=self.progress.append, rules=setup.migration
        )
        return executor, planner.plan(view, setup, background=executor.requests(setup, view))

    def cycle(self) -> dict[str, str]:
        """Results of the attempts, and reasons for which pods are kept, by name."""
        executor, plan = self.plan()
        attempts: tuple[Attempt, ...] = executor(plan)
        kept = {outcome.pod.pod.name: outcome.reasons[0].reason for outcome in plan.kept}
        return kept | {attempt.pod.partition("/")[2]: attempt.result for attempt in attempts}
