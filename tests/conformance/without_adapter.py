"""Functions of the vectors that no adapter asks about yet, each with the reason. A new one has to be listed here."""

from __future__ import annotations

REASONS: dict[str, str] = {}
"""Function or kind to why no adapter asks for it."""
