"""Objects as a watch delivers them: decoded one by one, so that a broken one harms only itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from koordlite.model.errors import Problem

T = TypeVar("T")
BROKEN = (msgspec.DecodeError, RecursionError)
"""What reading JSON of others can end in; the second when it is nested deeper than anybody would write."""
KEEPS = "fix the object; its last readable state counts"


class _Meta(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""


class _Any(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)


class Store(Generic[T]):
    """Objects of one kind by `namespace/name`. An object that arrives again unchanged stays the same object."""

    def __init__(self, kind: str, shape: type[T]) -> None:
        self._kind = kind
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(shape)
        self._objects: dict[str, T] = {}
        self._versions: dict[str, str] = {}
        self._problems: dict[str, Problem] = {}
        self._shown: dict[str, T] | None = None

    @property
    def objects(self) -> Mapping[str, T]:
        """All objects; the mapping is never changed afterwards."""
        if self._shown is None:
            self._shown = dict(self._objects)
        return self._shown

    def __len__(self) -> int:
        return len(self._objects)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Objects that cannot be read at present."""
        return tuple(self._problems.values())

    def replace(self, items: Iterable[msgspec.Raw]) -> None:
        """Take over a whole list: what is not in it is gone. Of a broken object the last good state stays."""
        before = self._objects
        self._objects, self._versions, self._problems, self._shown = {}, {}, {}, None
        for raw in items:
            key = self._take(raw, before)
            if key is not None and key not in self._objects and key in before:
                self._objects[key] = before[key]

    def put(self, raw: msgspec.Raw | bytes) -> str:
        """Take over one object, unless a later state of it is held; returns its resource version, if it has one.

        A later one is held when our own write was answered before the watch brought an earlier one.
        """
        meta = self._meta(raw)
        if meta is None:
            return ""
        held = self._versions.get(_key(meta), "")
        if not is_older(meta.resource_version, held):
            self._take(raw, self._objects)
        return meta.resource_version

    def remove(self, raw: msgspec.Raw | bytes) -> str:
        """Forget one object, unless a later one of that name is held; returns the version of its removal."""
        meta = self._meta(raw)
        if meta is None:
            return ""
        key = _key(meta)
        if is_older(meta.resource_version, self._versions.get(key, "")):
            return meta.resource_version
        self._versions.pop(key, None)
        self._problems.pop(key, None)
        if self._objects.pop(key, None) is not None:
            self._shown = None
        return meta.resource_version

    def _take(self, raw: msgspec.Raw | bytes, before: Mapping[str, T]) -> str | None:
        meta = self._meta(raw)
        if meta is None:
            return None
        key = _key(meta)
        self._versions[key] = meta.resource_version
        try:
            fresh = self._decoder.decode(raw)
        except BROKEN as error:
            self._problems[key] = Problem(f"{self._kind}/{key}", "object", "", str(error), KEEPS)
            return key
        self._problems.pop(key, None)
        known = before.get(key)
        self._objects[key] = known if known is not None and known == fresh else fresh
        self._shown = None
        return key

    def _meta(self, raw: msgspec.Raw | bytes) -> _Meta | None:
        """Name and version, also of an object that is broken elsewhere; None, and a problem, without a name."""
        try:
            meta = msgspec.json.decode(raw, type=_Any).metadata
            why = "" if meta.name else "it has no name"
        except BROKEN as error:
            why = str(error)
        if why:
            text = bytes(raw)[:200].decode(errors="replace")
            self._problems[""] = Problem(f"{self._kind} without a name", "metadata", text, why, "fix the object")
            return None
        return meta


def is_older(version: str, than: str) -> bool:
    """Whether one resource version was given before the other; unknown (False) unless both are numbers."""
    both = version.isascii() and version.isdigit() and than.isascii() and than.isdigit()
    return both and int(version) < int(than)


def _key(meta: _Meta) -> str:
    return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name
