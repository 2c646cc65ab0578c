"""Durations as Go writes them."""

from __future__ import annotations

import pytest

from descheduler.arguments import durations


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0), ("90s", 90), ("5m", 300), ("1h30m", 5400), ("250ms", 0.25), ("1.5h", 5400), (".5s", 0.5)],
)
def test_seconds(text: str, seconds: float) -> None:
    assert durations.seconds(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "5", "5 m", "m", "5m ", "-5m", "5d", "1h 30m"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        durations.seconds(text)


@pytest.mark.parametrize(("amount", "text"), [(0.4, "0s"), (59, "59s"), (3601, "1h1s"), (93784, "1d2h")])
def test_people_get_two_units_at_most(amount: float, text: str) -> None:
    assert durations.show(amount) == text
