"""Waiting for a kernel that takes its own time: looks again and again, and says what never came."""

from __future__ import annotations

import time
from collections.abc import Callable

LOOK_SECONDS = 0.02


def until(
    holds: Callable[[], object], what: str | Callable[[], object] = "what was waited for", *, seconds: float = 40.0
) -> float:
    """Look until `holds`; the seconds it took. AssertionError names `what`, which may be worked out only then, when it
    never did: after so long that a machine busy with other work has had its time."""
    began = time.monotonic()
    while not holds():
        if time.monotonic() - began > seconds:
            raise AssertionError(f"after {seconds} s still not: {what() if callable(what) else what}")
        time.sleep(LOOK_SECONDS)
    return time.monotonic() - began


def for_a_while(holds: Callable[[], object], what: str, *, seconds: float) -> None:
    """Look for `seconds`; AssertionError names `what` the first time it does not hold."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert holds(), f"did not stay so: {what}"
        time.sleep(LOOK_SECONDS)
