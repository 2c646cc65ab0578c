"""From growing counters to use: what is a rate, and what must never become one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlite.observe.usage import Counter, Throttling


@pytest.mark.parametrize(
    ("looks", "rates"),
    [
        pytest.param([(0, 5)], [None], id="the first look gives no rate"),
        pytest.param([(0, 5), (2, 9)], [None, 2.0], id="the second gives growth over time"),
        pytest.param([(0, 5), (2, 5)], [None, 0.0], id="no growth is a rate of zero, not a missing one"),
        pytest.param([(0, 5), (1, 3), (2, 4)], [None, None, 1.0], id="a counter that went back starts anew"),
        pytest.param([(1, 5), (1, 9), (2, 10)], [None, None, 1.0], id="without time in between there is no rate"),
        pytest.param([(5, 5), (3, 9), (4, 10)], [None, None, 1.0], id="a clock that went back gives none either"),
        pytest.param([(0, 0), (1000, 10)], [None, 0.01], id="a long pause is a mean over the pause"),
    ],
)
def test_rate(looks: list[tuple[float, float]], rates: list[float | None]) -> None:
    counter = Counter()
    assert [counter.rate(time, value) for time, value in looks] == rates


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e12)), max_size=20))
def test_a_rate_is_never_negative(looks: list[tuple[float, float]]) -> None:
    counter = Counter()
    for time, value in looks:
        rate = counter.rate(time, value)
        assert rate is None or rate >= 0


@pytest.mark.parametrize(
    ("looks", "ratios"),
    [
        pytest.param([(10, 5)], [None], id="the first look gives none"),
        pytest.param([(10, 5), (20, 10)], [None, 0.5], id="half of the periods since"),
        pytest.param([(10, 5), (10, 5)], [None, 0.0], id="no period since is no throttling"),
        pytest.param([(10, 5), (4, 1), (8, 2)], [None, None, 0.25], id="counters that went back start anew"),
        pytest.param([(10, 5), (12, 4)], [None, None], id="either of the two may have gone back"),
    ],
)
def test_throttling(looks: list[tuple[int, int]], ratios: list[float | None]) -> None:
    throttling = Throttling()
    assert [throttling.ratio(periods, throttled) for periods, throttled in looks] == ratios
