"""Workloads of pods: how many replicas are wanted, and which pods they are.

Source: Koordinator's controller finder. A ReplicaSet of a Deployment counts as the Deployment.
"""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import msgspec

from descheduler.evictors.migration_api import Api
from descheduler.framework import PodView
from descheduler.migration import objects
from descheduler.migration.filters import Workload
from koordlite.kube.client.answers import ApiError
from koordlite.model.wire import objects as wire

Find = Callable[[PodView], Workload | None]
"""The workload of a pod; None for a bare pod, and when it is unknown how many pods it wants."""


class _Spec(msgspec.Struct, frozen=True):
    replicas: int | None = None
    selector: dict[str, Any] | None = None


class _Controller(msgspec.Struct, frozen=True):
    metadata: wire.ObjectMeta = wire.ObjectMeta()
    spec: _Spec = _Spec()


class _Resource(msgspec.Struct, frozen=True):
    name: str = ""
    kind: str = ""


class _Resources(msgspec.Struct, frozen=True):
    resources: tuple[_Resource, ...] = ()


class Finder(msgspec.Struct):
    """Asks an API server about workloads, each once. Make one a round: what it knows does not get younger."""

    api: Api
    known: dict[str, Workload | None] = msgspec.field(default_factory=dict)
    plurals: dict[str, dict[str, str]] = msgspec.field(default_factory=dict)
    """Names of kinds in paths, by API version and kind."""

    def __call__(self, pod: PodView) -> Workload | None:
        """The workload of a pod. ApiError and ApiUnreachable when the server does not say."""
        owner = objects.controller(pod)
        if owner is None:
            return None
        if owner.uid not in self.known:
            self.known[owner.uid] = self._find(pod.pod.namespace, owner)
        return self.known[owner.uid]

    def _find(self, namespace: str, owner: wire.OwnerReference) -> Workload | None:
        found = self._controller(namespace, owner)
        above = _above(found) if found is not None else None
        if above is not None:
            found = self._controller(namespace, above)
        if found is None or found.spec.replicas is None:
            return None
        uids = {found.metadata.uid}
        if above is not None:
            uids = {one.uid for one in self._sets(namespace, found)}
        return Workload(found.spec.replicas, self._pods(namespace, found, uids))

    def _controller(self, namespace: str, owner: wire.OwnerReference) -> _Controller | None:
        """The owner itself; None when another one has its name by now, or it is gone."""
        plural = self._plural(owner.api_version, owner.kind)
        if not plural:
            return None
        try:
            answer = self.api.request("GET", f"{_root(owner.api_version)}/namespaces/{namespace}/{plural}/{owner.name}")
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            raise
        found = msgspec.json.decode(answer.body, type=_Controller)
        return found if found.metadata.uid == owner.uid else None

    def _plural(self, api_version: str, kind: str) -> str:
        """Name of the kind in paths; empty when the server does not serve it."""
        if api_version not in self.plurals:
            try:
                answer = self.api.request("GET", _root(api_version))
            except ApiError as error:
                if error.status != HTTPStatus.NOT_FOUND:
                    raise
                return ""
            served = msgspec.json.decode(answer.body, type=_Resources).resources
            self.plurals[api_version] = {one.kind: one.name for one in served if "/" not in one.name}
        return self.plurals[api_version].get(kind, "")

    def _sets(self, namespace: str, deployment: _Controller) -> list[wire.ObjectMeta]:
        """ReplicaSets of a Deployment."""
        _, items = self.api.collect(f"/apis/apps/v1/namespaces/{namespace}/replicasets", _query(deployment))
        found = [msgspec.json.decode(item, type=_Controller).metadata for item in items]
        uid = deployment.metadata.uid
        return [meta for meta in found if any(o.controller and o.uid == uid for o in meta.owner_references or ())]

    def _pods(self, namespace: str, controller: _Controller, uids: set[str]) -> tuple[PodView, ...]:
        _, items = self.api.collect(f"/api/v1/namespaces/{namespace}/pods", _query(controller))
        found = (objects.pod_view(msgspec.json.decode(item, type=wire.PodObject)) for item in items)
        return tuple(pod for pod in found if objects.controller_uid(pod) in uids)


def _root(api_version: str) -> str:
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"


def _above(found: _Controller) -> wire.OwnerReference | None:
    """The Deployment of a ReplicaSet."""
    owners = found.metadata.owner_references or ()
    return next((owner for owner in owners if owner.controller and owner.kind == "Deployment"), None)


def _query(controller: _Controller) -> list[tuple[str, str]]:
    """A label selector for a list; their controllers tell pods apart afterwards."""
    selector = controller.spec.selector or {}
    labels = selector.get("matchLabels") if "matchLabels" in selector or "matchExpressions" in selector else selector
    text = ",".join(f"{key}={value}" for key, value in sorted((labels or {}).items()))
    return [("labelSelector", text)] if text else []
