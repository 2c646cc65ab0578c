"""Objects as a watch delivers them: decoded one by one, so that a broken one harms only itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from koordlite.fault_guard import SubjectFaults
from koordlite.model.errors import UNREADABLE, Problem

T = TypeVar("T")
KEEPS = "fix the object; its last readable state counts"


class Meta(msgspec.Struct, rename="camel"):
    """The part of an object that is read before the rest."""

    name: str = ""
    namespace: str = ""
    resource_version: str = ""

    @property
    def key(self) -> str:
        """`namespace/name`, or the name of an object that has no namespace."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class _Any(msgspec.Struct):
    metadata: Meta = msgspec.field(default_factory=Meta)


_decode_any = msgspec.json.Decoder(_Any).decode


class Store(Generic[T]):
    """Objects of one kind by `namespace/name`. An object that arrives again unchanged stays the same object."""

    def __init__(self, kind: str, shape: type[T]) -> None:
        self._kind = kind
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(shape)
        self._objects: dict[str, T] = {}
        self._versions: dict[str, str] = {}
        self._problems: dict[str, Problem] = {}
        self._mapping: dict[str, T] | None = None

    @property
    def objects(self) -> Mapping[str, T]:
        """All objects; the mapping is never changed afterwards."""
        if self._mapping is None:
            self._mapping = dict(self._objects)
        return self._mapping

    def __len__(self) -> int:
        return len(self._objects)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Objects that cannot be read at present."""
        return tuple(self._problems.values())

    def replace(self, items: Iterable[msgspec.Raw]) -> None:
        """Take over a whole list: what is not in it is gone. Of a broken object the last good state stays."""
        self.begin()
        for raw in items:
            self.arrive(raw)
        self.complete()

    def begin(self) -> None:
        """A whole list comes object by object: `arrive` for each, then `complete`."""
        self._arrived: set[str] = set()

    def arrive(self, raw: msgspec.Raw) -> None:
        """Take over one object of the list. Of a broken object the last good state stays."""
        meta = self._meta(raw)
        self._arrived.add(meta.key if meta else "")
        if meta is not None:
            self._take(raw, meta)

    def complete(self) -> None:
        """The list is whole: what did not arrive is gone."""
        for key in (self._versions.keys() | self._problems.keys()) - self._arrived:
            self._problems.pop(key, None)
            if self._versions.pop(key, None) is not None:
                self._drop(key)

    def put(self, raw: msgspec.Raw | bytes) -> str:
        """Take over one object, unless a later state of it is held; returns its resource version, if it has one.
        A later one is held when our own write was answered before the watch brought an earlier one."""
        meta = self._meta(raw)
        if meta is None:
            return ""
        if not is_older(meta.resource_version, self._versions.get(meta.key, "")):
            self._take(raw, meta)
        return meta.resource_version

    def remove(self, raw: msgspec.Raw | bytes) -> str:
        """Forget one object, unless a later one of that name is held; returns the version of its removal."""
        meta = self._meta(raw)
        if meta is None:
            return ""
        if not is_older(meta.resource_version, self._versions.get(meta.key, "")):
            self._versions.pop(meta.key, None)
            self._problems.pop(meta.key, None)
            self._drop(meta.key)
        return meta.resource_version

    def _take(self, raw: msgspec.Raw | bytes, meta: Meta) -> None:
        """One object at its newest version."""
        self._versions[meta.key] = meta.resource_version
        try:
            fresh = self._decoder.decode(raw)
        except UNREADABLE as error:
            self._problems[meta.key] = Problem(f"{self._kind}/{meta.key}", "object", "", str(error), KEEPS)
            return
        self._problems.pop(meta.key, None)
        self._keep(meta.key, fresh)

    def _keep(self, key: str, fresh: T) -> None:
        """Hold an object that could be read."""
        if self._objects.get(key) != fresh:
            self._objects[key], self._mapping = fresh, None

    def _drop(self, key: str) -> None:
        """An object is gone."""
        if self._objects.pop(key, None) is not None:
            self._mapping = None

    def _meta(self, raw: msgspec.Raw | bytes) -> Meta | None:
        """Name and version, also of an object that is broken elsewhere; None, and a problem, without a name."""
        try:
            meta = _decode_any(raw).metadata
            why = "" if meta.name else "it has no name"
        except UNREADABLE as error:
            why = str(error)
        if why:
            text = bytes(raw)[:200].decode(errors="replace")
            self._problems[""] = Problem(f"{self._kind} without a name", "metadata", text, why, "fix the object")
            return None
        return meta


def is_older(version: str, than: str) -> bool:
    """Tell if one resource version was given before the other; unknown (False) unless both are numbers."""
    both = version.isascii() and version.isdigit() and than.isascii() and than.isdigit()
    # As texts: a number of thousands of digits, which no server gives, is none that Python reads.
    first, second = version.lstrip("0"), than.lstrip("0")
    return both and (len(first), first) < (len(second), second)


class Feed(Store[T]):
    """A `Store` that is empty: `put` gets every object that came, `removed` the key of every one that went.
    Of an object that cannot be read nothing is handed on, so whoever listens keeps its last readable state."""

    def __init__(
        self, kind: str, shape: type[T], *, put: Callable[[T], object], removed: Callable[[str], object]
    ) -> None:
        super().__init__(kind, shape)
        self.faults = SubjectFaults(f"watch of {kind} objects")
        self._put, self._gone = put, removed

    def __len__(self) -> int:
        return len(self._versions)

    def arrive(self, raw: msgspec.Raw) -> None:
        """Hand on one object of a list, unless it is held in the same version."""
        meta = self._meta(raw)
        self._arrived.add(meta.key if meta else "")
        if meta is not None and not (meta.resource_version and self._versions.get(meta.key) == meta.resource_version):
            self._take(raw, meta)

    def _keep(self, key: str, fresh: T) -> None:
        self._hand_on(key, lambda: self._put(fresh))

    def _drop(self, key: str) -> None:
        self._hand_on(key, lambda: self._gone(key))

    def _hand_on(self, key: str, change: Callable[[], object]) -> None:
        """Hand objects on: a fault with one costs that object, and neither the others nor the watch."""
        try:
            change()
        except Exception as error:  # noqa: BLE001 - whoever listens works on what strangers write
            self._problems[key] = Problem(f"{self._kind}/{key}", "object", "", self.faults.note(key, error), KEEPS)
