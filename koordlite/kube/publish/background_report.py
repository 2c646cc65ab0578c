"""An object of this node's own that is kept as the pictures say, in the background, for another scheduler to read."""

from __future__ import annotations

import logging
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import msgspec

from koordlite.kube.client.access import Api, ApiError, ApiUnreachable
from koordlite.kube.client.background import BackgroundRequests
from koordlite.model.errors import Problem
from koordlite.model.snapshot import Snapshot
from koordlite.model.wire import objects

LOG = logging.getLogger(__name__)
AT_MOST_EVERY_SECONDS = 1.0
CONFIRM_SECONDS = 60.0
"""Time between two looks at an unchanged report: another program may have written it."""


class BackgroundWriter:
    """Writes one object of this node's own in a thread: nothing waits for it, and a refusal is kept and logged once."""

    def __init__(self, api: Api, node_name: str, *, thread: str, named: str, no_kind: str) -> None:
        """`named`, for the log: `the numatopology of this node`. `no_kind`: what to do when the cluster does not know
        the kind."""
        self._api, self._name, self._named, self._no_kind = api, node_name, named, no_kind
        self._requests = BackgroundRequests(thread)
        self._count = 0
        self.error = ""
        """Reason why it was not written the last time; empty when it was."""

    def stop(self) -> None:
        """Write nothing more."""
        self._requests.stop()

    def _send(self, write: Callable[[], None], patience_seconds: float = 0.0) -> None:
        """Have `write` done after those that are under way. What comes of it is kept in `error`."""
        self._count += 1
        try:
            self._requests.send(self._count, self._count, lambda: self._try(write), patience_seconds=patience_seconds)
        except ApiUnreachable:
            return  # Under way; `_try` keeps what comes of it.

    def _try(self, write: Callable[[], None]) -> None:
        error = ""
        try:
            write()
        except ApiError as refused:
            error = f"{refused}; {self._no_kind}" if refused.unknown_resource else str(refused)
        except ApiUnreachable as unreachable:
            error = str(unreachable)
        if error and error != self.error:
            LOG.warning("%s was not written: %s", self._named, error)
        self.error = error


class ReportKind(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of such objects: the target of one, and how it is written."""

    name: str
    """Name for messages."""
    path: str
    """Path of the objects of this kind at the API server: `/apis/GROUP/VERSION/PLURAL`."""
    kind: str
    no_kind: str
    """Remedy when the cluster does not know the kind."""
    type: type[Any]
    target: Callable[[Snapshot], Any]
    """The target state by a picture: of the spec, or with `patch` of the object without metadata."""
    patch: Callable[[Any, Any], dict[str, Any]] | None = None
    """Merge patch from an object to its target, empty where it is that already. None: the object is nothing but a spec
    of this agent's, and what others write into it goes."""

    def body(self, metadata: objects.ObjectMeta, target: Any) -> dict[str, Any]:
        """The whole object."""
        head = {"apiVersion": self.path.removeprefix("/apis/").rpartition("/")[0], "kind": self.kind}
        content = msgspec.to_builtins(target) if self.patch else {"spec": msgspec.to_builtins(target)}
        return {**head, **content, "metadata": msgspec.to_builtins(metadata)}


class BackgroundReport(BackgroundWriter):
    """One object; nothing is written while nothing changes."""

    def __init__(self, api: Api, node_name: str, kind: ReportKind) -> None:
        named = f"the {kind.name} of this node"
        super().__init__(api, node_name, thread=kind.name, named=named, no_kind=kind.no_kind)
        self._kind, self._target, self._written_at = kind, None, float("-inf")

    def write(self, target: Any, owner: objects.NodeObject | None) -> None:
        """Make the object, owned by the Node, so that it goes when the node goes; or change the one that is there.
        ApiError and ApiUnreachable as of the requests."""
        kind, path = self._kind, f"{self._kind.path}/{self._name}"
        try:
            answer = self._api.request("GET", path)
        except ApiError as missing:
            if missing.status != HTTPStatus.NOT_FOUND or missing.unknown_resource or owner is None:
                raise
            metadata = objects.ObjectMeta(owner.metadata.name, owner_references=(owner.as_owner,))
            self._api.request("POST", kind.path, body=kind.body(metadata, target))
            return
        current = answer.read(kind.type)
        if kind.patch:
            if body := kind.patch(current, target):
                self._api.request("PATCH", path, body=body)
        elif current.spec != target:
            meta = current.metadata
            metadata = objects.ObjectMeta(
                meta.name, resource_version=meta.resource_version, owner_references=meta.owner_references
            )
            self._api.request("PUT", path, body=kind.body(metadata, target))

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Obstacles to writing the object, for `status`."""
        group, _, plural = self._kind.path.split("/")[2:]
        do = f"allow this identity to get, create, update and patch {plural}.{group}; it is tried again"
        return (Problem(f"{self._kind.name}/{self._name}", "content", "", self.error, do),) if self.error else ()

    def observe(self, snapshot: Snapshot, *, monotonic: float, wall: float, node: objects.NodeObject | None) -> None:
        """Write what this picture says if it is new, or was not confirmed for a while."""
        del wall  # The object says nothing of its time.
        target, since = self._kind.target(snapshot), monotonic - self._written_at
        if since >= CONFIRM_SECONDS or (since >= AT_MOST_EVERY_SECONDS and target != self._target):
            self._target, self._written_at = target, monotonic
            self._send(lambda: self.write(target, node))
