"""A value and a difference give the newer value, for everything that may stand in a record."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordlite.changes.cgroup import CgroupChange
from koordlite.changes.eviction import EvictPod
from koordlite.model.cpuset import CPUSet
from koordlite.model.decision import Decision
from koordlite.model.picture.groups import Process
from koordlite.model.picture.usage import Usage, Use
from koordlite.model.pod.qos import QoSClass
from koordlite.model.pressure import Pressure, Stall
from koordlite.record import words
from koordlite.record.damage import Damage
from koordlite.record.delta import difference
from koordlite.record.gaps import gaps, plus
from koordlite.record.patch import Patcher
from koordlite.record.plain import Builder, plain

NUMBERS = st.integers(min_value=-(2**70), max_value=2**70)
FLOATS = st.floats(allow_nan=False).map(lambda number: number + 0.0)
"""Without a negative zero: the sign of a zero is not kept."""
TEXT = st.text(max_size=6)
USES = st.builds(Use, cpu=st.integers(0, 10**7), memory=st.integers(0, 2**44).map(lambda pages: pages * 4096))
PODS = st.dictionaries(TEXT, USES, max_size=5)
STALLS = st.builds(
    Stall,
    avg10=st.integers(0, 10000).map(lambda hundredths: hundredths / 100),
    avg60=FLOATS,
    avg300=st.floats(0, 100),
    total_us=st.integers(0, 2**60),
)
CHANGES = st.one_of(
    st.builds(CgroupChange, TEXT, st.just("cpuset.cpus"), st.sets(st.integers(0, 300)).map(CPUSet)),
    st.builds(CgroupChange, TEXT, st.just("cpu.quota"), NUMBERS),
    st.builds(EvictPod, TEXT, TEXT, TEXT, TEXT),
)
DECISIONS = st.builds(
    Decision,
    subject=TEXT,
    verdict=st.sampled_from(["set", "hold", "evict"]),
    reason=TEXT,
    evidence=st.dictionaries(TEXT, st.one_of(NUMBERS, FLOATS, TEXT), max_size=3),
    changes=st.lists(CHANGES, max_size=3).map(tuple),
    strategy=st.sampled_from(["cpuSuppress", "memoryEvict"]),
    remember=st.none() | st.dictionaries(TEXT, FLOATS, max_size=2),
)
VALUES = st.one_of(
    NUMBERS,
    TEXT,
    st.none(),
    st.booleans(),
    FLOATS,
    st.frozensets(TEXT, max_size=4),
    st.frozensets(st.integers(0, 1000), max_size=4),
    st.lists(st.integers(-(2**65), 2**65), max_size=5).map(tuple),
    st.lists(st.builds(Process, st.integers(1, 9), st.integers(0, 9), st.integers(-9, 9)), max_size=5).map(tuple),
    st.lists(DECISIONS, max_size=5).map(tuple),
    st.dictionaries(TEXT, st.dictionaries(st.tuples(TEXT, TEXT), st.integers(), max_size=3), max_size=4),
    st.dictionaries(TEXT, st.builds(Pressure, some=STALLS, full=st.none() | STALLS), max_size=3),
    st.builds(Usage, node=st.none() | USES, pods=PODS, host_apps=PODS, samples=st.integers(0, 9)),
    st.dictionaries(st.sampled_from(QoSClass), st.sets(st.integers(0, 64)).map(CPUSet), max_size=3),
)


@pytest.fixture(scope="module")
def builder() -> Builder:
    return Builder(words.table())


def through(value: Any) -> Any:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(value))


def keys(value: Any) -> list[Any]:
    return list(value) if isinstance(value, Mapping) else []


@given(value=VALUES)
@settings(max_examples=100, deadline=None)
def test_what_comes_back_equals_what_went_in(builder: Builder, value: Any) -> None:
    back = builder.build(through(plain(value)))
    assert back == value
    assert type(back) is type(value)


@given(old=VALUES, new=VALUES)
@settings(max_examples=100, deadline=None)
def test_any_value_follows_from_any_other_one(builder: Builder, old: Any, new: Any) -> None:
    back = Patcher(builder).patched(old, through(difference(new, old)))
    assert back == new
    assert keys(back) == keys(new)


@given(chain=st.lists(VALUES, min_size=3, max_size=3), order=st.permutations(range(4)))
@settings(max_examples=100, deadline=None)
def test_differences_one_after_the_other_lead_to_the_last_value(
    builder: Builder, chain: list[Any], order: list[int]
) -> None:
    numbers = {f"key {number}": number for number in range(4)}
    shuffled = {f"key {number}": number for number in order}
    moved = {f"key {number}": number + 1 for number in order}
    for values in (chain, [numbers, shuffled, moved], [{"a": 1}, {"a": 1.0}, {"a": True}, {"a": 3}]):
        back = values[0]
        for old, new in itertools.pairwise(values):
            back = Patcher(builder).patched(back, through(difference(new, old)))
            assert back == new
            assert keys(back) == keys(new)
            assert repr(back) == repr(new) or isinstance(new, frozenset)


@given(pair=st.sampled_from([DECISIONS, PODS, st.builds(Usage, node=USES, pods=PODS, host_apps=PODS)]), data=st.data())
@settings(max_examples=100, deadline=None)
def test_items_may_come_go_and_move(builder: Builder, pair: st.SearchStrategy[Any], data: st.DataObject) -> None:
    pool = data.draw(st.lists(pair, min_size=1, max_size=6))
    picks = st.lists(st.sampled_from(pool), max_size=8).map(tuple)
    old, new = data.draw(picks), data.draw(picks)
    assert Patcher(builder).patched(old, through(difference(new, old))) == new


@given(st.lists(st.tuples(st.integers(-(2**60), 2**60), st.integers(-(2**60), 2**60)), min_size=1, max_size=200))
@settings(deadline=None)
def test_numbers_and_how_far_they_moved_give_the_numbers(pairs: list[tuple[int, int]]) -> None:
    new, old = [new for new, _ in pairs], [old for _, old in pairs]
    assert plus(old, gaps(new, old)) == new


def test_what_did_not_change_stays_the_same_object(builder: Builder) -> None:
    old = (Use(1, 2), Use(3, 4))
    back = Patcher(builder).patched({"a": old, "b": 1}, difference({"a": old, "b": 2}, {"a": old, "b": 1}))
    assert back["a"] is old


def test_a_class_that_is_not_in_the_vocabulary_is_refused() -> None:
    with pytest.raises(TypeError, match="not in the vocabulary"):
        plain(object())


def test_fields_of_another_version_are_left_out_or_get_their_default() -> None:
    table = [["usage.Use", ["cpu", "colour", "memory"]], ["usage.Usage", ["node", "pods", "host_apps"]]]
    builder = Builder(table)
    assert builder.build([words.FIRST_CODE, 5, "red", 7]) == Use(5, 7)
    assert builder.build([words.FIRST_CODE + 1, None, [1], [1]]) == Usage(None, {}, {})
    changed = [1, 0, 2, 1, [0, "blue"]]
    assert Patcher(builder).patched(Use(5, 7), changed) == Use(7, 7)


@pytest.mark.parametrize(
    "value",
    [[], ["x"], [5000], [-1], [words.FIRST_CODE], [3, "2-"], [1, "a"]],
    ids=["nothing", "no mark", "no such class", "no such mark", "too few fields", "no CPU list", "half a pair"],
)
def test_what_nobody_wrote_is_damage(builder: Builder, value: Any) -> None:
    with pytest.raises(Damage):
        Patcher(builder).patched(None, [0, value])
