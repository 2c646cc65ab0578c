"""What every strategy's configuration section has in common."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

Mode = Literal["off", "observe", "enforce"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StrategySettings:
    """Base of every strategy's `Config`."""

    mode: Mode = "observe"
    """off: not judged at all. observe: judged and reported, nothing is written. enforce: judged, reported, written."""


def bounded(default: Any, *, ge: float | None = None, le: float | None = None) -> Any:
    """A field with a default and the smallest and largest value that is accepted."""
    return dataclasses.field(default=default, metadata={"ge": ge, "le": le})
