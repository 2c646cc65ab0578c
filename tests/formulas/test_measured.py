"""Percentiles, throttling, and what the besteffort group may use."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlite.formulas import measured


@given(samples=st.lists(st.integers(), min_size=1), part=st.floats(0.001, 1))
def test_a_percentile_is_one_of_the_samples(samples: list[int], part: float) -> None:
    assert measured.percentile(samples, part) in samples


@pytest.mark.parametrize(("samples", "part"), [([], 0.5), ([1], 0), ([1], -1), ([1], 1.1)])
def test_no_samples_and_no_part_are_refused(samples: list[float], part: float) -> None:
    with pytest.raises(ValueError, match="percentile"):
        measured.percentile(samples, part)
