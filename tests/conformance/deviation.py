"""One rule by which we answer differently on purpose."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True)
class Deviation:
    """Cases of these functions that differ by one rule of ours."""

    functions: tuple[str, ...]
    applies: Callable[[Any, Any, Any], bool]
    """Whether the rule explains a difference: (input, expected, found)."""
    rule: str
