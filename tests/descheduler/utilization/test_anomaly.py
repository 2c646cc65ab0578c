"""A node counts as too full after N sightings in a row, and no longer after M, or after a time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from descheduler.utilization.load_args import NEW, USUAL, AnomalyCondition, Debounce, Watch, mark

THREE_OR_TWO = Debounce(abnormalities=3, normalities=2, timeout_seconds=60.0)


def watched(sightings: str, debounce: Debounce = THREE_OR_TWO, step_seconds: float = 1.0) -> Watch:
    """`x`: too full; `.`: not."""
    watch = NEW
    for number, sighting in enumerate(sightings):
        watch = mark(watch, normal=sighting == ".", now=number * step_seconds, debounce=debounce)
    return watch


@pytest.mark.parametrize(
    ("sightings", "anomalous"),
    [
        pytest.param("xx", False, id="one too few"),
        pytest.param("xxx", True, id="exactly as many as asked for"),
        pytest.param("xx.xx", False, id="not in a row"),
        pytest.param("xxx.", True, id="one good sighting is not enough"),
        pytest.param("xxx..", False, id="two in a row are"),
        pytest.param("xxx.x.", True, id="two that are not in a row are not"),
    ],
)
def test_sightings_in_a_row_decide(sightings: str, anomalous: bool) -> None:
    assert watched(sightings).anomalous is anomalous


def test_after_the_timeout_it_is_observed_anew() -> None:
    assert watched("xxxx", step_seconds=59).anomalous
    assert not watched("xxxx", step_seconds=60).anomalous


def test_what_is_left_out_is_taken_from_above() -> None:
    own = AnomalyCondition(timeout="30s").over(AnomalyCondition(timeout="2m", consecutive_abnormalities=7))
    assert (own.timeout, own.consecutive_abnormalities, own.consecutive_normalities) == ("30s", 7, None)
    assert Debounce.of(own) == Debounce(abnormalities=7, normalities=3, timeout_seconds=30.0)
    assert Debounce.of(AnomalyCondition(timeout="0s")) == Debounce.of(USUAL)
    late = AnomalyCondition().over(AnomalyCondition(timeout="2m"))
    assert Debounce.of(late).timeout_seconds == 60


@given(st.text("x.", max_size=30), st.integers(1, 6))
def test_it_never_counts_as_too_full_before_that_many_sightings(sightings: str, abnormalities: int) -> None:
    debounce = Debounce(abnormalities=abnormalities, normalities=1, timeout_seconds=1e9)
    if watched(sightings, debounce).anomalous:
        assert "x" * abnormalities in sightings
