"""Recorded sessions with an API server as cases: each interaction, with what differed when it was played."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.conformance.apiserver_player import Player

INTERACTION = "apiserver interaction"


def is_recording(document: Any) -> bool:
    """Whether a file holds a session with an API server."""
    return isinstance(document, list) and bool(document) and {"n", "request", "response"} <= set(document[0])


def of_recording(document: list[Any]) -> Iterator[tuple[str, str, Any, Any]]:
    """(function, source, input, expect) of each interaction; expected is no difference."""
    for interaction, differences in Player(document).play():
        source = f"#{interaction['n']} {interaction['title']}"
        yield INTERACTION, source, {"interaction": interaction, "differences": differences}, []
