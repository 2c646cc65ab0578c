"""An API server that is away for a while: one watch tries, all come back together, and the log stays short."""

from __future__ import annotations

import itertools
import logging
import threading

import pytest
from handclock import HandClock

from koordlite.kube.client.backoff import Outage


def never() -> bool:
    return False


def low(least: float, _most: float) -> float:
    return least


@pytest.fixture
def clock() -> HandClock:
    return HandClock(0.0)


@pytest.fixture
def outage(clock: HandClock) -> Outage:
    return Outage(monotonic=clock, uniform=low)


def test_a_server_that_answers_keeps_nobody_waiting(outage: Outage) -> None:
    outage.wait("pods", never)


def test_one_tries_while_the_others_wait(outage: Outage, clock: HandClock) -> None:
    outage.failed("pods", "refused")
    outage.failed("node", "refused")
    clock.now = 1.0
    outage.wait("node", never)
    waiting = [threading.Thread(target=outage.wait, args=(name, never), daemon=True) for name in ("pods", "config")]
    for each in waiting:
        each.start()
    assert all(each.is_alive() for each in waiting)
    outage.answered()
    for each in waiting:
        each.join(2.0)
    assert not any(each.is_alive() for each in waiting), "all at once"


def test_pauses_grow_to_five_seconds_and_no_further(clock: HandClock) -> None:
    outage = Outage(monotonic=clock, uniform=lambda _, most: most)
    tries = []
    outage.failed("pods", "refused")
    while clock.now < 60:
        clock.now += 0.05
        if outage._prober is None and clock.now >= outage._next:
            outage.wait("pods", never)
            tries.append(clock.now)
            outage.failed("pods", "refused")
    gaps = [later - before for before, later in itertools.pairwise(tries)]
    assert max(gaps) <= 5.06
    assert gaps[-1] > 4.9


def test_who_stops_leaves_the_try_to_another(outage: Outage, clock: HandClock) -> None:
    outage.failed("pods", "refused")
    clock.now = 1.0
    outage.wait("pods", never)
    outage.leave("pods")
    outage.wait("node", never)


def test_ten_minutes_are_ten_lines(outage: Outage, clock: HandClock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    for second in range(600):
        clock.now = float(second)
        for who in ("node", "pods", "config"):
            outage.failed(who, f"error {second}")
    outage.answered()
    assert len(caplog.records) == 11
    assert caplog.messages[-1] == "the API server answers again, after 599 s"
