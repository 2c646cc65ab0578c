"""Recorded sessions with a real API server, played against the sandbox's."""

from __future__ import annotations

from typing import Any

from tests.conformance import apiserver_rules
from tests.conformance.adapters import adapter


@adapter(apiserver_rules.INTERACTION)
def interaction(given: Any, expect: Any) -> tuple[Any, Any]:
    return given["differences"], expect
