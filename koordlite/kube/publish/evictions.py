"""Evictions through the Eviction API: budgets are kept by the server, and a pod is never taken for its successor.

`EvictionClient` sends evictions as they are written, for the descheduler; `evict` sends those that the agent decides
on.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Literal, Protocol

import msgspec

from koordlite.changes.eviction import EvictPod
from koordlite.kube.client.access import Timeout
from koordlite.kube.client.answers import Answer, ApiError
from koordlite.model.errors import EvictionRefused

Outcome = Literal["accepted", "gone", "replaced"]
"""accepted: the pod is on its way out; gone: nothing has its name any more; replaced: another pod has its name."""

TIMEOUT: Timeout = (3.0, 10.0)
FIRST_VERSION = "policy/v1"


class Api(Protocol):
    """The part of `koordlite.kube.client.access.Api` that is used."""

    def request(self, *request: Any, **how: Any) -> Answer:
        """Ask once; ApiError for a refusal, ApiUnreachable when there is no answer."""


class _Resource(msgspec.Struct):
    name: str = ""
    group: str = ""
    version: str = ""


class _Resources(msgspec.Struct):
    resources: list[_Resource] | None = None


def eviction(
    namespace: str, name: str, options: Mapping[str, Any], annotations: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """An Eviction of policy/v1 with these delete options."""
    metadata: dict[str, Any] = {"name": name, "namespace": namespace}
    metadata |= {"annotations": dict(annotations)} if annotations else {}
    return {"apiVersion": FIRST_VERSION, "kind": "Eviction", "metadata": metadata, "deleteOptions": dict(options)}


class EvictionClient:
    """Sends evictions, in the version of Eviction that this server speaks. May be called from several threads."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._version = ""

    def send(self, request: Mapping[str, Any], **how: Any) -> Outcome:
        """Ask once for what `eviction` made; its delete options name the uid of the pod. `how` goes to the requests.
        ApiError when the server says no (a budget, no permission); ApiUnreachable when it cannot be asked: then nobody
        knows, and asking again is safe because of the uid."""
        meta, options = request["metadata"], request["deleteOptions"]
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
        body = {**request, "apiVersion": self._spoken(how)}
        try:
            self._api.request("POST", f"{path}/eviction", body=body, **how)
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND and error.named == meta["name"]:
                return "gone"
            if error.status == HTTPStatus.CONFLICT:
                outcome = self._conflicting(path, meta["name"], options["preconditions"]["uid"], how)
                if outcome is not None:
                    return outcome
            raise
        return "accepted"

    def _spoken(self, how: Mapping[str, Any]) -> str:
        """policy/v1, or policy/v1beta1 on a server before 1.22: it says so among the resources of pods."""
        if not self._version:
            try:
                resources = self._api.request("GET", "/api/v1", **how).read(_Resources).resources or []
            except ApiError:
                return FIRST_VERSION
            spoken = (r for r in resources if r.name == "pods/eviction" and r.group and r.version)
            self._version = next((f"{r.group}/{r.version}" for r in spoken), FIRST_VERSION)
        return self._version

    def _conflicting(self, path: str, name: str, uid: str, how: Mapping[str, Any]) -> Outcome | None:
        """Tell if the name belongs to another pod by now, or to none; None when it is still this one's.

        The wording of a conflict differs between servers, so the pod is read."""
        try:
            pod = self._api.request("GET", path, **how).read(_Pod)
            return "replaced" if pod.metadata.uid != uid else None
        except ApiError as error:
            if not error.status:  # What came is no pod.
                raise
            return "gone" if error.status == HTTPStatus.NOT_FOUND and error.named == name else None


def evict(client: EvictionClient, pod: EvictPod) -> Outcome:
    """Ask, once, for an eviction that a strategy decided on; the pod has its own grace period.
    EvictionRefused when the server says no (a budget, no permission), with the seconds after which it wants to be asked
    again; ApiUnreachable as of `EvictionClient.send`."""
    try:
        body = eviction(pod.namespace, pod.name, {"preconditions": {"uid": pod.uid}})
        return client.send(body, timeout=TIMEOUT)
    except ApiError as error:
        details = [cause.message for cause in error.causes if cause.message]
        why = "; ".join([error.message, *details, *([_DO[error.status]] if error.status in _DO else ())])
        name = f"pod/{pod.namespace}/{pod.name}"
        raise EvictionRefused(name, why, retry_after_seconds=error.retry_after_seconds) from error


class _Meta(msgspec.Struct):
    uid: str = ""


class _Pod(msgspec.Struct):
    metadata: _Meta


_DO: dict[int, str] = {
    HTTPStatus.FORBIDDEN: "allow this identity to create pods/eviction",
    HTTPStatus.UNAUTHORIZED: "renew the credentials of this identity",
    HTTPStatus.NOT_FOUND: "this server does not serve pods/eviction, or the namespace is gone",
}
