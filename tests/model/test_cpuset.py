"""CPU lists in and out."""

from __future__ import annotations

import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlite.model import cpuset
from koordlite.model.cpuset import CPUSet

IDS = st.sets(st.integers(0, 4096)).map(CPUSet)


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("", ""),
        ("0", "0"),
        ("0-3", "0-3"),
        ("3,2,1,1", "1-3"),
        ("1,2", "1-2"),
        ("0-3,2-5,8", "0-5,8"),
        ("+1", "1"),
        ("007", "7"),
        ("3-1", ""),
        ("9999", "9999"),
        ("4090-4096", "4090-4096"),
    ],
)
def test_lists_print_canonically(text: str, printed: str) -> None:
    assert str(CPUSet.parse(text)) == printed


@pytest.mark.parametrize(
    "text",
    [
        " 1",
        "1 ",
        "1\n",
        "1,,2",
        ",1",
        "1,",
        "-1",
        "1-",
        "1-2-3",
        "0x1",
        "1_0",
        "a",
        "1--2",
        "٣",
        "0-4097",
        "2147483648",
    ],
)
def test_what_is_no_list_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(ValueError, match=r" in '"):
        CPUSet.parse(text)


@given(IDS)
def test_parse_reads_what_str_prints(ids: CPUSet) -> None:
    assert CPUSet.parse(str(ids)) == ids


@given(st.text(alphabet="0123456789,-+ \n", max_size=12))
def test_parse_raises_nothing_but_value_errors_that_quote_the_text(text: str) -> None:
    try:
        CPUSet.parse(text)
    except ValueError as error:
        assert repr(text) in str(error)


@given(IDS, IDS)
def test_set_algebra_is_that_of_sets(a: CPUSet, b: CPUSet) -> None:
    assert set(a | b) == set(a) | set(b)
    assert set(a & b) == set(a) & set(b)
    assert set(a - b) == set(a) - set(b)
    assert (a <= b) == (set(a) <= set(b))
    assert cpuset.union([a, b]) == a | b


def test_a_set_is_a_value() -> None:
    ids = CPUSet([1, 2])
    with pytest.raises(AttributeError):
        ids.ids = frozenset()  # type: ignore[misc]
    assert ids == copy.copy(ids) == pickle.loads(pickle.dumps(ids))
    assert hash(ids) == hash(CPUSet([2, 1]))
    assert ids != {1, 2}
    assert not CPUSet()
    assert 1 in ids
    assert list(CPUSet([5, 3])) == [3, 5]
