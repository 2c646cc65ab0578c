"""Answers to requests: anything with a status, a media type and a body; plain words for what went wrong."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Protocol

from koordlite.model import printable


class Answer(Protocol):
    """An answer to a request."""

    @property
    def status(self) -> int:
        """HTTP status code."""

    @property
    def content_type(self) -> str:
        """Media type."""

    @property
    def body(self) -> bytes:
        """The whole content."""


@dataclasses.dataclass(frozen=True, slots=True)
class Plain:
    """A sentence as an answer."""

    status: int
    text: str
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Besides those that every answer has."""

    @property
    def content_type(self) -> str:
        """Plain text, so that nothing in it is obeyed by a browser."""
        return "text/plain; charset=utf-8"

    @property
    def body(self) -> bytes:
        """The sentence as a line."""
        return f"{printable.lines(self.text)}\n".encode(errors="replace")
