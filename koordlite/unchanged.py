"""Identity for what did not change: it stays the same object, and what depends on it is not computed again.

Two rules make one idea (docs/design.md, "What did not change"). A value that equals the last one is replaced by the
last one. What was worked out of objects holds as long as these are the same objects: to see that costs nothing.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

from koordlite.model.snapshot import Snapshot

S = TypeVar("S")
T = TypeVar("T")
K = TypeVar("K")
H = TypeVar("H", bound=Hashable)
P = ParamSpec("P")
Picture = TypeVar("Picture", bound=Snapshot)


def last_if_equal(last: object, value: T) -> T:
    """`last` where it is of the type of `value` and equal to it, else `value`."""
    return last if isinstance(last, type(value)) and last == value else value


def with_equal_shared(values: Mapping[K, H]) -> dict[K, H]:
    """`values` with one object for all that are equal: thousands of groups are alike."""
    shared: dict[H, H] = {}
    return {key: shared.setdefault(value, value) for key, value in values.items()}


class Unchanged:
    """Values by name, each with what it was worked out of."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._worked_out: dict[str, tuple[tuple[object, ...], Any]] = {}
        self._looked_at: dict[str, tuple[str, ...]] = {}
        self._each: dict[str, tuple[object, dict[int, tuple[object, Any]], tuple[Any, ...]]] = {}

    def same(self, name: str, value: T) -> T:
        """`value`, or the last one under `name` if it is equal."""
        last = self._values.get(name)
        if last is value:
            return value
        result = self._values[name] = last_if_equal(last, value)
        return result

    def of(self, name: str, inputs: tuple[object, ...], work: Callable[[], T]) -> T:
        """Result of `work` for `inputs` the last time, or gives now where one of them is another object."""
        last = self._worked_out.get(name)
        if last is None or not _are_same(last[0], inputs):
            last = self._worked_out[name] = inputs, work()
        result: T = last[1]
        return result

    def changed(self, name: str, inputs: tuple[object, ...]) -> bool:
        """Tell whether one of the inputs is another object than the last time."""
        last = self._worked_out.get(name)
        if last is not None and _are_same(last[0], inputs):
            return False
        self._worked_out[name] = inputs, None
        return True

    def each(self, name: str, items: Sequence[S], work: Callable[[S], T], *, context: object = None) -> tuple[T, ...]:
        """Results of `work` for each of the items, in their order; the same tuple while all are the same objects.

        `context` is what else `work` goes by: with another one all is worked out again.
        """
        formerly, before, last = self._each.get(name, (context, {}, ()))
        if formerly is not context and formerly != context:
            before = {}
        # By identity: the item is kept beside its value, so that its id is not given to another one.
        by_id = {
            id(item): entry if (entry := before.get(id(item))) and entry[0] is item else (item, work(item))
            for item in items
        }
        values = tuple(value for _, value in by_id.values())
        values = last if _are_same(last, values) else values
        self._each[name] = context, by_id, values
        return values

    def recall(self, name: str, snapshot: Snapshot, inputs: tuple[object, ...]) -> Any | None:
        """Return what was kept under `name` if neither an input is another object, nor a part of `snapshot` that was
        looked at for it; else None."""
        parts = tuple(getattr(snapshot, part) for part in self._looked_at.get(name, ()))
        last = self._worked_out.get(name)
        return last[1] if last and _are_same(last[0], (*inputs, *parts)) else None

    def keep(self, name: str, watched: WatchedSnapshot, inputs: tuple[object, ...], value: object) -> None:
        """Keep what was worked out of `inputs` and of those parts of the picture that were looked at."""
        self._looked_at[name] = tuple(watched.looked_at)
        self._worked_out[name] = (*inputs, *watched.looked_at.values()), value


class WatchedSnapshot(Snapshot):
    """A picture that notes which of its parts are looked at."""

    __slots__ = ("_snapshot", "looked_at")
    _snapshot: Snapshot
    looked_at: dict[str, object]

    def __init__(self, snapshot: Snapshot) -> None:
        object.__setattr__(self, "_snapshot", snapshot)
        object.__setattr__(self, "looked_at", {})

    def __getattr__(self, part: str) -> Any:
        """Called for a part that is not filled in yet: from then on the part is as quick as that of any picture."""
        value = self.looked_at[part] = getattr(self._snapshot, part)
        object.__setattr__(self, part, value)
        return value


def derived(work: Callable[Concatenate[Picture, P], T]) -> Callable[Concatenate[Picture, P], T]:
    """Give the last value of `work` again while the other arguments are equal, and the parts of the picture that it
    looked at are the same objects. Its value is never changed; an iterator would be used up, and is none."""
    last: tuple[object, Mapping[str, object], Any] = (), {}, None

    @functools.wraps(work)
    def value_of(snapshot: Picture, /, *args: P.args, **kwargs: P.kwargs) -> T:
        nonlocal last
        arguments, parts, value = last  # At once: another thread may judge other pictures.
        if not parts or arguments != (args, kwargs) or any(getattr(snapshot, p) is not v for p, v in parts.items()):
            watched: Any = WatchedSnapshot(snapshot)
            value = work(watched, *args, **kwargs)
            last = (args, kwargs), watched.looked_at, value
        result: T = value
        return result

    return value_of


def _are_same(first: tuple[object, ...], second: tuple[object, ...]) -> bool:
    return len(first) == len(second) and all(map(operator.is_, first, second))
