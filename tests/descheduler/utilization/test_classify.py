"""Percentages, means and ceilings."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from descheduler.utilization import levels

AMOUNTS = st.dictionaries(st.sampled_from(["cpu", "memory", "pods"]), st.integers(0, 10**12))


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
