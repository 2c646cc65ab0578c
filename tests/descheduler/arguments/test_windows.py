"""Maintenance windows: when they are open, and when the next one opens."""

from __future__ import annotations

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from descheduler.arguments import pacing
from descheduler.arguments.pacing import DAYS, Window

NIGHT = Window(days=("Fri",), start="22:00", end="04:00", time_zone="Europe/Berlin")


def at(text: str) -> float:
    return datetime.datetime.fromisoformat(text).timestamp()


@pytest.mark.parametrize(
    ("moment", "open_"),
    [
        pytest.param("2026-01-02T20:59:59Z", False, id="Friday, a second before ten in Berlin"),
        pytest.param("2026-01-02T21:00:00Z", True, id="Friday at ten"),
        pytest.param("2026-01-03T02:59:59Z", True, id="it goes on past midnight"),
        pytest.param("2026-01-03T03:00:00Z", False, id="and is over at four"),
        pytest.param("2026-01-03T21:30:00Z", False, id="Saturday night is none"),
        pytest.param("2026-07-03T20:00:00Z", True, id="in summer the same clock is an hour earlier in UTC"),
    ],
)
def test_a_window_over_midnight_belongs_to_the_day_it_begins(moment: str, open_: bool) -> None:
    assert pacing.is_open((NIGHT,), at(moment)) is open_


def test_without_windows_it_is_always_open() -> None:
    assert pacing.is_open((), 0.0)


def test_the_next_opening_is_that_of_the_soonest_window() -> None:
    morning = Window(days=("Mon",), start="08:00", end="09:00")
    assert pacing.next_opening((NIGHT, morning), at("2026-01-03T12:00:00Z")) == at("2026-01-05T08:00:00Z")


@given(
    st.builds(
        Window,
        days=st.lists(st.sampled_from(DAYS), min_size=1, max_size=3, unique=True).map(tuple),
        start=st.sampled_from(("00:00", "06:30", "22:00", "23:59")),
        end=st.sampled_from(("00:00", "06:30", "22:00", "24:00")),
        time_zone=st.sampled_from(("UTC", "America/New_York", "Asia/Kolkata")),
    ),
    st.floats(min_value=1.7e9, max_value=1.8e9),
)
def test_a_closed_window_opens_when_it_says(window: Window, moment: float) -> None:
    opening = pacing.next_opening((window,), moment)
    assert moment < opening <= moment + 8 * 86400
    assert pacing.is_open((window,), opening)
    if not pacing.is_open((window,), moment):
        assert not pacing.is_open((window,), (moment + opening) / 2)


@pytest.mark.parametrize("text", ["8:00", "24:01", "12-30", "", "12:60", "aa:bb", "012:0"])
def test_a_time_of_day_is_written_with_four_digits(text: str) -> None:
    with pytest.raises(ValueError, match="no time of day"):
        pacing.minutes(text)


def test_an_unknown_time_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="tz database"):
        pacing.zone("Europe/Atlantis")


def test_a_window_needs_a_day() -> None:
    with pytest.raises(ValueError, match="needs a day"):
        Window(days=())
