"""Schemata lines: read, printed, compared."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlite.resctrl import schemata


@pytest.mark.parametrize(
    ("text", "values"),
    [
        pytest.param("", {}, id="an empty file"),
        pytest.param("L3:0=f;1=f", {"L3": {0: 15, 1: 15}}, id="one line"),
        pytest.param(
            "    L3:0=00f;4=fff\n    MB:0= 50;4=100\n", {"L3": {0: 15, 4: 4095}, "MB": {0: 50, 4: 100}}, id="padded"
        ),
        pytest.param(
            "MB:0=2048;\n\nSMBA:0=  16\n", {"MB": {0: 2048}, "SMBA": {0: 16}}, id="decimal bandwidths, last ;"
        ),
        pytest.param("L3CODE:0=7\nL3DATA:0=78", {"L3CODE": {0: 7}, "L3DATA": {0: 120}}, id="code and data apart"),
        pytest.param("L2:", {"L2": {}}, id="a resource without a domain"),
    ],
)
def test_parse(text: str, values: dict[str, dict[int, int]]) -> None:
    assert schemata.parse(text).values == values


@pytest.mark.parametrize("text", ["L3", "L3:0", "L3:0=zz", "MB:0=1f", "L3:x=1", "L3:0=1=2", ":0=1", "L3:0=-1"])
def test_a_line_that_cannot_be_read_is_named(text: str) -> None:
    with pytest.raises(ValueError, match=r"^schemata line '"):
        schemata.parse(f"L2:0=1\n{text}\n")


def test_line_is_ascending_hex_or_decimal() -> None:
    assert schemata.line("L3", {8: 0xFFF, 0: 0x3F}) == "L3:0=3f;8=fff"
    assert schemata.line("MB", {1: 100, 0: 10}) == "MB:0=10;1=100"


def test_what_we_do_not_know_is_kept_as_it_is() -> None:
    read = schemata.parse("  L9:0=zz;1=what\nL3:0=f\nL2:uninitialized\n")
    assert (read.values, read.unknown) == ({"L3": {0: 15}}, ("L9:0=zz;1=what", "L2:uninitialized"))
    assert str(read) == "L3:0=f\nL9:0=zz;1=what\nL2:uninitialized\n"


def test_an_id_that_is_there_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="cache id 1 is there twice"):
        schemata.parse("L3:1=f;1=3")


def test_the_difference_is_what_has_to_be_written() -> None:
    present = schemata.parse("L3:0=f;1=f\nMB:0=100;1=100\n")
    wanted = {"L3": {0: 0xF, 1: 0x3, 9: 0x3}, "MB": {0: 100, 1: 100}, "L2": {0: 1}}
    assert present.difference(wanted) == {"L3": {1: 0x3}}


def test_changed_leaves_out_equal_values_and_unknown_caches() -> None:
    assert schemata.changed({0: 15, 1: 15}, {0: 15, 1: 7, 9: 7}) == {1: 7}


@given(
    st.sampled_from(["L3", "L2", "L3CODE", "MB", "SMBA"]),
    st.dictionaries(st.integers(0, 300), st.integers(0, 2**32), min_size=1, max_size=12),
)
def test_parse_reads_what_line_prints(resource: str, values: dict[int, int]) -> None:
    assert schemata.parse(schemata.line(resource, values)).values == {resource: values}


@given(
    st.dictionaries(
        st.sampled_from(["L3", "L2", "L3CODE", "MB", "SMBA"]),
        st.dictionaries(st.integers(0, 300), st.integers(0, 2**32), min_size=1, max_size=6),
    )
)
def test_a_printed_value_is_read_back(values: dict[str, dict[int, int]]) -> None:
    assert schemata.parse(str(schemata.Schemata(values))) == schemata.Schemata(values)


@given(st.text(alphabet="L3MB:=;0f \n-x", max_size=40))
def test_parse_raises_nothing_but_value_errors(text: str) -> None:
    try:
        schemata.parse(text)
    except ValueError as error:
        assert "schemata line" in str(error)
