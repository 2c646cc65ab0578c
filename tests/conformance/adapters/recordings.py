"""Recorded sessions with a real API server and with the kernel's resctrl, played against the emulations."""

from __future__ import annotations

from typing import Any

from tests.conformance import apiserver_rules, transcript_cases, transcript_view
from tests.conformance.adapters import adapter


@adapter(apiserver_rules.INTERACTION)
def interaction(given: Any, expect: Any) -> tuple[Any, Any]:
    return given["differences"], expect


@adapter(transcript_cases.OPERATION)
def operation(given: Any, expect: Any) -> tuple[Any, Any]:
    found = given["player"].play(given["op"])
    return found, {field: expect[field] for field in found}


@adapter(transcript_cases.SNAPSHOT)
def snapshot(given: Any, expect: Any) -> tuple[Any, Any]:
    wanted = {entry["path"]: {key: value for key, value in entry.items() if key != "path"} for entry in expect}
    return transcript_view.snapshot(given["player"]), wanted
