"""Moments by cron expressions, as Kubernetes' CronJob understands them."""

from __future__ import annotations

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from descheduler.arguments import pacing
from descheduler.arguments.pacing import Window


def at(text: str) -> float:
    return datetime.datetime.fromisoformat(text).timestamp()


@pytest.mark.parametrize(
    ("text", "zone", "moment", "expected"),
    [
        pytest.param("0 3 * * *", "UTC", "2026-01-01T03:00:00Z", "2026-01-02T03:00:00Z", id="strictly later"),
        pytest.param("0 3 * * *", "Europe/Berlin", "2026-07-01T12:00:00Z", "2026-07-02T01:00:00Z", id="a time zone"),
        pytest.param("0 3 * * 0", "UTC", "2026-01-01T00:00:00Z", "2026-01-04T03:00:00Z", id="0 is Sunday"),
        pytest.param("0 3 * * 7", "UTC", "2026-01-01T00:00:00Z", "2026-01-04T03:00:00Z", id="7 is Sunday too"),
        pytest.param("0 3 * * 1-5", "UTC", "2026-01-02T04:00:00Z", "2026-01-05T03:00:00Z", id="Monday to Friday"),
        pytest.param("0 3 * * mon-fri/2", "UTC", "2026-01-05T04:00:00Z", "2026-01-07T03:00:00Z", id="names, a step"),
        pytest.param("0 3 13 * 5", "UTC", "2026-01-03T00:00:00Z", "2026-01-09T03:00:00Z", id="either day: a Friday"),
        pytest.param("0 3 13 * 5", "UTC", "2026-01-10T00:00:00Z", "2026-01-13T03:00:00Z", id="either day: the 13th"),
        pytest.param("*/20 8 * * *", "UTC", "2026-01-01T08:25:00Z", "2026-01-01T08:40:00Z", id="every 20 minutes"),
        pytest.param("@weekly", "UTC", "2026-01-01T00:00:00Z", "2026-01-04T00:00:00Z", id="a macro"),
        pytest.param(
            "30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-29T01:30:00Z", id="summer time skips it"
        ),
        pytest.param(
            "30 2 * * *", "Europe/Berlin", "2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z", id="summer time repeats it"
        ),
    ],
)
def test_the_next_moment(text: str, zone: str, moment: str, expected: str) -> None:
    assert pacing.parse(text, zone).next_after(at(moment)) == at(expected)


def test_a_day_that_no_month_has_never_comes() -> None:
    assert pacing.parse("0 0 31 2 *").next_after(0.0) == float("inf")
    assert pacing.parse("0 0 31 2 *").longest_gap(0.0) == 366 * 86400


@pytest.mark.parametrize(
    "text", ["", "3", "0 3 * *", "60 3 * * *", "0 3 * * 8", "0 3 * * 5-1", "0 3 L * *", "0 3 * * */0", "* * * * *;"]
)
def test_what_is_no_expression_says_so(text: str) -> None:
    with pytest.raises(ValueError, match="is no cron expression"):
        pacing.parse(text)


@given(st.text(alphabet="0123456789*/-,monsuL ", max_size=24))
def test_any_text_is_an_expression_or_a_value_error(text: str) -> None:
    try:
        found = pacing.parse(text)
    except ValueError:
        return
    moment = found.next_after(1.8e9)
    assert moment > 1.8e9 and moment % 60 == 0


def test_the_longest_gap_is_that_of_the_weekend() -> None:
    assert pacing.parse("0 3 * * 1-5").longest_gap(at("2026-01-01T00:00:00Z")) == 3 * 86400


NIGHT = Window(cron="0 22 * * 1-5", duration="6h", time_zone="Europe/Berlin")


@pytest.mark.parametrize(
    ("moment", "open_"),
    [
        pytest.param("2026-01-05T20:59:59Z", False, id="a second before"),
        pytest.param("2026-01-05T21:00:00Z", True, id="Monday at ten"),
        pytest.param("2026-01-06T02:59:59Z", True, id="six hours later"),
        pytest.param("2026-01-06T03:00:00Z", False, id="over"),
        pytest.param("2026-01-04T22:00:00Z", False, id="Sunday is none"),
    ],
)
def test_a_window_by_cron_is_open_for_its_duration(moment: str, open_: bool) -> None:
    assert pacing.is_open((NIGHT,), at(moment)) is open_
    assert pacing.next_opening((NIGHT,), at(moment)) > at(moment)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"cron": "0 22 * * *"}, "needs a duration"),
        ({"duration": "6h"}, "a duration needs cron"),
        ({"cron": "0 22 * * *", "duration": "6h", "start": "22:00"}, "either cron and duration, or"),
        ({"cron": "22", "duration": "6h"}, "is no cron expression"),
    ],
)
def test_a_window_that_says_two_things_is_refused(fields: dict[str, str], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Window(**fields)  # type: ignore[arg-type]
