"""Recorded sessions with a real API server, played against the sandbox's."""

from __future__ import annotations

from typing import Any

from tests.conformance import apiserver_cases
from tests.conformance.adapters import adapter


@adapter(apiserver_cases.INTERACTION)
def interaction(given: Any, expect: Any) -> tuple[Any, Any]:
    return given["differences"], expect
