"""Schemata lines, cache masks and bandwidth values."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from koordlite.resctrl import bandwidth, masks, schemata
from koordlite.resctrl.values import BandwidthCapability, CacheCapability


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
    assert (read.values, read.kept) == ({"L3": {0: 15}}, ("L9:0=zz;1=what", "L2:uninitialized"))
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


def cap(cbm: int, least: int = 1) -> CacheCapability:
    return CacheCapability(cbm_mask=cbm, min_cbm_bits=least)


@pytest.mark.parametrize(
    ("start", "end", "mask"),
    [
        pytest.param(0, 100, 0xFFF, id="everything"),
        pytest.param(0, 30, 0xF, id="rounded up"),
        pytest.param(50, 100, 0xFC0, id="the upper half"),
        pytest.param(25, 75, 0x1F8, id="the middle"),
        pytest.param(1, 5, 0x2, id="a range that rounds to nothing gets one way"),
        pytest.param(95, 99, 0x800, id="at the upper end the last way"),
    ],
)
def test_mask_of_twelve_ways(start: int, end: int, mask: int) -> None:
    assert masks.cache_mask(start_percent=start, end_percent=end, cap=cap(0xFFF)) == mask


@pytest.mark.parametrize(
    ("start", "end", "mask"),
    [(0, 1, 0b11), (95, 100, 0b11 << 10), (50, 55, 0b11 << 6)],
    ids=["widened upwards", "widened downwards at the end", "widened in the middle"],
)
def test_mask_has_at_least_two_bits_where_the_machine_says_so(start: int, end: int, mask: int) -> None:
    assert masks.cache_mask(start_percent=start, end_percent=end, cap=cap(0xFFF, 2)) == mask


@pytest.mark.parametrize(("start", "end"), [(-1, 50), (0, 101), (30, 30), (40, 30)])
def test_a_bad_range_is_refused(start: int, end: int) -> None:
    with pytest.raises(ValueError, match=f"range {start}-{end} %"):
        masks.cache_mask(start_percent=start, end_percent=end, cap=cap(0xFFF))


@pytest.mark.parametrize("cbm", [0, 4, 0x101, -1])
def test_a_machine_mask_with_holes_is_refused(cbm: int) -> None:
    with pytest.raises(ValueError, match="cbm_mask"):
        masks.cache_mask(start_percent=0, end_percent=100, cap=cap(cbm))


INTEL = BandwidthCapability(min_bandwidth=10, bandwidth_gran=10, maximum=100)
COARSE = BandwidthCapability(min_bandwidth=10, bandwidth_gran=20, maximum=100)
AMD = BandwidthCapability(min_bandwidth=0, bandwidth_gran=1, maximum=2048, delay_linear=False)
AMD_LARGE = BandwidthCapability(min_bandwidth=0, bandwidth_gran=1, maximum=4096, delay_linear=False)
MBPS = BandwidthCapability(min_bandwidth=10, bandwidth_gran=10, maximum=2**32 - 1, mbps=True)


@pytest.mark.parametrize(
    ("machine_cap", "percent", "value"),
    [
        pytest.param(INTEL, None, None, id="not given"),
        pytest.param(INTEL, 0, None, id="0 is out of range"),
        pytest.param(INTEL, 101, None, id="so is 101"),
        pytest.param(MBPS, 50, None, id="a percent means nothing in MB/s"),
        pytest.param(INTEL, 85, 90, id="rounded up to the granularity"),
        pytest.param(INTEL, 1, 10, id="raised to the minimum"),
        pytest.param(INTEL, 100, 100, id="all"),
        pytest.param(COARSE, 5, 20, id="the minimum is rounded too"),
        pytest.param(COARSE, 90, 100, id="never above all"),
        pytest.param(AMD, 100, 2048, id="AMD: all is the machine's maximum"),
        pytest.param(AMD, 50, 80, id="AMD: a share of 160 units"),
        pytest.param(AMD, 1, 1, id="AMD: never 0"),
        pytest.param(AMD_LARGE, 100, 4096, id="a machine that counts further"),
        pytest.param(AMD_LARGE, 50, 160, id="scales with it"),
    ],
)
def test_bandwidth(machine_cap: BandwidthCapability, percent: int | None, value: int | None) -> None:
    assert bandwidth.bandwidth(percent=percent, cap=machine_cap) == value


@given(ways=st.integers(1, 32), least=st.integers(0, 4), start=st.integers(0, 99), end=st.integers(1, 100))
def test_a_mask_is_legal(ways: int, least: int, start: int, end: int) -> None:
    assume(start < end)
    whole = (1 << ways) - 1
    mask = masks.cache_mask(start_percent=start, end_percent=end, cap=cap(whole, least))
    run = mask // (mask & -mask)
    assert mask & ~whole == 0
    assert run & (run + 1) == 0, "contiguous"
    assert mask.bit_count() >= min(max(1, least), ways)


@given(percent=st.integers(1, 100), least=st.integers(1, 20), step=st.sampled_from([1, 5, 10, 20, 25]))
def test_a_bandwidth_is_one_the_kernel_keeps(percent: int, least: int, step: int) -> None:
    value = bandwidth.bandwidth(percent=percent, cap=BandwidthCapability(least, step, 100))
    assert value is not None
    assert max(percent, least) <= value <= 100
    assert value % step == 0


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
