"""How much CPU best-effort work may use, and the way there."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlite.formulas.cpu import be_limit, suppress


@pytest.mark.parametrize(
    ("budget", "present", "target"),
    [
        pytest.param(3001, 8, 4, id="a started CPU counts"),
        pytest.param(-4000, 8, 2, id="two CPUs at least"),
        pytest.param(20000, 8, 12, id="grows by a tenth of the machine, rounded up"),
        pytest.param(11000, 8, 11, id="grows at once when it is less than that"),
    ],
)
def test_cpu_target_of_32_cpus(budget: int, present: int, target: int) -> None:
    assert be_limit.cpu_target(budget_milli=budget, present=present, cpus=32) == target


MILLI = st.integers(0, 512_000)


@given(capacity=MILLI, percent=st.integers(0, 100), prod=MILLI, host=MILLI, system=MILLI)
def test_budget_never_exceeds_capacity(capacity: int, percent: int, prod: int, host: int, system: int) -> None:
    found = suppress.be_cpu_budget(
        capacity_milli=capacity, threshold_percent=percent, prod_milli=prod, host_milli=host, system_milli=system
    )
    assert found <= capacity * percent / 100


@given(budget=st.integers(-512_000, 512_000), current=st.integers(-1, 51_200_000), capacity=st.integers(1, 512_000))
def test_quota_reaches_its_target_and_stays(budget: int, current: int, capacity: int) -> None:
    """Steady input ends in silence, within the band of the target."""
    wanted = max(budget * 100, be_limit.MIN_QUOTA_US)
    for _ in range(5200):
        following = be_limit.quota_target(budget_milli=budget, current_us=current, capacity_milli=capacity)
        if following is None:
            break
        current = following
    else:
        pytest.fail("still moving")
    assert abs(wanted - current) <= max(1, -(-capacity // 1000)) * 1000


@given(budget=st.integers(-10_000, 600_000), present=st.integers(0, 512), cpus=st.integers(1, 512))
def test_cpu_target_shrinks_at_once_and_grows_by_steps(budget: int, present: int, cpus: int) -> None:
    target = be_limit.cpu_target(budget_milli=budget, present=present, cpus=cpus)
    assert target <= max(present, 0) + cpus // 10 + 1
    assert target >= min(2, present + 1)


@pytest.mark.parametrize(
    ("budget", "before", "held_down", "followed"),
    [
        pytest.param(5000, None, False, 5000, id="at first the budget itself"),
        pytest.param(5160, 5000, False, 5000, id="inside the band nothing moves"),
        pytest.param(4840, 5000, False, 5000, id="to either side"),
        pytest.param(5161, 5000, False, 5161, id="outside it the budget is followed in full"),
        pytest.param(4839, 5000, False, 4839, id="down too"),
        pytest.param(9000, 5000, True, 5000, id="no growth while held down"),
        pytest.param(3000, 5000, True, 3000, id="but down"),
    ],
)
def test_followed_budget(budget: int, before: int | None, held_down: bool, followed: int) -> None:
    found = suppress.followed_budget(budget_milli=budget, before_milli=before, band_milli=160, held_down=held_down)
    assert found == followed


@given(budgets=st.lists(st.integers(-5000, 5000), min_size=1), band=st.integers(0, 3000))
def test_a_span_within_the_band_is_followed_by_one_value(budgets: list[int], band: int) -> None:
    narrow = [budgets[0] + budget % (band + 1) for budget in budgets]
    followed: int | None = None
    seen = set()
    for budget in narrow:
        followed = suppress.followed_budget(budget_milli=budget, before_milli=followed, band_milli=band)
        seen.add(followed)
    assert len(seen) == 1
