"""What became of the changes that were to be made."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class AppliedStep:
    """One write that was tried."""

    place: str
    """`Change.place` of what was written."""
    value: str
    """What was written, as the change words it."""
    ok: bool = True
    error: str = ""
    """The refusal: errno name and the kernel's own words; empty when it went well."""
    seconds: float = 0.0
    """How long the write took."""


@dataclasses.dataclass(frozen=True, slots=True)
class ForeignWrite:
    """A value of ours that somebody else changed."""

    place: str
    ours: str
    found: str
