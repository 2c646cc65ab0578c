"""What went wrong at which place is on the screen and in /state."""

from __future__ import annotations

import msgspec
from reported import tick_of

from koordlite import changes
from koordlite.model.status import FileTrouble
from koordlite.report import view
from koordlite.report.json import run_report
from koordlite.report.terminal import status

BUSY = "EBUSY: Device or resource busy (/sys/fs/cgroup/x)"
FOUGHT = FileTrouble(changes.parse("kubepods/besteffort/cpu.quota"), 0, "", 14, 32.0)
REFUSED = FileTrouble(changes.parse("kubepods/besteffort/cpuset.cpus"), 3, BUSY, 0, 0.0)


def test_the_screen_says_how_often_and_when_it_is_tried_again() -> None:
    screen = status.screen(tick_of(time=1.0, troubles=(FOUGHT, REFUSED)))
    assert f"{FOUGHT.place}: changed by others 14 times; next correction in 32 s, so as not to fight" in screen
    assert f"{REFUSED.place}: refused 3 times, last {BUSY}" in screen


def test_a_run_without_trouble_does_not_speak_of_it() -> None:
    assert "in this run" not in status.screen(tick_of(time=1.0))


def test_the_screen_shows_the_worst_and_state_has_all() -> None:
    many = tuple(FileTrouble(changes.parse(f"p{number}/cpu.quota"), 9, BUSY, 0, 0.0) for number in range(20))
    tick = tick_of(time=1.0, troubles=many)
    shown = status.screen(tick)
    assert [f"p{number}/" in shown for number in (0, view.MAX_TROUBLES - 1, view.MAX_TROUBLES)] == [
        True,
        True,
        False,
    ]
    told = msgspec.json.decode(run_report.encode(run_report.state(tick)))["troubles"]
    assert len(told) == 20
    assert told[0] == {
        "place": "p0/cpu.quota",
        "refused": 9,
        "last_error": BUSY,
        "foreign": 0,
        "kept_off_seconds": 0.0,
    }
