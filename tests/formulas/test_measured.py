"""Percentiles, throttling, and what the besteffort group may use."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlite.formulas import measured


@pytest.mark.parametrize(
    ("samples", "part", "found"),
    [
        pytest.param([5, 1, 3], 0.5, 1, id="half of three is one sample, the first"),
        pytest.param([4, 3, 2, 1], 1, 4, id="all of them is the greatest"),
        pytest.param([7], 0.01, 7, id="one sample is every percentile"),
        pytest.param(list(range(10)), 0.9, 8, id="nine of ten"),
    ],
)
def test_percentile(samples: list[float], part: float, found: float) -> None:
    assert measured.percentile(samples, part) == found


@given(samples=st.lists(st.integers(), min_size=1), part=st.floats(0.001, 1))
def test_a_percentile_is_one_of_the_samples(samples: list[int], part: float) -> None:
    assert measured.percentile(samples, part) in samples


@pytest.mark.parametrize(("samples", "part"), [([], 0.5), ([1], 0), ([1], -1), ([1], 1.1)])
def test_no_samples_and_no_part_are_refused(samples: list[float], part: float) -> None:
    with pytest.raises(ValueError, match="percentile"):
        measured.percentile(samples, part)


def test_without_a_period_nothing_was_throttled() -> None:
    assert measured.throttled_ratio(periods=0, throttled=0) == 0
    assert measured.throttled_ratio(periods=10, throttled=4) == 0.4


@pytest.mark.parametrize(
    ("quota_us", "found"),
    [
        pytest.param(-1, 4000, id="no quota: the set"),
        pytest.param(250_000, 2500, id="a quota below the set"),
        pytest.param(900_000, 4000, id="a quota above the set"),
    ],
)
def test_what_best_effort_work_may_use(quota_us: int, found: int) -> None:
    assert measured.be_limit_milli(cpus=4, quota_us=quota_us, period_us=100_000) == found


@pytest.mark.parametrize(
    ("span", "cold"),
    [
        pytest.param(149.9, True, id="less than half of five minutes says little"),
        pytest.param(150.0, False, id="half of them is enough"),
        pytest.param(0.0, True, id="one sample covers no time"),
    ],
)
def test_samples_have_to_cover_half_of_a_window(span, cold):
    assert measured.cold_start(window_seconds=300.0, span_seconds=span) is cold
