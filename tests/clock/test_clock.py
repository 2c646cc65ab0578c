"""The clock of this machine."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from koordlite.clock import RealClock, SignalEvent


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


@pytest.fixture
def alarms() -> Iterator[list[SignalEvent]]:
    """Events that a signal handler sets every four milliseconds of CPU time, wherever the main thread is."""
    events: list[SignalEvent] = []
    before = signal.signal(signal.SIGVTALRM, lambda *_: [event.set() for event in events])
    signal.setitimer(signal.ITIMER_VIRTUAL, 0.004, 0.004)
    yield events
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    signal.signal(signal.SIGVTALRM, before)


@pytest.mark.timeout(20)
def test_a_signal_in_the_middle_of_a_wait_never_blocks(alarms: list[SignalEvent]) -> None:
    event = SignalEvent()
    alarms.append(event)
    seen = 0
    while seen < 50:  # `threading.Event` hangs at the first or second.
        seen += event.wait(0.0)
        event.clear()
    assert seen == 50


def test_an_event_is_set_until_it_is_cleared() -> None:
    event = SignalEvent()
    assert event.is_set() is False
    assert event.wait(0.001) is False
    for _ in range(100_000):  # More than a pipe holds.
        event.set()
    assert event.is_set() is True
    assert event.wait() is True
    assert event.wait(1e12) is True
    event.clear()
    assert event.is_set() is False


def test_every_program_that_handles_signals_sets_such_an_event() -> None:
    root = Path(__file__).parents[2]
    sources = [path for name in ("koordlite", "descheduler") for path in (root / name).rglob("*.py")]
    handling = [path for path in sources if "signal.signal(" in path.read_text(encoding="utf-8")]
    found = sorted(str(path.relative_to(root)) for path in handling)
    # These handle none by themselves: koordlite/commandline.py ignores Ctrl-C while a pager has the terminal,
    # questions.py leaves it to asyncio, and __main__.py minds it while modules are imported. What creation.py handles
    # nobody sends.
    others = [
        "koordlite/__main__.py",
        "koordlite/cli/questions.py",
        "koordlite/commandline.py",
        "koordlite/creation.py",
    ]
    assert found == sorted(["descheduler/cli/service.py", "koordlite/clock.py", *others])
    without = [path.name for path in handling if "SignalEvent()" not in path.read_text(encoding="utf-8")]
    assert sorted(without) == ["__main__.py", "commandline.py", "creation.py", "questions.py"]
