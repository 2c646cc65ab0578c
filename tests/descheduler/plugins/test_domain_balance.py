"""Levelling of domains: invariants, and pods that cannot move."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from descheduler.plugins.remove_pods_violating_topology_spread_constraint import is_level, moves

sizes = st.lists(st.integers(0, 12), min_size=1, max_size=6).map(sorted)


def domains_of(counts: list[int]) -> list[list[str]]:
    return [[f"{number}-{i}" for i in range(count)] for number, count in enumerate(counts)]


@given(sizes, st.integers(1, 4))
def test_nobody_is_lost_and_no_domain_leaves_the_bounds(counts: list[int], skew: int) -> None:
    domains = domains_of(counts)
    everybody = {item for items in domains for item in items}
    moved = list(moves(domains, skew, lambda _: True))
    assert sorted(item for items in domains for item in items) == sorted(everybody)
    after = [len(items) for items in domains]
    assert max(after) <= max(counts)
    assert min(after) >= min(counts)
    assert set(moved) <= everybody


@given(sizes, st.integers(1, 4))
def test_level_domains_give_nothing(counts: list[int], skew: int) -> None:
    if is_level(counts, skew):
        assert list(moves(domains_of(counts), skew, lambda _: True)) == []


@given(st.integers(0, 12), st.integers(0, 12), st.integers(1, 4))
def test_two_domains_always_come_level(one: int, other: int, skew: int) -> None:
    domains = domains_of(sorted((one, other)))
    list(moves(domains, skew, lambda _: True))
    assert is_level([len(items) for items in domains], skew)


@given(sizes, st.integers(1, 4), st.sets(st.integers(0, 11)))
def test_what_cannot_move_stays(counts: list[int], skew: int, stuck: set[int]) -> None:
    fixed = {f"{number}-{i}" for number in range(len(counts)) for i in stuck}
    domains = domains_of(counts)
    where = {item: number for number, items in enumerate(domains) for item in items}
    moved = list(moves(domains, skew, lambda item: item not in fixed))
    assert not fixed & set(moved)
    assert all(where[item] == number for number, items in enumerate(domains) for item in items if item in fixed)


@pytest.mark.parametrize(
    ("stuck", "moved"),
    [
        pytest.param("", ["d"], id="the last goes"),
        pytest.param("d", ["c"], id="the one before it when the last cannot"),
        pytest.param("abcd", [], id="nobody can"),
    ],
)
def test_a_domain_gives_its_last_movable_item(stuck: str, moved: list[str]) -> None:
    assert list(moves([["x", "y"], list("abcd")], 1, lambda item: item not in stuck)) == moved


def test_a_domain_of_stuck_items_lets_the_next_one_give() -> None:
    domains = [[], list("abc"), list("wxyz")]
    assert list(moves(domains, 1, lambda item: item in "abc")) == ["c"]


def test_an_item_is_asked_only_while_it_may_be_taken() -> None:
    asked: list[str] = []

    def movable(item: str) -> bool:
        asked.append(item)
        return True

    list(moves([["x"], list("abc")], 1, movable))
    assert asked == ["c"]


@pytest.mark.parametrize(
    ("preferred", "moved"),
    [
        pytest.param("abcdef", ["e", "f"], id="all alike"),
        pytest.param("ac", ["a", "c"], id="as many as are wanted"),
        pytest.param("a", ["f", "a"], id="too few"),
        pytest.param("", ["e", "f"], id="none"),
    ],
)
def test_what_is_preferred_goes_first(preferred: str, moved: list[str]) -> None:
    domains: list[list[str]] = [["x"], list("abcdef")]
    assert list(moves(domains, 1, lambda _: True, preferred=lambda item: item in preferred)) == moved
    assert sorted(domains[1] + moved) == list("abcdef")
