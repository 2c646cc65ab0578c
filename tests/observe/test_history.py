"""Several windows over one set of samples: each as if it alone had been kept."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlite.formulas import measured
from koordlite.model.picture.usage import Use
from koordlite.observe.windows import History

Samples = list[tuple[int, int]]
PAUSED = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 10**6)), min_size=1, max_size=200)
LENGTHS = st.sets(st.integers(1, 60), min_size=1, max_size=3)


def filled(history: History, paused: Samples) -> Samples:
    """`history` with a sample after each pause; all samples with their times."""
    now, kept = 0, []
    for pause, cpu in paused:
        now += pause
        kept.append((now, cpu))
        history.add(now, Use(cpu, 2 * cpu))
    return kept


def inside(kept: Samples, seconds: int) -> list[int]:
    return [cpu for time, cpu in kept if time >= kept[-1][0] - seconds]


def test_a_window_is_bounded_by_time_and_not_by_count() -> None:
    history = History([10])
    filled(history, [(1, second) for second in range(100)])
    assert history.samples(10) == 11
    assert history.mean(10) == Use(sum(range(89, 100)) // 11, 2 * sum(range(89, 100)) // 11)


def test_a_sum_beyond_63_bits_counts_as_the_largest_number() -> None:
    history, most = History([10]), 2**63 - 1
    for second in range(100):
        history.add(second, Use(2**64 + second, 2**63))
    assert history.mean(10) == Use(most, most)
    assert history.percentiles(10, (50,)).keys() == {50}
    for second in range(100, 120):
        history.add(second, Use(7, 9))
    assert history.mean(10) == Use(7, 9)


def test_an_empty_window_has_neither_mean_nor_percentile() -> None:
    history = History([10])
    history.add(0, Use(1, 1))
    history.trim(11)
    assert (history.mean(10), history.percentiles(10, (50,)), history.samples(10)) == (None, {}, 0)


@given(PAUSED, LENGTHS)
def test_each_mean_is_that_of_the_samples_inside(paused: Samples, lengths: set[int]) -> None:
    history = History(lengths)
    kept = filled(history, paused)
    for seconds in lengths:
        cpus = inside(kept, seconds)
        assert history.samples(seconds) == len(cpus)
        assert history.mean(seconds) == Use(sum(cpus) // len(cpus), 2 * sum(cpus) // len(cpus))


@given(PAUSED, LENGTHS, st.sampled_from([1, 50, 90, 95, 99, 100]))
def test_each_percentile_is_that_of_the_samples_inside(paused: Samples, lengths: set[int], percent: int) -> None:
    history = History(lengths)
    kept = filled(history, paused)
    for seconds in lengths:
        cpu = int(measured.percentile(inside(kept, seconds), percent / 100))
        assert history.percentiles(seconds, (percent,)) == {percent: Use(cpu, 2 * cpu)}


@given(PAUSED, PAUSED, LENGTHS, LENGTHS)
def test_other_windows_go_on_with_the_samples_there_are(
    before: Samples, after: Samples, first: set[int], then: set[int]
) -> None:
    history = History(first)
    held = [each for each in filled(history, before) if each[0] >= sum(p for p, _ in before) - max(first)]
    history.resize(then)
    now = held[-1][0]
    for pause, cpu in after:
        now += pause
        history.add(now, Use(cpu, 0))
        held.append((now, cpu))
    for seconds in then:
        # Samples that no window needed any more may have stayed, but never fewer than were needed.
        mean = history.mean(seconds)
        if seconds <= max(first):
            cpus = inside(held, seconds)
            assert mean is not None and mean.cpu == sum(cpus) // len(cpus)


@pytest.mark.parametrize("seconds", [1, 300])
def test_what_falls_out_leaves_memory(seconds: int) -> None:
    history = History([seconds])
    filled(history, [(1, 7)] * 5000)
    assert len(history) <= seconds + 1 + 64
