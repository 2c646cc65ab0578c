"""When a round comes before its time, and how often one may look."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlite.formulas.cpu import reaction


@pytest.mark.parametrize(
    ("given_milli", "edge"),
    [
        pytest.param((1000, 500, 500, 20, 100), 1100, id="a-limit-at-the-budget-leaves-the-band"),
        pytest.param((1000, 1500, 500, 20, 100), 2020, id="a-limit-still-growing-leaves-room-below-the-budget"),
        pytest.param((1000, 1500, 2000, 1000, 100), 1500, id="whole-CPUs-shrink-when-the-budget-is-one-CPU-below"),
        pytest.param((1000, 200, 2000, 20, 100), 1100, id="a-limit-above-the-budget-still-leaves-the-band"),
    ],
)
def test_upper_edge(given_milli: tuple[int, int, int, int, int], edge: int) -> None:
    others, budget, limit, step, band = given_milli
    made = reaction.upper_edge_milli(
        others_milli=others, budget_milli=budget, limit_milli=limit, shrink_step_milli=step, band_milli=band
    )
    assert made == edge


@pytest.mark.parametrize(
    ("others", "edge", "suspect"),
    [
        pytest.param(1000, 2000, 1250, id="a-quarter-of-the-way"),
        pytest.param(1000, 900, 1000, id="an-edge-below-what-is-assumed-is-no-less"),
    ],
)
def test_a_surge_is_suspected_before_the_edge(others: int, edge: int, suspect: int) -> None:
    assert reaction.suspect_milli(others_milli=others, edge_milli=edge) == suspect


@pytest.mark.parametrize(
    ("cost", "period"),
    [
        pytest.param(0.00003, 0.02, id="cheap-samples-come-fifty-times-a-second"),
        pytest.param(0.0003, 0.1, id="dear-samples-come-less-often"),
    ],
)
def test_looks_stay_below_their_share(cost: float, period: float) -> None:
    made = reaction.period_seconds(sample_cost_seconds=cost, share=0.003, shortest_seconds=0.02)
    assert made == pytest.approx(period)


@pytest.mark.parametrize(
    ("timer_period", "seconds"),
    [
        pytest.param(0.0, 0.008, id="counters-exact-at-any-moment"),
        pytest.param(0.001, 0.008, id="1000-Hz"),
        pytest.param(1 / 300, 0.01, id="300-Hz"),
        pytest.param(0.004, 0.008, id="250-Hz"),
        pytest.param(0.01, 0.01, id="100-Hz"),
    ],
)
def test_a_surge_is_measured_over_whole_periods_of_the_timer(timer_period: float, seconds: float) -> None:
    assert reaction.confirm_seconds(timer_period_seconds=timer_period) == pytest.approx(seconds)


@given(st.dictionaries(st.text(max_size=3), st.integers(0, 10**6), min_size=1), st.integers(0, 10**6))
def test_shares_add_up_to_the_total(parts: dict[str, int], total: int) -> None:
    shares = reaction.shared_out(parts, total=total)
    assert sum(shares.values()) == total
    assert shares.keys() == parts.keys()
    assert min(shares.values()) >= 0


def test_nobody_shares_nothing() -> None:
    assert reaction.shared_out({}, total=5) == {}


@pytest.mark.parametrize(
    ("used_ns", "seconds", "milli"),
    [
        pytest.param(20_000_000, 0.02, 1000, id="twenty-ms-in-twenty-ms-is-one-CPU"),
        pytest.param(-5, 0.02, 0, id="a-group-made-anew-is-no-use"),
        pytest.param(5, 0.0, 0, id="no-time-is-no-use"),
    ],
)
def test_use(used_ns: int, seconds: float, milli: int) -> None:
    assert reaction.milli(used_ns=used_ns, seconds=seconds) == milli


def test_one_dear_look_moves_the_mean_by_an_eighth() -> None:
    assert reaction.smoothed_cost_seconds(before=8.0, sample=16.0) == 9.0


@pytest.mark.parametrize(("by_quota", "step"), [(True, 80), (False, 1000)], ids=["quota", "whole-CPUs"])
def test_shrink_step(by_quota: bool, step: int) -> None:
    assert reaction.shrink_step_milli(by_quota=by_quota, capacity_milli=8000) == step
