"""Places: what a change is about, as a value that prints itself and is read back.

Each kind of change has its kind of place; `koordlite.changes` finds them all.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable
from typing import Literal

UpdateType = Literal["", "cgroup", "resctrl-schema", "default"]
"""Koordinator's words for what a write is about; empty for what updates no resource: an eviction."""
_MOST_PLACES = 8192
OTHER = "other"
"""Type of writes where the kind has no word for the place."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlaceKind:
    """One kind of place."""

    name: str
    form: str
    """Printed form of the parts of a place: `%s` for each."""
    pattern: re.Pattern[str]
    """Reads what `form` prints, with a named group for each part."""
    metrics: frozenset[str]
    """The words by which writes are counted. A closed set: a time series for each pod or process would never end."""
    metric: Callable[[tuple[str, ...]], str] | None = None
    """The word by the parts of a place; None where there is only one word."""
    update: UpdateType
    """Name in Koordinator's histogram of writes."""
    _places: dict[tuple[str, ...], Place] = dataclasses.field(default_factory=dict, repr=False)
    """Places by their parts, since the same places are named several times in every tick."""

    @classmethod
    def of(
        cls,
        name: str,
        form: str,
        /,
        *,
        metrics: Iterable[str] = (),
        metric: Callable[[tuple[str, ...]], str] | None = None,
        update: UpdateType = "default",
        **parts: str,
    ) -> PlaceKind:
        """A kind whose places print as `form`, in which braces name the parts. `parts` has their patterns, by default
        all but a slash. Without `metrics` the name is the only word."""
        pattern = re.sub(r"\\{(\w+)\\}", lambda at: f"(?P<{at[1]}>{parts.get(at[1], '[^/]*')})", re.escape(form))
        return cls(
            name=name,
            form=re.sub(r"\{\w+\}", "%s", form),
            pattern=re.compile(pattern),
            metrics=frozenset(metrics or (name,)),
            metric=metric,
            update=update,
        )

    @property
    def is_resctrl(self) -> bool:
        """Tell whether it is a place of the resctrl file system."""
        return self.update == "resctrl-schema"

    def place(self, *parts: str) -> Place:
        """The place with these parts."""
        if (place := self._places.get(parts)) is None:
            if len(self._places) >= _MOST_PLACES:
                self._places.clear()
            place = self._places[parts] = Place(self, parts)
        return place

    def parse(self, text: str) -> Place | None:
        """The place that prints as `text`; None when it is of another kind."""
        match = self.pattern.fullmatch(text)
        return self.place(*match.groups()) if match else None


class Place:
    """One place: its kind, and the parts that tell it from others of the kind."""

    __slots__ = ("_hash", "kind", "parts")
    kind: PlaceKind
    parts: tuple[str, ...]
    _hash: int

    def __init__(self, kind: PlaceKind, parts: tuple[str, ...]) -> None:
        object.__setattr__(self, "kind", kind)
        object.__setattr__(self, "parts", parts)
        object.__setattr__(self, "_hash", hash((kind.name, parts)))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a Place is a value and never changes")

    def part(self, name: str) -> str:
        """The part of this name (`cgroup`, `field`, …); empty where this kind has none."""
        at = self.kind.pattern.groupindex.get(name)
        return "" if at is None else self.parts[at - 1]

    @property
    def metric(self) -> str:
        """Kind under which writes here are counted: one of a closed set of words."""
        metric, words = self.kind.metric, self.kind.metrics
        word = metric(self.parts) if metric else next(iter(words))
        return word if word in words else OTHER

    def __str__(self) -> str:
        return self.kind.form % self.parts

    def __repr__(self) -> str:
        return f"Place({self.kind.name}: {self})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Place) and self.kind is other.kind and self.parts == other.parts

    def __hash__(self) -> int:
        return self._hash

    def __lt__(self, other: Place) -> bool:
        return str(self) < str(other)

    def __deepcopy__(self, memo: object) -> Place:
        return self
