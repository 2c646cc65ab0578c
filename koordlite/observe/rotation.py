"""Looking at much in turns: each tick at a part of it, so that the whole was seen within a few seconds.

A machine of a few pods is small enough to be seen whole each tick; on a full one that would be thousands of files.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterable
from typing import Generic, TypeVar

from koordlite.unchanged import last_if_equal

T = TypeVar("T")


class Rotation(Generic[T]):
    """Values by name, each read when its name comes up first, when asked for, and otherwise in turn."""

    def __init__(self, read: Callable[[str], T | None], *, seconds: float, at_least: int) -> None:
        """`read` gives None for what is gone. All are read within `seconds`, and `at_least` so many each time."""
        self._read, self._seconds, self._at_least = read, seconds, at_least
        self._values: dict[str, T] = {}
        self._due: set[str] = set()
        self._used: set[str] = set()
        self._time: float | None = None
        self._names: tuple[str, ...] | None = None
        self._ordered: dict[str, None] = {}
        self._all: dict[str, T] | None = None

    def begin(self, now: float, *, fresh: Collection[str] = ()) -> None:
        """Begin a round at the time `now`; names in `fresh` are read anew."""
        passed = self._seconds if self._time is None else max(0.0, now - self._time)
        share = math.ceil(len(self._values) * min(1.0, passed / self._seconds))
        # What was read last stands last.
        self._due = {*itertools.islice(self._values, max(self._at_least, share)), *fresh}
        self._used.clear()
        self._time = now

    def get(self, name: str) -> T | None:
        """The value of `name`, at most `seconds` old; None when it is gone."""
        self._used.add(name)
        value = self._values.get(name)
        if value is not None and name not in self._due:
            return value
        return self.reread(name)

    def reread(self, name: str) -> T | None:
        """The value of `name` as it is at this moment."""
        self._used.add(name)
        self._due.discard(name)
        last, value = self._values.pop(name, None), self._read(name)
        if value is None:
            self._all = None
            return None
        value = self._values[name] = last_if_equal(last, value)
        if value is not last:
            self._all = None
        return value

    def renew(self) -> bool:
        """Read what is due. True when any of it has changed."""
        before = {name: self._values.get(name) for name in self._due}
        return any(self.reread(name) is not value for name, value in before.items())

    def end(self) -> None:
        """Forget what this round did not ask for."""
        if len(self._used) < len(self._values):
            self._values = {name: value for name, value in self._values.items() if name in self._used}

    def all(self, names: Iterable[str]) -> dict[str, T]:
        """Readings of `names` that exist, in their order; the same object as the last time while all are the same."""
        names = tuple(names)
        if names != self._names:
            self._names, self._ordered, self._all = names, dict.fromkeys(names), None
        self._used.update(self._ordered)
        due, values = self._due, self._values
        for name in [name for name in self._ordered if name in due or name not in values]:
            self.reread(name)
        if self._all is None:
            self._all = {name: values[name] for name in self._ordered if name in values}
        return self._all

    def turn(self, now: float, names: Iterable[str], *, fresh: Collection[str] = ()) -> dict[str, T]:
        """Make a whole round at the time `now`: readings of `names` that exist, in their order."""
        self.begin(now, fresh=fresh)
        values = self.all(names)
        self.end()
        return values

    def forget(self, names: Iterable[str]) -> None:
        """Take none of these from memory."""
        for name in names:
            self._values.pop(name, None)

    def clear(self) -> None:
        """Take nothing from memory."""
        self._values.clear()
