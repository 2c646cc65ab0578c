"""The requests of a step, made. Each says which object it means by its uid, so that none hits another of that name."""

from __future__ import annotations

import logging
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from koordlite.kube.client.access import Answer, Api, ApiError
from koordlite.kube.watch import sources
from koordlite.model import merge_patch
from koordlite.model.wire.objects import PodObject
from koordlite.model.wire.reservation import ReservationObject
from koordlite.reservation.step import (
    Action,
    Annotate,
    AnnotatePod,
    CreatePlaceholder,
    DeletePlaceholder,
    DeleteReservation,
    Nominate,
    Say,
    Step,
    WriteStatus,
)

LOG = logging.getLogger(__name__)
GROUP_VERSION = "scheduling.koordinator.sh/v1alpha1"
RESERVATIONS = sources.RESERVATIONS.paths[0]
TIMEOUT = (2.0, 5.0)
_BOUND = "may not be set on pods that are already bound to a node"
"""API server 1.36 about nominatedNodeName."""
_GONE = (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT)


class Refused(Exception):
    """The API server does not make the placeholder; the text says why."""


class Writer:
    """Carries out steps. `wrote` gets every object that came back, `deleted` the uid of every pod that went."""

    def __init__(
        self,
        api: Api,
        *,
        wrote: Callable[[PodObject | ReservationObject, bytes], None],
        deleted: Callable[[str], None],
        say: Callable[[Step, Say], None],
        may: Callable[[], bool],
    ) -> None:
        """`may` is asked before each request: whether this process still leads."""
        self._api, self._wrote, self._deleted, self._say, self._may = api, wrote, deleted, say, may

    def run(self, step: Step) -> str:
        """Make its requests, in order. What went wrong ends it, and is returned; empty when nothing did.

        Refused: the placeholder was not made. ApiUnreachable: nobody answers.
        """
        for action in step.actions:
            if not self._may():
                return "this process leads no more"
            try:
                self._one(step, action)
            except ApiError as error:
                return f"{type(action).__name__}: {error}"
        return ""

    def _one(self, step: Step, action: Action) -> None:
        match action:
            case CreatePlaceholder():
                self._create(action)
            case Nominate():
                self._nominate(action.namespace, action.name, action.uid, action.node)
            case DeletePlaceholder():
                self._delete(action)
            case AnnotatePod():
                meta = {"uid": action.uid, "annotations": dict(action.annotations)}
                self._patch_pod(f"{_pods(action.namespace)}/{action.name}", {"metadata": meta})
            case Annotate():
                meta = {"uid": step.uid, "annotations": dict(action.annotations)}
                self._patch_reservation(f"{RESERVATIONS}/{step.name}", {"metadata": meta})
            case WriteStatus():
                status = merge_patch.between(action.before, action.after)
                body = {"metadata": {"uid": step.uid}, "status": status}
                self._patch_reservation(f"{RESERVATIONS}/{step.name}/status", body)
            case DeleteReservation():
                self._ask("DELETE", f"{RESERVATIONS}/{step.name}", _options(step.uid))
            case Say():
                self._say(step, action)

    def _create(self, action: CreatePlaceholder) -> None:
        name = str(action.body["metadata"]["name"])
        try:
            answer = self._ask("POST", _pods(action.namespace), dict(action.body))
        except ApiError as error:
            if error.reason == "AlreadyExists":
                return  # Made by an earlier attempt; the watch has not shown it yet.
            if HTTPStatus.BAD_REQUEST <= error.status < HTTPStatus.TOO_MANY_REQUESTS:
                raise Refused(f"the API server refuses its placeholder: {error}") from error
            raise
        pod = answer.read(PodObject)
        self._wrote(pod, answer.body)
        if action.node:
            self._nominate(action.namespace, name, pod.metadata.uid, action.node)

    def _nominate(self, namespace: str, name: str, uid: str, node: str) -> None:
        body = {"metadata": {"uid": uid}, "status": {"nominatedNodeName": node or None}}
        self._patch_pod(f"{_pods(namespace)}/{name}/status", body)

    def _delete(self, action: DeletePlaceholder) -> None:
        LOG.info("placeholder %s/%s is deleted: %s", action.namespace, action.name, action.why)
        options = {**_options(action.uid), "gracePeriodSeconds": 0}
        try:
            self._ask("DELETE", f"{_pods(action.namespace)}/{action.name}", options)
        except ApiError as error:
            if error.status not in _GONE:
                raise
        self._deleted(action.uid)

    def _patch_pod(self, path: str, body: dict[str, Any]) -> None:
        try:
            answer = self._ask("PATCH", path, body)
        except ApiError as error:
            if error.status in _GONE or error.other_uid or _BOUND in error.message:
                return  # It is gone, another one has its name, or it is bound already: the watch brings that.
            raise
        self._wrote(answer.read(PodObject), answer.body)

    def _patch_reservation(self, path: str, body: dict[str, Any]) -> None:
        answer = self._ask("PATCH", path, body)
        self._wrote(answer.read(ReservationObject), answer.body)

    def _ask(self, method: str, path: str, body: dict[str, Any]) -> Answer:
        return self._api.request(method, path, body=body, timeout=TIMEOUT)


def _pods(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"


def _options(uid: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
