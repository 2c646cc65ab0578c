"""Objects handed on as a watch delivers them, and not kept: for whoever makes something smaller of many of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec

from koordlite.fault_guard import SubjectFaults
from koordlite.kube.watch.store import KEEPS, Store
from koordlite.model.errors import Problem

T = TypeVar("T")


class Feed(Store[T]):
    """A `Store` that is empty: `put` gets every object that came, `gone` the key of every one that went.

    Of an object that cannot be read nothing is handed on, so whoever listens keeps its last readable state.
    """

    def __init__(self, kind: str, shape: type[T], *, put: Callable[[T], None], gone: Callable[[str], None]) -> None:
        super().__init__(kind, shape)
        self.faults = SubjectFaults(f"watch of {kind} objects")
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
            self._drop(key)

    def _keep(self, key: str, fresh: T) -> None:
        self._hand_on(key, lambda: self._put(fresh))

    def _drop(self, key: str) -> None:
        self._hand_on(key, lambda: self._gone(key))

    def _hand_on(self, key: str, change: Callable[[], None]) -> None:
        """Hand objects on: a fault with one costs that object, and neither the others nor the watch."""
        try:
            change()
        except Exception as error:  # noqa: BLE001 - whoever listens works on what strangers write
            self._problems[key] = Problem(f"{self._kind}/{key}", "object", "", self.faults.note(key, error), KEEPS)
