"""An object of this node's own that is kept as the pictures say, in the background, for another scheduler to read."""

from __future__ import annotations

import logging
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Generic, TypeVar

import msgspec

from koordlite.kube.client.access import Api, ApiError, ApiUnreachable
from koordlite.kube.client.background import BackgroundRequests
from koordlite.model.errors import Problem
from koordlite.model.snapshot import Snapshot
from koordlite.model.wire import objects

LOG = logging.getLogger(__name__)
AT_MOST_EVERY_SECONDS = 1.0
CONFIRM_SECONDS = 60.0
"""What stands is looked at again this often: another program may have written it."""
W = TypeVar("W")
Owner = Callable[[], objects.NodeObject | None]


class BackgroundWriter:
    """Writes one object of this node's own in a thread: nothing waits for it, and a refusal is kept and logged once."""

    thread: str
    named: str
    """For the log: `the numatopology of this node`."""
    no_kind: str
    """What to do when the cluster does not know the kind."""

    def __init__(self, api: Api, node_name: str) -> None:
        self._api, self._name = api, node_name
        self._requests = BackgroundRequests(self.thread)
        self._count = 0
        self.error = ""
        """Why it was not written last time; empty when it was."""

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
            error = f"{refused}; {self.no_kind}" if refused.unknown_resource else str(refused)
        except ApiUnreachable as unreachable:
            error = str(unreachable)
        if error and error != self.error:
            LOG.warning("%s was not written: %s", self.named, error)
        self.error = error


class BackgroundReport(BackgroundWriter, Generic[W]):
    """One object; nothing is written while nothing changes. A kind says what is wanted, and how it is written."""

    kind: str
    """For messages."""
    path: str
    """Where the API server keeps the objects of this kind."""
    resource: str
    """For messages about permissions: `numatopologies.nodeinfo.volcano.sh`."""

    def __init__(self, api: Api, node_name: str) -> None:
        self.thread, self.named = self.kind, f"the {self.kind} of this node"
        super().__init__(api, node_name)
        self._wanted: W | None = None
        self._asked = float("-inf")

    def wanted(self, snapshot: Snapshot) -> W:
        """The object's target state by this picture."""
        raise NotImplementedError

    def fresh(self, wanted: W, owner: objects.NodeObject) -> dict[str, Any]:
        """The whole object, owned by the Node, so that it goes when the node goes."""
        raise NotImplementedError

    def change(self, path: str, held: bytes, wanted: W) -> None:
        """Change the object where it differs from what is held there. ApiError and ApiUnreachable as of the requests;
        ValueError when what is held cannot be read."""
        raise NotImplementedError

    def write(self, wanted: W, owner: objects.NodeObject | None) -> None:
        """Make the object, or change the one that is there. ApiError and ApiUnreachable as of the requests."""
        path = f"{self.path}/{self._name}"
        try:
            held = self._api.request("GET", path).body
        except ApiError as missing:
            if missing.status != HTTPStatus.NOT_FOUND or missing.unknown_resource or owner is None:
                raise
            self._api.request("POST", self.path, body=self.fresh(wanted, owner))
            return
        try:
            self.change(path, held, wanted)
        except ValueError as unreadable:
            raise ApiError(422, "Unreadable", str(unreadable), named=self._name) from unreadable

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Obstacles to writing the object, for `status`."""
        do = f"allow this identity to get, create, update and patch {self.resource}; it is tried again"
        return (Problem(f"{self.kind}/{self._name}", "content", "", self.error, do),) if self.error else ()

    def observe(self, snapshot: Snapshot, *, monotonic: float, wall: float, node: Owner) -> None:
        """Write what this picture says if it is new, or was not confirmed for a while."""
        del wall  # The object says nothing of its time.
        wanted, since = self.wanted(snapshot), monotonic - self._asked
        due = since >= AT_MOST_EVERY_SECONDS and wanted != self._wanted
        if not (due or since >= CONFIRM_SECONDS):
            return
        self._wanted, self._asked = wanted, monotonic
        owner = node()
        self._send(lambda: self.write(wanted, owner))


class SpecReport(BackgroundReport[W]):
    """An object that is nothing but a spec of this agent's: what others write into it goes."""

    head: tuple[str, str]
    """apiVersion and kind."""
    type: type[Any]
    """The object, with `metadata` and `spec`."""

    def fresh(self, wanted: W, owner: objects.NodeObject) -> dict[str, Any]:
        """The spec, with its metadata."""
        references = [msgspec.to_builtins(owner.as_owner)]
        return self._body({"name": owner.metadata.name, "ownerReferences": references}, wanted)

    def change(self, path: str, held: bytes, wanted: W) -> None:
        """Replace the spec where it differs."""
        there = msgspec.json.decode(held, type=self.type)
        if there.spec != wanted:
            body = self._body({"name": self._name, "resourceVersion": there.metadata.resource_version}, wanted)
            if there.metadata.owner_references:
                body["metadata"]["ownerReferences"] = msgspec.to_builtins(there.metadata.owner_references)
            self._api.request("PUT", path, body=body)

    def _body(self, metadata: dict[str, Any], wanted: W) -> dict[str, Any]:
        api_version, kind = self.head
        return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": msgspec.to_builtins(wanted)}
