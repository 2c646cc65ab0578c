"""Objects handed on as a watch delivers them, and not kept: for whoever makes something smaller of many of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

import msgspec

from koordlite.kube.watch.store import BROKEN, KEEPS, Store, is_older
from koordlite.model.errors import Problem

T = TypeVar("T")


class Feed(Store[T]):
    """A `Store` that is empty: `put` gets every object that came, `gone` the key of every one that went.

    Of an object that cannot be read nothing is handed on, so whoever listens keeps its last readable state.
    """

    def __init__(self, kind: str, shape: type[T], *, put: Callable[[T], None], gone: Callable[[str], None]) -> None:
        super().__init__(kind, shape)
        self._put, self._gone = put, gone

    def __len__(self) -> int:
        return len(self._versions)

    def replace(self, items: Iterable[msgspec.Raw]) -> None:
        """Hand on a whole list; what is not in it is gone. What is held in the same version is not handed on again."""
        before = self._versions
        self._versions, self._problems = {}, {}
        for raw in items:
            self._take(raw, {}, before)
        for key in before.keys() - self._versions.keys():
            self._gone(key)

    def remove(self, raw: msgspec.Raw | bytes) -> str:
        """One object is gone, unless a later one of that name was handed on."""
        meta = self._meta(raw)
        if meta is None:
            return ""
        key = f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name
        if not is_older(meta.resource_version, self._versions.get(key, "")):
            self._versions.pop(key, None)
            self._problems.pop(key, None)
            self._gone(key)
        return meta.resource_version

    def _take(
        self, raw: msgspec.Raw | bytes, before: Mapping[str, T], versions: Mapping[str, str] | None = None
    ) -> str | None:
        del before
        meta = self._meta(raw)
        if meta is None:
            return None
        key = f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name
        self._versions[key] = meta.resource_version
        if versions is not None and meta.resource_version and versions.get(key) == meta.resource_version:
            return key
        try:
            fresh = self._decoder.decode(raw)
        except BROKEN as error:
            self._problems[key] = Problem(f"{self._kind}/{key}", "object", "", str(error), KEEPS)
            return key
        self._problems.pop(key, None)
        self._put(fresh)
        return key
