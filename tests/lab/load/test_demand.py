"""What the annotation of a workload says is what it wants."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlite.lab.load import demand


@pytest.mark.parametrize(
    ("text", "seconds", "milli"),
    [
        pytest.param("500m", 99, 500, id="a quantity holds always"),
        pytest.param("2", 0, 2000, id="whole cores"),
        pytest.param("greedy", 7, math.inf, id="greedy wants everything"),
        pytest.param("wave(low=2,high=14,period=120)", 0, 2000, id="a wave starts low"),
        pytest.param("wave(low=2,high=14,period=120)", 60, 14000, id="a wave is high after half a period"),
        pytest.param("wave(low=2, high=14, period=120)", 30, 8000, id="a wave is halfway after a quarter"),
        pytest.param("wave(low=2,high=14,period=120)", 120, 2000, id="a wave comes back"),
        pytest.param("steps(0:2,60:14,120:3)", 59.9, 2000, id="a step holds until the next"),
        pytest.param("steps(0:2,60:14,120:3)", 60, 14000, id="a step begins at its second"),
        pytest.param("steps(0:2,60:14,120:3)", 1000, 3000, id="the last step stays"),
        pytest.param("steps(10:2)", 9, 0, id="nothing is wanted before the first step"),
        pytest.param("spike(base=500m,high=20,at=60,for=30)", 59, 500, id="before a spike"),
        pytest.param("spike(base=500m,high=20,at=60,for=30)", 89, 20000, id="within a spike"),
        pytest.param("spike(base=500m,high=20,at=60,for=30)", 90, 500, id="after a spike"),
    ],
)
def test_demand(text: str, seconds: float, milli: float) -> None:
    assert demand.parse(text).milli(seconds) == pytest.approx(milli)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param("", "no amount of CPU", id="nothing"),
        pytest.param("lots", "no amount of CPU", id="a word"),
        pytest.param("-1", "negative", id="less than nothing"),
        pytest.param("wave(low=2,high=14)", "no demand", id="a wave without a period"),
        pytest.param("wave(low=2,high=14,period=0)", "too few or too many", id="a wave without length"),
        pytest.param("wave(low=2,high=x,period=10)", "'x' is no amount", id="a wave to nowhere"),
        pytest.param("wave(low=2,high=3,period=10,noise=2)", "not between 0 and 1", id="more noise than signal"),
        pytest.param("steps(60:1,0:2)", "must ascend", id="steps backwards"),
        pytest.param("steps()", "no number of seconds", id="no steps"),
        pytest.param("surge(base=1)", "no demand", id="an unknown word"),
    ],
)
def test_unreadable_demand(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        demand.parse(text)


@given(st.floats(0, 1e6), st.integers(0, 3))
def test_noise_is_bounded_and_the_same_for_the_same_seed(seconds: float, seed: int) -> None:
    noisy = demand.parse("wave(low=2,high=2,period=10,noise=0.01)", seed=str(seed))
    assert 1980 <= noisy.milli(seconds) <= 2020
    assert noisy.milli(seconds) == demand.parse("wave(low=2,high=2,period=10,noise=0.01)", seed=str(seed)).milli(
        seconds
    )


@given(st.text(max_size=40))
def test_any_text_is_a_demand_or_a_value_error(text: str) -> None:
    try:
        found = demand.parse(text)
    except ValueError:
        return
    assert found.milli(0) >= 0
