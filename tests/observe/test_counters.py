"""From growing counters to use: what is a rate, and what must never become one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlite.model.snapshot import Use
from koordlite.observe.counters import Counter, Window


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


def test_a_window_is_bounded_by_time_and_not_by_count() -> None:
    window = Window()
    for second in range(100):
        window.add(second, Use(second, 10), 10)
    assert len(window) == 11
    assert window.mean() == Use(sum(range(89, 100)) // 11, 10)


def test_an_empty_window_has_no_mean() -> None:
    window = Window()
    window.add(0, Use(1, 1), 10)
    window.trim(11, 10)
    assert (window.mean(), len(window)) == (None, 0)


@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 10**6)), min_size=1, max_size=50),
    st.integers(1, 30),
)
def test_the_mean_is_that_of_the_samples_inside(samples: list[tuple[int, int]], seconds: int) -> None:
    window, now, kept = Window(), 0, []
    for pause, cpu in samples:
        now += pause
        kept.append((now, cpu))
        window.add(now, Use(cpu, 2 * cpu), seconds)
    inside = [cpu for time, cpu in kept if time >= now - seconds]
    assert window.mean() == Use(sum(inside) // len(inside), sum(2 * cpu for cpu in inside) // len(inside))
