"""Evictions through the Eviction API: budgets are kept by the server, and a pod is never taken for its successor."""

from __future__ import annotations

import errno
from http import HTTPStatus
from typing import Literal

import msgspec

from koordlite.changes.eviction import EvictPod
from koordlite.kube.client.access import Api, ApiError, Timeout
from koordlite.kube.client.answers import ApiUnreachable
from koordlite.model.errors import EvictionRefused

Outcome = Literal["accepted", "gone"]
"""accepted: the pod is on its way out; gone: this pod (this uid) is not there any more."""

TIMEOUT: Timeout = (3.0, 10.0)
FIRST_VERSION = "policy/v1"


class _Resource(msgspec.Struct):
    name: str = ""
    group: str = ""
    version: str = ""


class _Resources(msgspec.Struct):
    resources: list[_Resource] | None = None


class EvictionApi:
    """Asks for evictions, in the version of Eviction that this server speaks."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._version = ""

    def evict(
        self,
        pod: EvictPod,
        *,
        grace_period_seconds: int | None = None,
        dry_run: bool = False,
        timeout: Timeout = TIMEOUT,
    ) -> Outcome:
        """Ask for one pod, once. `grace_period_seconds` None leaves the pod its own.

        EvictionRefused when the server says no (a budget, no permission), with its wish when to ask again;
        ApiUnreachable when it cannot be asked: then nobody knows, and asking again is safe because of the uid.
        """
        options: dict[str, object] = {"preconditions": {"uid": pod.uid}}
        options |= {} if grace_period_seconds is None else {"gracePeriodSeconds": grace_period_seconds}
        options |= {"dryRun": ["All"]} if dry_run else {}
        body = {
            "apiVersion": self._spoken(timeout),
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": options,
        }
        try:
            self._api.request("POST", f"{_path(pod)}/eviction", body=body, timeout=timeout)
        except ApiError as error:
            return self._judged(pod, error, timeout)
        return "accepted"

    def _spoken(self, timeout: Timeout) -> str:
        """policy/v1, or policy/v1beta1 on a server before 1.22: it says so among the resources of pods."""
        if not self._version:
            try:
                raw = self._api.request("GET", "/api/v1", timeout=timeout).body
                found = msgspec.json.decode(raw, type=_Resources).resources or []
            except (ApiError, msgspec.DecodeError):
                return FIRST_VERSION
            spoken = (r for r in found if r.name == "pods/eviction" and r.group and r.version)
            self._version = next((f"{r.group}/{r.version}" for r in spoken), FIRST_VERSION)
        return self._version

    def _judged(self, pod: EvictPod, error: ApiError, timeout: Timeout) -> Outcome:
        if error.status == HTTPStatus.NOT_FOUND and error.named == pod.name:
            return "gone"
        if error.status == HTTPStatus.CONFLICT and self._replaced(pod, timeout):
            return "gone"
        raise _refused(pod, error) from error

    def _replaced(self, pod: EvictPod, timeout: Timeout) -> bool:
        """Whether the name belongs to another pod by now; the wording of a conflict differs between servers."""
        try:
            raw = self._api.request("GET", _path(pod), timeout=timeout).body
            return msgspec.json.decode(raw, type=_Pod).metadata.uid != pod.uid
        except ApiError as error:
            return error.status == HTTPStatus.NOT_FOUND and error.named == pod.name
        except msgspec.DecodeError as error:
            raise ApiUnreachable(errno.EPROTO, f"the answer is no pod: {error}", _path(pod)) from error


class _Meta(msgspec.Struct):
    uid: str = ""


class _Pod(msgspec.Struct):
    metadata: _Meta


_DO = {
    HTTPStatus.FORBIDDEN: "allow this identity to create pods/eviction",
    HTTPStatus.UNAUTHORIZED: "renew the credentials of this identity",
    HTTPStatus.NOT_FOUND: "this server does not serve pods/eviction, or the namespace is gone",
}


def _refused(pod: EvictPod, error: ApiError) -> EvictionRefused:
    details = [cause.message for cause in error.causes if cause.message]
    do = _DO.get(HTTPStatus(error.status), "") if error.status in _DO else ""
    why = "; ".join([error.message, *details, *filter(None, [do])])
    name = f"pod/{pod.namespace}/{pod.name}"
    return EvictionRefused(name, why, retry_after_seconds=error.retry_after_seconds)


def _path(pod: EvictPod) -> str:
    return f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
