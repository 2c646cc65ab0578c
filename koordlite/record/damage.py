"""What can be wrong with a record, as exceptions."""

from __future__ import annotations

from koordlite.model.errors import KoordliteError


class RecordError(KoordliteError):
    """A file is no record, or none that this version can read."""


class Damage(RecordError):
    """A part of a record that cannot be understood; what stands before it is whole."""
