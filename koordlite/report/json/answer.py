"""Answer of a page of the agent or of the descheduler over HTTP; `koordlite.http` sends it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class Answer(msgspec.Struct, frozen=True):
    """An HTTP answer."""

    status: int
    content_type: str
    body: bytes
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Besides those that every answer has."""
