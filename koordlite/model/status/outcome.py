"""What became of the changes that were to be made."""

from __future__ import annotations

import msgspec

from koordlite.model.place import Place


class AppliedStep(msgspec.Struct, frozen=True):
    """One write that was tried."""

    place: Place
    """`Change.place` of what was written."""
    value: str
    """What was written, as the change words it."""
    ok: bool = True
    error: str = ""
    """The refusal: errno name and the kernel's own words; empty when it went well."""
    seconds: float = 0.0
    """How long the write took."""


class ForeignWrite(msgspec.Struct, frozen=True):
    """A value of ours that another program changed."""

    place: Place
    ours: str
    found: str


class FileTrouble(msgspec.Struct, frozen=True):
    """What stands between us and one place, counted since the start of this run."""

    place: Place
    refused: int
    """Writes that the kernel or the cluster refused."""
    last_error: str
    """The last refusal, in its own words; empty without one."""
    foreign: int
    """How often another program changed what we wrote, as long as the fight goes on."""
    kept_off_seconds: float
    """How long until it is corrected the next time, 0 when nothing keeps us from it."""
