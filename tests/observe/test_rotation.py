"""Looking in turns: the whole is seen in time, what is fresh or asked for at once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlite.observe.rotation import Rotation

NAMES = [f"g{number}" for number in range(50)]


def looked(seconds: float, at_least: int, rounds: int) -> list[list[str]]:
    """Names read in each of so many rounds, a second apart."""
    read: list[list[str]] = []

    def one(name: str) -> str:
        read[-1].append(name)
        return name

    rotation: Rotation[str] = Rotation(one, seconds=seconds, at_least=at_least)
    for second in range(rounds):
        read.append([])
        rotation.begin(second)
        assert list(rotation.all(NAMES)) == NAMES
        rotation.end()
    return read


@given(seconds=st.integers(1, 12), at_least=st.integers(0, 60))
def test_everything_is_read_again_within_the_time(seconds: int, at_least: int) -> None:
    rounds = looked(seconds, at_least, rounds=seconds + 1)
    assert rounds[0] == NAMES
    assert {name for each in rounds[1:] for name in each} == set(NAMES)
    assert all(len(each) <= max(at_least, -(-len(NAMES) // seconds)) for each in rounds[1:])


def test_a_small_node_is_read_whole_each_time() -> None:
    assert looked(seconds=5.0, at_least=64, rounds=3) == [NAMES, NAMES, NAMES]


@pytest.mark.parametrize("how", ["fresh", "again"])
def test_what_we_know_to_have_changed_is_read_at_once(how: str) -> None:
    values = {"a": 1, "b": 1}
    rotation = Rotation(values.get, seconds=1000.0, at_least=0)
    rotation.begin(0)
    rotation.all(values)
    values["b"] = 2
    rotation.begin(0.001, fresh=("b",) if how == "fresh" else ())
    assert (rotation.reread("b") if how == "again" else rotation.get("b")) == 2


def test_what_is_gone_is_missing_and_looked_for_again() -> None:
    values: dict[str, int] = {}
    rotation = Rotation(values.get, seconds=1000.0, at_least=0)
    rotation.begin(0)
    assert rotation.all(["a"]) == {}
    values["a"] = 1
    assert rotation.all(["a"]) == {"a": 1}


def test_what_is_not_asked_for_is_forgotten() -> None:
    values = {"a": 1}
    rotation = Rotation(values.get, seconds=1000.0, at_least=0)
    for second in range(2):
        rotation.begin(second)
        rotation.all(["a"] if second == 0 else [])
        rotation.end()
    values["a"] = 2
    assert rotation.get("a") == 2


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["set", "remove", "forget", "clear", "skip", "get"]), st.sampled_from("abc"), st.integers(0, 2)
    )
)


@given(STEPS, st.lists(st.lists(st.sampled_from("abc"), unique=True), min_size=1, max_size=3))
def test_all_that_is_read_again_is_as_it_is_and_the_same_object_while_nothing_changed(steps, selections) -> None:
    values: dict[str, int] = {"a": 1000}
    rotation = Rotation(values.get, seconds=1000.0, at_least=10)
    for second, (step, name, value) in enumerate(steps):
        if step == "set":
            values[name] = 1000 + value
        elif step == "remove":
            values.pop(name, None)
        elif step == "forget":
            rotation.forget([name])
        elif step == "clear":
            rotation.clear()
        rotation.begin(second)
        if step == "get":
            assert rotation.get(name) == values.get(name)
        if step != "skip":
            names = selections[value % len(selections)]
            readings = rotation.all(names)
            assert list(readings.items()) == [(each, values[each]) for each in names if each in values]
            if readings.keys() >= set(names):
                rotation.begin(second)
                assert rotation.all(names) is readings
        rotation.end()
