"""Whatever goes wrong, and in whatever order: rules that hold after every write and after the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import slices
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from koordlite.lab.chaos import QUIET, Rates

Live = Callable[..., Any]
SHAPES = ("small", "arm", "anolis")
"""cgroup v1, v2, and v1 with the extensions of Anolis."""
TROUBLE = Rates(write=0.15, read=0.02, vanish=0.15, hostile=0)
HOSTILE = Rates(write=0.1, read=0.01, vanish=0.1, hostile=0.5)

pytestmark = pytest.mark.sliced
lives = settings(
    max_examples=slices.amount(8, 2),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.mark.parametrize("shape", slices.first(SHAPES, 2))
@lives
@given(seed=st.integers(0, 10_000))
def test_where_all_goes_well_the_kernel_refuses_nothing(live: Live, shape: str, seed: int) -> None:
    life = live(shape=shape, seed=seed, rates=QUIET)
    list(life.run())
    assert not life.refused
    assert not life.outside, "a child is within its parent after each single write"
    assert not life.overcommitted, "a parent is promised what its children are after each single write"
    assert not life.forbidden
    assert not life.unjournalled
    assert not life.wrong()
    assert life.files.writes, "something was written at all"


@pytest.mark.parametrize("shape", slices.first(SHAPES, 2))
@lives
@given(seed=st.integers(0, 10_000))
def test_files_that_fail_and_groups_that_vanish(live: Live, shape: str, seed: int) -> None:
    life = live(shape=shape, seed=seed, rates=TROUBLE)
    ticks = list(life.run())
    assert not any("failed" in tick.because or "StrategyFailed" in str(tick.decisions) for tick in ticks)
    assert not life.forbidden
    assert not life.unjournalled
    assert not life.overcommitted_at_last, "once the trouble is over"
    assert [step for step in life.restored if not step.ok] == []
    assert not life.wrong()


@pytest.mark.parametrize("shape", slices.first(SHAPES, 2))
@lives
@given(seed=st.integers(0, 10_000))
def test_a_hostile_second_writer_besides(live: Live, shape: str, seed: int) -> None:
    life = live(shape=shape, seed=seed, rates=HOSTILE)
    ticks = list(life.run())
    assert not any("StrategyFailed" in str(tick.decisions) for tick in ticks)
    assert not life.forbidden
    assert not life.unjournalled
    refused = {step.place for step in life.restored if not step.ok}
    told = {entry.path for entry in life.entries if entry.place in refused}
    assert not set(life.wrong()) - told, "what is not as it was found is told"
