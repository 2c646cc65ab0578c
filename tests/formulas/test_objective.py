"""The limit by the objectives of services: when it moves, and how far."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlite.formulas.cpu import contention, objective
from koordlite.formulas.cpu.objective import Level, Steered, Steering

NODE = {"floor_milli": 4_000, "ceiling_milli": 9_800, "capacity_milli": 10_000}


def steered(*levels: Level, time: float = 100.0, present: int = 9_800, **steering: Any) -> Steered:
    return objective.steered(levels, Steering(**steering), time=time, present_milli=present, **NODE)


@pytest.mark.parametrize(
    ("ratio", "since", "present", "steering", "limit"),
    [
        pytest.param(0.9, 70, 5_000, {}, 9_800, id="never missed and calm: all of it"),
        pytest.param(0.91, 70, 5_000, {}, 5_000, id="near its objective: the limit stays"),
        pytest.param(1.0, 70, 5_000, {"moved_at": 10.0}, 5_000, id="exactly at it: the limit stays"),
        pytest.param(1.01, 70, 9_800, {}, 6_900, id="missed: half the way to the formula's"),
        pytest.param(1.01, 70, 6_900, {"moved_at": 71.0}, 6_900, id="the window began before the last move"),
        pytest.param(1.01, 71, 6_900, {"moved_at": 71.0}, 5_450, id="the window began with the last move"),
        pytest.param(1.01, 70, 4_500, {}, 4_000, id="5 % of the node above the formula's: to it"),
        pytest.param(0.5, 71, 5_000, {"moved_at": 71.0}, 5_500, id="calm after a move: 5 % of the node more"),
        pytest.param(0.5, 70, 5_000, {"moved_at": 71.0}, 5_000, id="calm, but not measured since the move"),
        pytest.param(0.5, 70, 1_000, {"moved_at": 50.0}, 4_500, id="below the formula's: from there"),
    ],
)
def test_the_limit_moves_once_in_a_window(
    ratio: float, since: float, present: int, steering: dict[str, Any], limit: int
) -> None:
    assert steered(Level("web", ratio, since), present=present, **steering).limit_milli == limit


def test_the_service_that_is_worst_off_decides() -> None:
    answer = steered(Level("calm", 0.2, 70.0), Level("late", 1.3, 70.0))
    assert answer.limit_milli == 6_900
    assert answer.worst and answer.worst.uid == "late"


def test_what_waits_have_taken_comes_back_while_an_objective_is_nearly_missed() -> None:
    level = Level("web", 0.95, 70.0)
    began = steered(level)
    learning = objective.steered([level], began.steering, time=110.0, present_milli=4_000, **NODE)
    assert (began.limit_milli, learning.limit_milli) == (9_800, 9_800), "it has never been missed"
    missed = steered(Level("web", 1.2, 70.0))
    level = Level("web", 0.95, 100.0)
    again = objective.steered([level], missed.steering, time=130.0, present_milli=4_000, **NODE)
    assert (missed.limit_milli, again.limit_milli) == (6_900, 6_900)
    calm = objective.steered([Level("web", 0.5, 100.0)], again.steering, time=130.0, present_milli=4_000, **NODE)
    assert calm.limit_milli == 6_900, "what was measured at 4 CPUs says nothing about more than 4.5"


def test_an_objective_that_the_formulas_limit_does_not_help_is_left_aside() -> None:
    began = steered(Level("web", 1.5, 80.0), present=4_000)
    assert (began.limit_milli, began.steering.at_floor_since) == (4_000, 100.0)
    within = objective.steered([Level("web", 1.5, 99.0)], began.steering, time=129.0, present_milli=4_050, **NODE)
    assert (within.limit_milli, within.steering.aside) == (4_000, {})
    over = objective.steered([Level("web", 1.5, 100.0)], within.steering, time=130.0, present_milli=4_050, **NODE)
    assert (over.limit_milli, over.steering.aside, over.worst) == (9_800, {"web": 130.0}, None)
    later = objective.steered([Level("web", 1.5, 699.0)], over.steering, time=729.0, present_milli=9_800, **NODE)
    assert later.limit_milli == 9_800
    judged = objective.steered([Level("web", 1.5, 700.0)], later.steering, time=730.0, present_milli=9_800, **NODE)
    assert (judged.limit_milli, judged.steering.aside) == (6_900, {})


def test_of_two_only_the_one_that_is_not_helped_is_left_aside() -> None:
    levels = [Level("web", 1.5, 100.0), Level("db", 1.2, 70.0)]
    answer = steered(*levels, time=130.0, present=4_000, at_floor_since=100.0)
    assert (answer.steering.aside, answer.limit_milli) == ({"web": 130.0}, 4_000)
    assert answer.worst and answer.worst.uid == "db"


def test_a_clock_that_starts_again_leaves_nothing_aside() -> None:
    assert objective.active([Level("web", 1.5, 0.0)], Steering(aside={"web": 5_000.0}), 10.0)


def test_a_service_with_an_objective_is_not_judged_by_its_waits() -> None:
    web = contention.Service("web", share=0.9, since=95.0, tolerance=0.1)
    node = {"present_milli": 9_800, "used_milli": 9_000, "floor_milli": 4_000, "capacity_milli": 10_000}
    calm = contention.guided([web], contention.Guidance(), time=100.0, levels=[Level("web", 0.5, 70.0)], **node)
    assert (calm.limit_milli, calm.objective) == (9_800, None)
    missed = contention.guided([], contention.Guidance(), time=100.0, levels=[Level("web", 1.5, 70.0)], **node)
    assert missed.objective and missed.limit_milli == 6_900
    waits = contention.guided([web], contention.Guidance(), time=100.0, **node)
    assert (waits.limit_milli, waits.objective) == (4_000, None)


@given(
    ratios=st.lists(st.floats(0, 1e9), max_size=4),
    ages=st.floats(0, 200),
    present=st.integers(0, 20_000),
    moments=st.tuples(st.none() | st.floats(0, 100), st.none() | st.floats(0, 100)),
    floor=st.integers(0, 9_800),
)
def test_the_limit_is_between_the_formulas_and_the_ceiling(
    ratios: list[float], ages: float, present: int, moments: tuple[float | None, float | None], floor: int
) -> None:
    levels = [Level(str(number), ratio, 100 - ages) for number, ratio in enumerate(ratios)]
    steering = Steering(moved_at=moments[0], at_floor_since=moments[1])
    bounds = {"floor_milli": floor, "ceiling_milli": 9_800, "capacity_milli": 10_000}
    answer = objective.steered(levels, steering, time=100.0, present_milli=present, **bounds)
    assert floor <= answer.limit_milli <= 9_800
    if any(ratio > 1 for ratio in ratios) and not answer.steering.aside:
        assert answer.limit_milli <= max(present, floor)


@pytest.mark.parametrize("blame", [pytest.param(True, id="best effort"), pytest.param(False, id="something else")])
def test_a_closed_loop_ends_where_the_objective_is_kept_or_best_effort_has_it_all(blame: bool) -> None:
    """A service whose p99 rises with what best effort gets meets its objective; one that is slow anyhow costs best
    effort a few windows in ten minutes."""
    steering, limit, kept, own = Steering(), 9_800, [], 0
    history = [limit]
    for second in range(1_200):
        window = history[-30:]
        mean = sum(window) / len(window)
        ratio = mean / 8_000 if blame else 1.4
        level = Level("web", ratio, second - 30.0)
        answer = objective.steered([level], steering, time=float(second), present_milli=limit, **NODE)
        steering, limit = answer.steering, answer.limit_milli
        history.append(limit)
        kept.append(ratio <= 1)
        own += limit > 9_000
    if blame:
        assert sum(kept[300:]) > 0.9 * 900, "its objective is kept nearly always"
        assert sum(history[300:]) / 900 > 6_000, "and best effort has more than the formula's 4 CPUs"
    else:
        assert own > 850
