"""Parts of the picture that did not change stay the same objects.

Most of a node is the same as a second ago. What is worked out of such a part still holds, and who did so needs only to
ask whether it is the same object (`strategies.Answers`).
"""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


class Steady:
    """Remembers the last value of each part."""

    def __init__(self) -> None:
        self._kept: dict[str, object] = {}

    def same(self, part: str, value: T) -> T:
        """`value`, or the equal object of the last picture."""
        kept = self._kept.get(part)
        if isinstance(kept, type(value)) and kept == value:
            return kept
        self._kept[part] = value
        return value
