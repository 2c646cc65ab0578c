"""Objects handed on as a watch delivers them, and not kept: for whoever makes something smaller of many of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec

from koordlite.kube.watch.store import Store

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
            meta = self._meta(raw)
            if meta is None:
                continue
            if meta.resource_version and before.get(meta.key) == meta.resource_version:
                self._versions[meta.key] = meta.resource_version
            else:
                self._take(raw, meta)
        for key in before.keys() - self._versions.keys():
            self._gone(key)

    def _keep(self, key: str, fresh: T) -> None:
        del key
        self._put(fresh)

    def _drop(self, key: str) -> None:
        self._gone(key)
