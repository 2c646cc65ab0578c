"""Percentages, means and ceilings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from descheduler.utilization import levels

AMOUNTS = st.dictionaries(st.sampled_from(["cpu", "memory", "pods"]), st.integers(0, 10**12))


@pytest.mark.parametrize(
    ("used", "capacity", "percent"),
    [
        pytest.param({"cpu": 700}, {"cpu": 4000}, {"cpu": 17.5}, id="part of the whole"),
        pytest.param({"cpu": 1}, {"cpu": 0}, {"cpu": 0.0}, id="a node that has none of it"),
        pytest.param({"gpu": 1}, {"cpu": 1}, {}, id="a resource that the node does not know"),
    ],
)
def test_percent_of_what_a_node_has(used: dict[str, int], capacity: dict[str, int], percent: dict[str, float]) -> None:
    assert levels.percentages(used=used, capacity=capacity) == percent


def test_the_mean_is_over_nodes_that_have_the_resource() -> None:
    assert levels.averages([{"cpu": 80.0}, {"cpu": 40.0, "gpu": 50.0}]) == {"cpu": 60.0, "gpu": 50.0}


@pytest.mark.parametrize(("distance", "sign", "at"), [(10, -1, 40.0), (60, -1, 0.0), (60, 1, 100.0)])
def test_a_distance_stays_between_nothing_and_all(distance: float, sign: int, at: float) -> None:
    assert levels.around({"cpu": 50.0}, {"cpu": distance, "gpu": 1}, sign=sign) == {"cpu": at}


def test_a_node_at_its_limit_is_within_and_not_beyond() -> None:
    assert levels.within({"cpu": 50.0}, {"cpu": 50.0})
    assert levels.beyond({"cpu": 50.0}, {"cpu": 50.0}) == ()
    assert levels.beyond({"cpu": 50.1, "memory": 1.0}, {"cpu": 50.0, "memory": 0.5}) == ("cpu", "memory")


def test_a_resource_without_a_limit_may_be_filled_up() -> None:
    found = levels.ceilings(tracked=["cpu", "memory", "gpu"], limits={"cpu": 50.0}, capacity={"cpu": 4001, "memory": 7})
    assert found == {"cpu": 2000, "memory": 7, "gpu": 0}


@given(AMOUNTS, st.floats(0, 100))
def test_a_node_filled_to_its_ceiling_is_not_beyond_its_limit(capacity: dict[str, int], percent: float) -> None:
    limits = dict.fromkeys(capacity, percent)
    filled = levels.ceilings(tracked=capacity, limits=limits, capacity=capacity)
    shown = levels.percentages(used=filled, capacity=capacity)
    assert all(shown[name] <= percent + 1e-6 for name in shown)
