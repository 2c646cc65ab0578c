"""Keeps what is known of earlier evictions on the cluster: one ConfigMap in the descheduler's own namespace.

Why not annotations on the owners: that needs leave to patch every kind of workload there is, makes their controllers
and whoever compares them with a repository see a change, and goes away with an owner that is created again. One
ConfigMap needs leave for one object, outlives pods and leaders, and people can read it and delete it."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from typing import TYPE_CHECKING

import msgspec

from descheduler.history.past_evictions import Intent, Past, StoredMemory
from koordlite.kube.client.answers import ApiError
from koordlite.model.errors import InputError, Problem, refusing

if TYPE_CHECKING:
    from koordlite.kube.client.access import Api

NAME = "descheduler-memory"
KEY = "history.json"
VERSION = 1
MOST_BYTES = 900_000
"""An API server refuses a ConfigMap of more than one MiB."""


class _Document(msgspec.Struct, frozen=True):
    version: int
    owners: dict[str, Past]
    seen: dict[str, dict[str, int]] = {}
    """Pictures in a row, by pod uid and reason."""
    pending: tuple[Intent, ...] = ()


class _ConfigMap(msgspec.Struct, frozen=True):
    data: dict[str, str] | None = None


def encode(memory: StoredMemory) -> str:
    """The text that is kept; the same values give the same text.

    Of more than a ConfigMap holds, what matters least is left out: older moves of an owner, then counts of sightings,
    which only have to be made again, then owners that were not seen for longest.
    """
    return next(
        (text for fewer in _shortened(memory) if len(text := _text(fewer)) <= MOST_BYTES), _text(StoredMemory())
    )


def _shortened(memory: StoredMemory) -> Iterator[StoredMemory]:
    yield memory
    for most in (3, 1):
        history = {
            owner: msgspec.structs.replace(one, moves=one.moves[-most:]) for owner, one in memory.history.items()
        }
        yield StoredMemory(history, memory.sightings, memory.pending)
    owners = sorted(history, key=lambda owner: (-history[owner].seen, owner))
    while owners:
        yield StoredMemory({owner: history[owner] for owner in sorted(owners)}, {}, memory.pending)
        owners = owners[: len(owners) // 2]


def _text(memory: StoredMemory) -> str:
    sightings: dict[str, dict[str, int]] = {}
    for (uid, reason), count in memory.sightings.items():
        sightings.setdefault(uid, {})[reason] = count
    return msgspec.json.encode(
        _Document(VERSION, dict(memory.history), sightings, memory.pending), order="deterministic"
    ).decode()


def decode(text: str, where: str) -> StoredMemory:
    """Read what `encode` wrote; InputError when it is something else."""
    do = "delete the ConfigMap: the history starts again; until then no pod counts as having come back"
    with refusing(where, f"data[{KEY}]", text[:200], do):
        document = msgspec.json.decode(text, type=_Document)
    if document.version != VERSION:
        why = f"version {document.version} is not the one that is understood, {VERSION}"
        raise InputError(Problem(where, f"data[{KEY}].version", str(document.version), why, do))
    sightings = {(uid, reason): count for uid, counts in document.seen.items() for reason, count in counts.items()}
    return StoredMemory(document.owners, sightings, document.pending)


class ConfigMapStore:
    """The ConfigMap, read when a process begins to lead, written when there is something new."""

    def __init__(self, api: Api, namespace: str) -> None:
        self._api, self._namespace = api, namespace
        self._path = f"/api/v1/namespaces/{namespace}/configmaps/{NAME}"
        self._written = ""

    def load(self) -> StoredMemory:
        """Read the memory from the cluster; empty when nothing was ever kept.

        InputError when what is there cannot be read, ApiError or ApiUnreachable when it cannot be fetched: to go on
        without it would be to forget every loop.
        """
        data: dict[str, str] = {}
        try:
            data = self._api.request("GET", self._path).read(_ConfigMap).data or {}
        except ApiError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
        memory = decode(data[KEY], f"configmap/{self._namespace}/{NAME}") if KEY in data else StoredMemory()
        self._written = encode(memory)
        return memory

    def save(self, memory: StoredMemory) -> None:
        """Keep it, unless the same stands there already. The leader alone writes, so the last one wins; ApiError or
        ApiUnreachable when it was not kept."""
        text = encode(memory)
        if text == self._written:
            return
        try:
            self._api.request("PATCH", self._path, body={"data": {KEY: text}})
        except ApiError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            labels = {"app.kubernetes.io/name": "descheduler"}
            meta = {"name": NAME, "namespace": self._namespace, "labels": labels}
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {KEY: text}}
            self._api.request("POST", self._path.rpartition("/")[0], body=body)
        self._written = text
