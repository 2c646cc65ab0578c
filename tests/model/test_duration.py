"""Durations as Go writes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlite.model import duration
from koordlite.model.duration import SECOND


@pytest.mark.parametrize(
    ("text", "nanoseconds", "printed"),
    [
        ("5m", 300 * SECOND, "5m0s"),
        ("1h30m", 5400 * SECOND, "1h30m0s"),
        ("90s", 90 * SECOND, "1m30s"),
        ("1.5h", 5400 * SECOND, "1h30m0s"),
        (".5s", SECOND // 2, "500ms"),
        ("1.s", SECOND, "1s"),
        ("250ms", 250_000_000, "250ms"),
        ("1500us", 1_500_000, "1.5ms"),
        ("3µs", 3_000, "3µs"),
        ("3μs", 3_000, "3µs"),
        ("7ns", 7, "7ns"),
        ("-2m1s", -121 * SECOND, "-2m1s"),
        ("+2m", 120 * SECOND, "2m0s"),
        ("0", 0, "0s"),
        ("0s", 0, "0s"),
        ("1m1m", 120 * SECOND, "2m0s"),
        ("1.0000000019s", SECOND + 1, "1.000000001s"),
    ],
)
def test_read_and_printed(text: str, nanoseconds: int, printed: str) -> None:
    assert duration.parse(text) == nanoseconds
    assert duration.show(nanoseconds) == printed


@pytest.mark.parametrize("text", ["", "5", "m", "5 m", "5m ", "5d", "--5m", "1..5s", ".s", "٣s", "5M", "3000000h"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        duration.parse(text)


@given(st.integers(-(2**63) + 1, 2**63 - 1))
def test_printed_durations_are_read_back(nanoseconds: int) -> None:
    assert duration.parse(duration.show(nanoseconds)) == nanoseconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0), ("90s", 90), ("5m", 300), ("1h30m", 5400), ("250ms", 0.25), ("1.5h", 5400), (".5s", 0.5)],
)
def test_seconds(text: str, seconds: float) -> None:
    assert duration.seconds(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "5", "5 m", "m", "5m ", "-5m", "5d", "1h 30m"])
def test_what_is_no_number_of_seconds_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        duration.seconds(text)


@pytest.mark.parametrize(("amount", "text"), [(0.4, "0s"), (59, "59s"), (3601, "1h1s"), (93784, "1d2h")])
def test_people_get_two_units_at_most(amount: float, text: str) -> None:
    assert duration.brief(amount) == text
