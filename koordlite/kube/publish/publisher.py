"""Writing our fields of the Node and its NodeResourceTopology: rarely, and with words for every refusal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from http import HTTPStatus
from typing import Any

import msgspec

from koordlite.kube.client import backoff
from koordlite.kube.client.access import Api, ApiError, ApiUnreachable
from koordlite.kube.folder import published
from koordlite.kube.watch.watcher import Watching
from koordlite.model import merge_patch
from koordlite.model.change import ClusterChange, NodeChange, TopologyPart
from koordlite.model.errors import InputError, Problem
from koordlite.model.wire import objects

KIND = "NodeResourceTopology"


def of_node(changes: Iterable[NodeChange], *, uid: str) -> dict[str, Any]:
    """Strategic merge patch for the node's status subresource, which without conditions is a merge patch as well; null
    removes a key, and conditions are merged by type.

    The subresource takes annotations as well, so one request and one permission do. With `uid` the server refuses the
    patch for a node that was created again under the same name.
    """
    changes = tuple(changes)
    notes = {key: text for change in changes for key, text in change.annotations.items()}
    amounts = {
        name: None if amount is None else str(amount) for change in changes for name, amount in change.amounts.items()
    }
    metadata: dict[str, Any] = ({"annotations": notes} if notes else {}) | ({"uid": uid} if uid else {})
    conditions = [dict(condition) for change in changes for condition in change.conditions]
    status: dict[str, Any] = {"capacity": amounts, "allocatable": amounts} if amounts else {}
    status |= {"conditions": conditions} if conditions else {}
    return ({"metadata": metadata} if metadata else {}) | ({"status": status} if status else {})


def after(topology: objects.NRTObject, changes: Iterable[TopologyPart]) -> objects.NRTObject:
    """The object with all changes; resources, zones, annotations and labels of others stay."""
    for change in changes:
        topology = change.onto(topology)
    return topology


def new_topology(node: objects.NodeObject, changes: Iterable[TopologyPart], *, api_version: str) -> dict[str, Any]:
    """The whole object, owned by the Node, so that it goes when the node goes."""
    topology = after(published.new_topology(node), changes)
    head = {"apiVersion": api_version, "kind": KIND, "topologyPolicies": [], "zones": []}
    return {**head, **msgspec.to_builtins(topology)}


def of_topology(topology: objects.NRTObject, changes: Iterable[TopologyPart]) -> dict[str, Any]:
    """A merge patch from `topology` to what the changes make of it; empty when that is the same.
    Zones and attributes are lists, which a merge patch replaces as a whole: then the patch carries the resource version
    it was made from, and the server answers a conflict if another client wrote meanwhile."""
    body = merge_patch.between(topology, after(topology, changes))
    if "zones" in body or "attributes" in body:
        body.setdefault("metadata", {})["resourceVersion"] = topology.metadata.resource_version
    return body


CONFIRM_SECONDS = 60.0
"""Least time between two writes of an unchanged value."""
AT_MOST_EVERY_SECONDS = 1.0
"""The NodeResourceTopology is written, since every consumer reads each version of it."""
CONFLICTS = 3
"""Conflicts in a row that are answered by reading again and a new try at once."""
STRATEGIC = "application/strategic-merge-patch+json"
Refusal = InputError | ApiUnreachable


class _Past(msgspec.Struct):
    """Results of the last writes of one object."""

    written_at: float = float("-inf")
    failures: int = 0
    not_before: float = float("-inf")
    refusal: Refusal | None = None


class Publisher:
    """Publishes for one node. `publish` may wait for the network: call it from where that does no harm."""

    def __init__(
        self,
        api: Api,
        node_name: str,
        *,
        node: Watching[objects.NodeObject],
        topology: Watching[objects.NRTObject],
        monotonic: Callable[[], float],
        uniform: backoff.Uniform = backoff.uniform,
    ) -> None:
        self._api, self._name, self._monotonic, self._uniform = api, node_name, monotonic, uniform
        self._node, self._topology = node, topology
        self._past = {"node": _Past(), "topology": _Past()}

    @property
    def topology_age(self) -> float:
        """Seconds since the NodeResourceTopology was last written; infinite when it never was."""
        return self._monotonic() - self._past["topology"].written_at

    def publish(self, changes: Sequence[ClusterChange]) -> None:
        """Write what differs from what the cluster holds.
        InputError with what to do when it is refused, ApiUnreachable when nobody answers; both objects are tried
        before either is reported. After a refusal the next try waits, longer each time, and the refusal stands."""
        mine = tuple(c for c in changes if isinstance(c, NodeChange))
        parts = tuple(c for c in changes if isinstance(c, TopologyPart))
        refusals = [
            *self._guarded("node", lambda: self._write_node(mine), bool(mine)),
            *self._guarded("topology", lambda: self._write_topology(parts), bool(parts)),
        ]
        problems = [problem for each in refusals if isinstance(each, InputError) for problem in each.problems]
        if problems:
            raise InputError(problems)
        if refusals:
            raise refusals[0]

    def _guarded(self, which: str, write: Callable[[], None], needed: bool) -> list[Refusal]:
        """The refusal of this write, or of an earlier one that it is too soon to repeat."""
        past, now = self._past[which], self._monotonic()
        if not needed:
            return []
        if past.refusal is not None and now < past.not_before:
            return [past.refusal]
        try:
            write()
        except ApiError as error:
            past.refusal = InputError(_problem(self._name, which, error))
            retry_after = error.retry_after_seconds
        except ApiUnreachable as error:
            past.refusal, retry_after = error, None
        else:
            past.refusal, past.failures = None, 0
            return []
        past.failures += 1
        past.not_before = self._monotonic() + backoff.pause(
            past.failures, self._uniform, retry_after=retry_after, last=60.0
        )
        return [past.refusal]

    def _write_node(self, changes: Sequence[NodeChange]) -> None:
        node = self._node.view().objects.get(self._name)
        if not (
            (node is None or not all(change.stands(node) for change in changes))
            or self._monotonic() - self._past["node"].written_at >= CONFIRM_SECONDS
        ):
            return
        body = of_node(changes, uid=node.metadata.uid if node else "")
        path = f"/api/v1/nodes/{self._name}/status"
        try:
            kind = STRATEGIC if any(change.conditions for change in changes) else ""
            self._node.written(self._api.request("PATCH", path, body=body, content_type=kind).body)
        except ApiError as error:
            if error.status != HTTPStatus.NOT_FOUND or node is None:
                raise
            return  # The node is gone, and the watch is about to say so: there is nothing to write to, and no error.
        self._past["node"].written_at = self._monotonic()

    def _write_topology(self, changes: Sequence[TopologyPart]) -> None:
        view = self._topology.view()
        current = view.objects.get(self._name) if view.listed else self._look()
        for attempt in range(CONFLICTS + 1):
            body = of_topology(current, changes) if current else None
            if body == {}:
                return
            try:
                self._send_topology(body, changes)
            except ApiError as error:
                # It was made, written or removed by another client since we last read it.
                missing = error.status == HTTPStatus.NOT_FOUND and not error.unknown_resource and current is not None
                if attempt == CONFLICTS or not (missing or error.status == HTTPStatus.CONFLICT):
                    raise
                current = self._look()
                continue
            self._past["topology"].written_at = self._monotonic()
            return

    def _send_topology(self, body: dict[str, object] | None, changes: Sequence[TopologyPart]) -> None:
        folder = self._topology.path
        if body is not None:
            answer = self._api.request("PATCH", f"{folder}/{self._name}", body=body)
        else:
            node = self._node.view().objects.get(self._name)
            if node is None:
                raise ApiError(404, "", "the Node that would own it is not known yet", named=self._name)
            whole = new_topology(node, changes, api_version=folder.removeprefix("/apis/").rpartition("/")[0])
            answer = self._api.request("POST", folder, body=whole)
        self._topology.written(answer.body)

    def _look(self) -> objects.NRTObject | None:
        """The object as it is now; None when there is none."""
        try:
            answer = self._api.request("GET", f"{self._topology.path}/{self._name}")
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND and not error.unknown_resource:
                return None
            raise
        self._topology.written(answer.body)
        return answer.read(objects.NRTObject)


_PERMISSION = {
    "node": "allow this identity to patch nodes/status",
    "topology": "allow this identity to get, create and patch noderesourcetopologies.topology.node.k8s.io",
}
_FIELD = "see which field the server means; an admission webhook may have its own rules"
_DO: dict[int, str] = {
    HTTPStatus.UNAUTHORIZED: "renew the credentials of this identity",
    HTTPStatus.NOT_FOUND: "see whether the node is registered under this name",
    HTTPStatus.CONFLICT: "see who else writes this object all the time",
    HTTPStatus.UNPROCESSABLE_ENTITY: _FIELD,
    HTTPStatus.BAD_REQUEST: _FIELD,
}
"""Remedies by status of the answer."""


def _problem(name: str, which: str, error: ApiError) -> Problem:
    """A refusal, with what its reader can do about it."""
    if which == "topology" and error.unknown_resource:
        do = "install the CRD noderesourcetopologies.topology.node.k8s.io, or set the mode of topologyReport to off"
    elif which == "node" and error.other_uid:
        do = "the Node was made again under this name, and the watch will show the new one"
    else:
        do = {**_DO, HTTPStatus.FORBIDDEN: _PERMISSION[which]}.get(error.status, "check the API server")
    about = f"node/{name}" if which == "node" else f"noderesourcetopology/{name}"
    return Problem(about, "published fields", "", str(error), f"{do}; it is tried again")
