"""Bindings over the API server: the pod's uid, and what was allocated as annotations of the Binding itself.

A server copies the Binding's annotations to the pod in the same write, so no pod is ever bound without its promise.
Source: Kubernetes `assignPod`; kube-scheduler and API server 1.36, recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

import msgspec

from koordlite.kube.client.access import Api
from koordlite.kube.client.answers import ApiError, ApiUnreachable
from koordlite.model.wire import objects
from koordlite.reservation.pods import KnownPod
from koordlite.scheduler.extender import BindError

TIMEOUT = (0.3, 0.5)
"""Seconds to connect, and to wait for the answer: it stays below the second that the scheduler waits."""


class ApiBinder:
    """Safe to use from several threads at once."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def bind(self, pod: KnownPod, node: str, annotations: Mapping[str, str]) -> None:
        """Bind the pod; returns also when it is bound to `node` already. BindError says why it is not."""
        meta: dict[str, object] = {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid}
        if annotations:
            meta["annotations"] = dict(annotations)
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": target}
        try:
            self._api.request("POST", f"{_path(pod.namespace, pod.name)}/binding", body=body, timeout=TIMEOUT)
        except ApiError as error:
            if error.status == HTTPStatus.CONFLICT and self._is_bound(pod, node):
                return
            raise BindError(error.message, is_certain=error.status < HTTPStatus.INTERNAL_SERVER_ERROR) from error
        except ApiUnreachable as error:
            # It may have been written all the same: an error here would leave a bound pod that says it is not.
            if self._is_bound(pod, node):
                return
            raise BindError(f"the API server did not answer the binding: {error.strerror}", is_certain=False) from error

    def pod(self, namespace: str, name: str) -> objects.PodObject:
        """The pod as the API server has it; BindError when there is none."""
        try:
            answer = self._api.request("GET", _path(namespace, name), timeout=TIMEOUT)
            return msgspec.json.decode(answer.body, type=objects.PodObject)
        except ApiError as error:
            raise BindError(error.message, is_certain=True) from error
        except (ApiUnreachable, msgspec.DecodeError) as error:
            raise BindError(f"the API server did not answer: {error}", is_certain=True) from error

    def promise(self, obj: objects.PodObject, annotations: Mapping[str, str]) -> None:
        """Write annotations to this version of a bound pod; BindError when it has changed meanwhile, or is refused.

        By way of its status, since no more than that right is needed: a server takes metadata there, too.
        """
        meta = {"uid": obj.metadata.uid, "resourceVersion": obj.metadata.resource_version, "annotations": annotations}
        path = f"{_path(obj.metadata.namespace, obj.metadata.name)}/status"
        kind = "application/merge-patch+json"
        try:
            self._api.request("PATCH", path, body={"metadata": meta}, content_type=kind, timeout=TIMEOUT)
        except ApiError as error:
            raise BindError(error.message, is_certain=True) from error
        except ApiUnreachable as error:
            raise BindError(f"the API server did not answer: {error.strerror}", is_certain=False) from error

    def _is_bound(self, pod: KnownPod, node: str) -> bool:
        try:
            found = self.pod(pod.namespace, pod.name)
        except BindError:
            return False
        return found.metadata.uid == pod.uid and found.spec.node_name == node


def _path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods/{name}"
