"""EvictionRequests: pods that ask for it are asked before they are evicted.

The name of a request follows from the uid of its pod, and the objects on the server are all that is remembered: a
restart asks no pod twice. Kubernetes' evictionrequest-controller makes an Eviction of the requests for a pod, and there
the pod's responders, one after the other, say how far they are. Earlier drafts of the API were of other groups and had
other fields; they count as not served.

Source: KEP-4563 and the API reference of `lifecycle.k8s.io/v1alpha1`, Kubernetes 1.37.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Any

import msgspec

from descheduler.arguments.evictor import EvictionRequests
from descheduler.evictors.migration import Progress
from descheduler.evictors.migration_api import MERGE, Api
from descheduler.framework import PodView, View
from descheduler.history.past_evictions import Request, Requests
from descheduler.plan import Attempt, EvictionPlan, Outcome
from koordlite.kube.client import answers
from koordlite.kube.client.answers import ApiError, ApiUnreachable
from koordlite.model import duration, times
from koordlite.model.wire.objects import KubeObject, WireObject
from koordlite.model.wire.reservation import Condition

VERSION = "lifecycle.k8s.io/v1alpha1"
REQUESTER = "koordlite.io/descheduler"
Tell = Callable[[Progress], None]


class _Reference(WireObject, frozen=True):
    name: str = ""
    uid: str = ""


class _Target(WireObject, frozen=True):
    pod: _Reference | None = None


class _Spec(WireObject, frozen=True):
    target: _Target = _Target()
    requester: str = ""
    """Requester of an EvictionRequest; an Eviction has several, in its status."""
    intent: str = ""


class _TargetResponder(WireObject, frozen=True):
    name: str = ""
    state: str = ""


class _Responder(WireObject, frozen=True):
    name: str = ""
    expected_completion_time: str | None = None
    message: str = ""


class _Status(WireObject, frozen=True):
    conditions: tuple[Condition, ...] | None = None
    target_responders: tuple[_TargetResponder, ...] | None = None
    responders: tuple[_Responder, ...] | None = None


class _Object(KubeObject, frozen=True):
    """An EvictionRequest or an Eviction."""

    spec: _Spec = _Spec()
    status: _Status = _Status()

    @property
    def uid(self) -> str:
        """Uid of the pod; empty when the target is no pod."""
        return self.spec.target.pod.uid if self.spec.target.pod else ""


def request(pod: PodView) -> dict[str, Any]:
    """The EvictionRequest for a pod."""
    meta = pod.object.metadata
    target = {"pod": {"name": meta.name, "uid": meta.uid}}
    return {
        "apiVersion": VERSION,
        "kind": "EvictionRequest",
        "metadata": {"namespace": meta.namespace, "name": _name(meta.uid)},
        "spec": {"target": target, "requester": REQUESTER, "intent": "Eviction"},
    }


def read(api: Api, view: View, settings: EvictionRequests, tell: Tell) -> Requests:
    """Our requests by uid of their pods. ApiError 404 where the API is not served; an object that cannot be read is
    reported and left out."""
    ours = [
        one
        for one in _all(api, "evictionrequests", tell)
        if one.spec.requester == REQUESTER and one.uid and one.metadata.name == _name(one.uid)
    ]
    evictions = {one.uid: one.status for one in _all(api, "evictions", tell)} if ours else {}
    pods = {pod.uid: pod for pod in view.everything()} if ours else {}
    return {one.uid: _standing(one, evictions.get(one.uid), pods.get(one.uid), settings, view.now) for one in ours}


def _all(api: Api, plural: str, tell: Tell) -> Iterator[_Object]:
    for item in api.collect(f"/apis/{VERSION}/{plural}").items:
        try:
            yield answers.read(item, _Object)
        except ApiError as error:
            tell(Progress("", "", "Failed", f"one of the {plural}: {error}"))


def _standing(
    one: _Object, eviction: _Status | None, pod: PodView | None, settings: EvictionRequests, now: float
) -> Request:
    target = one.spec.target.pod or _Reference()
    since = times.parse_or_none(one.metadata.creation_timestamp) or now
    request = Request(one.metadata.namespace, target.name, one.uid, pod.node if pod else "", since, state="asked")
    if pod is None or pod.pod.phase in ("Succeeded", "Failed"):
        text = f"the pod has {pod.pod.phase.lower()}" if pod else "the pod is gone"
        return msgspec.structs.replace(request, state="gone", text=text)
    text = f"asked at {times.show(since)}; {_progress(eviction)}"
    failed = next((c for c in one.status.conditions or () if c.type == "Failed" and c.status == "True"), None)
    if failed:
        text = f"{text}; the request failed: {failed.reason}{': ' if failed.message else ''}{failed.message}"
    elif now - since > duration.seconds(settings.patience):
        text = f"{text}; it was to go within {settings.patience}"
    elif one.spec.intent == "Eviction":
        return msgspec.structs.replace(request, text=text)
    return msgspec.structs.replace(
        request, state="refused" if one.spec.intent == "Eviction" else "withdrawn", text=text
    )


def _progress(eviction: _Status | None) -> str:
    """Answers of responders for the pod, with their names."""
    if eviction is None:
        return "nobody has taken it up"
    active = [one.name for one in eviction.target_responders or () if one.state == "Active"]
    answers = {one.name: one for one in eviction.responders or ()}
    if not active:
        return "no responder is active"
    answer = answers.get(active[0], _Responder())
    end = f", expected to end at {answer.expected_completion_time}" if answer.expected_completion_time else ""
    return f"{active[0]} answers: {answer.message or 'nothing yet'}{end}"


def ask(outcome: Outcome, api: Api) -> Attempt:
    """Ask for one pod. A request of that name is ours, made before a restart."""
    body = request(outcome.pod)
    meta = body["metadata"]
    attempt = Attempt(
        outcome.pod.key, "Requested", body, f"asked by EvictionRequest {meta['name']}", 1, outcome.pod.uid
    )
    try:
        api.request("POST", _path(meta["namespace"]), body=body)
    except ApiError as error:
        if error.status != HTTPStatus.CONFLICT:
            return msgspec.structs.replace(attempt, result="Failed", text=error.message)
    except ApiUnreachable as error:
        return msgspec.structs.replace(attempt, result="Failed", text=str(error))
    return attempt


def withdraw(plan: EvictionPlan, requests: Requests, api: Api, tell: Tell) -> None:
    """Carry out the plan's withdrawals. What goes wrong is reported, and comes again in the next cycle."""
    for uid, why in plan.withdrawals.items():
        one = requests.get(uid)
        if one is None:
            continue
        path, pod = f"{_path(one.namespace)}/{_name(uid)}", f"{one.namespace}/{one.name}"
        try:
            if one.state == "refused" and why.reason == "RequestRefused":
                api.request("PATCH", path, body={"spec": {"intent": "Withdrawn"}}, content_type=MERGE)
            else:
                api.request("DELETE", path)
        except (ApiError, ApiUnreachable) as error:
            if not isinstance(error, ApiError) or error.status != HTTPStatus.NOT_FOUND:
                tell(Progress("", pod, "Failed", f"its EvictionRequest cannot be withdrawn: {error}"))
                continue
        if one.state != "gone":
            tell(Progress("", pod, "Withdrawn", f"its EvictionRequest: {why.reason}: {why.text}"))


def _name(uid: str) -> str:
    return f"koordlite-{uid}"


def _path(namespace: str) -> str:
    return f"/apis/{VERSION}/namespaces/{namespace}/evictionrequests"
