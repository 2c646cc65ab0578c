"""Properties of a value that never changes, worked out when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

T = TypeVar("T")


class Once:
    """Keeps what was worked out of an object; a copy of the object that differs begins without it."""

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """Result of `make`, worked out once for this object. It must follow from the object alone: not from the time,
        or from what becomes of other objects."""
        results: dict[Hashable, Any] = self.__dict__.setdefault("_known", {})
        if key not in results:
            results[key] = make()
        value: T = results[key]
        return value
