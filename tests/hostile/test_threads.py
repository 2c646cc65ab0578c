"""Threads: a fault or a silence of one is seen, makes the process unready, and is ended by a new start."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from handclock import HandClock

from koordlite import threads
from koordlite.threads import FAILURES, GRACE_SECONDS, SETTLED_SECONDS, Worker


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> HandClock:
    monkeypatch.setattr(threads, "_PAUSES", (0.0, 0.0))
    return HandClock()


@pytest.fixture
def stop() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def state(name: str) -> threads.ThreadState | None:
    return next((each for each in threads.states() if each.name == name), None)


def why(name: str) -> tuple[str, str]:
    found = state(name)
    return (found.not_ready, found.unhealthy) if found else ("", "")


def test_a_thread_that_ends_in_a_fault_is_begun_again_and_is_well_once_it_has_run_for_a_while(
    clock: HandClock, stop: threading.Event
) -> None:
    runs, again = [0], threading.Event()

    def work() -> None:
        runs[0] += 1
        if runs[0] == 1:
            raise ValueError("Exceeds the limit (4300 digits)")
        again.set()
        stop.wait()

    worker = Worker("again", work, monotonic=clock)
    worker.start()
    assert again.wait(5)
    assert "thread again failed: ValueError: Exceeds the limit" in why("again")[0]
    assert why("again")[1] == "", "another try may help yet"
    clock.now += SETTLED_SECONDS
    worker.beat()
    assert why("again") == ("", "")
    stop.set()
    worker.join(5)
    assert state("again") is None, "nobody waits for reports of a thread that was ended"


def test_faults_that_do_not_end_make_the_process_unhealthy(clock: HandClock, stop: threading.Event) -> None:
    runs, enough = [0], threading.Event()

    def work() -> None:
        runs[0] += 1
        if runs[0] > FAILURES:
            enough.set()
            stop.wait()
        raise RuntimeError("again")

    worker = Worker("broken", work, monotonic=clock)
    worker.start()
    assert enough.wait(5)
    assert f"({FAILURES} times in a row)" in why("broken")[1]
    stop.set()
    worker.join(5)


def test_a_silent_thread_is_named_with_the_line_it_hangs_at(clock: HandClock, stop: threading.Event) -> None:
    hangs = threading.Event()

    def work() -> None:
        worker.beat(30.0)
        hangs.set()
        stop.wait()

    worker = Worker("mute", work, monotonic=clock)
    worker.start()
    assert hangs.wait(5)
    clock.now += 30.0
    assert why("mute") == ("", "")
    clock.now += 1.0
    assert why("mute")[0].startswith("thread mute has been silent for 31 s, at threading:")
    assert why("mute")[1] == ""
    clock.now += GRACE_SECONDS
    assert why("mute")[1] == why("mute")[0] != ""
    stop.set()
    worker.join(5)


def test_a_thread_that_ends_for_good_leaves_the_process_unhealthy(clock: HandClock) -> None:
    def work() -> None:
        raise RuntimeError("ten rounds in a row")

    worker = Worker("once", work, restarts=False, monotonic=clock)
    worker.start()
    worker._thread.join(5)
    assert why("once")[1] == "thread once failed: RuntimeError: ten rounds in a row; it has ended"
    worker.end()


def test_every_thread_of_the_programs_is_watched_over() -> None:
    """Threads are made in one place. One connection, and the dots of a command line, end by themselves; the library for
    NRI plugins makes one where it is not given one, as the agent does."""
    import pathlib
    import re

    root = pathlib.Path(threads.__file__).parents[1]
    allowed = {
        "koordlite/threads.py",
        "koordlite/http/server.py",
        "koordlite/commandline.py",
        "koordlite/nri/plugin.py",
    }
    made = {
        str(path.relative_to(root))
        for package in ("koordlite", "descheduler")
        for path in (root / package).rglob("*.py")
        if re.search(r"\bThread\(", path.read_text())
    }
    assert made <= allowed
