"""The clock of this machine."""

from __future__ import annotations

import threading
import time

from koordlite.clock import RealClock


def test_a_stop_ends_the_wait_at_once() -> None:
    stop = threading.Event()
    stop.set()
    assert RealClock(stop).wait(3600) is True


def test_a_wait_that_passes_says_so() -> None:
    assert RealClock().wait(0) is False
    assert RealClock().wait(-1) is False


def test_monotonic_never_goes_back_and_wall_is_today() -> None:
    clock = RealClock()
    assert clock.monotonic() <= clock.monotonic()
    assert abs(clock.wall() - time.time()) < 60
