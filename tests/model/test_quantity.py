"""Kubernetes quantities."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlite.model.quantity import NANO, Format, Quantity, add_resources


@pytest.mark.parametrize(
    ("text", "nano"),
    [
        ("0", 0),
        ("2", 2 * NANO),
        ("500m", NANO // 2),
        ("1.5", 3 * NANO // 2),
        (".5", NANO // 2),
        ("5.", 5 * NANO),
        ("-2", -2 * NANO),
        ("+2", 2 * NANO),
        ("1e3", 1000 * NANO),
        ("1E-3", NANO // 1000),
        ("1k", 1000 * NANO),
        ("1Ki", 1024 * NANO),
        ("1.5Gi", 3 * 2**29 * NANO),
        ("1n", 1),
        ("0.1n", 1),
        ("-0.1n", -1),
        (" 2 ", 2 * NANO),
        (5, 5 * NANO),
        (1.5, 3 * NANO // 2),
    ],
)
def test_parse(text: str | int | float, nano: int) -> None:
    assert Quantity.parse(text).nano == nano


@pytest.mark.parametrize("text", ["", ".", "m", "1C", "1K", "1 Gi", "1Gi2", "e3", "1e", "--1", "0x10", "NaN", "1\n"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        Quantity.parse(text)


@pytest.mark.parametrize(
    ("text", "value", "milli"),
    [("1500m", 2, 1500), ("-1500m", -2, -1500), ("1n", 1, 1), ("1m", 1, 1), ("2", 2, 2000), ("1u", 1, 1)],
)
def test_value_and_milli_round_away_from_zero(text: str, value: int, milli: int) -> None:
    assert (Quantity.parse(text).value, Quantity.parse(text).milli) == (value, milli)


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("50000", "50k"),
        ("0.5", "500m"),
        ("128849018880", "128849018880"),
        ("120Gi", "120Gi"),
        ("1024Mi", "1Gi"),
        ("512", "512"),
        ("1.5Gi", "1536Mi"),
        ("0Gi", "0"),
        ("1e3", "1e3"),
        ("-2", "-2"),
    ],
)
def test_prints_in_the_family_it_was_written_in(text: str, printed: str) -> None:
    assert str(Quantity.parse(text)) == printed


@pytest.mark.parametrize(
    ("amounts", "printed"),
    [(("0", "4Gi"), "4Gi"), (("4Gi", "0"), "4Gi"), (("1Gi", "1024"), "1048577Ki"), (("0", "0"), "0")],
)
def test_a_sum_is_printed_as_its_first_amount_that_is_not_zero_was_written(
    amounts: tuple[str, ...], printed: str
) -> None:
    total: dict[str, Quantity] = {}
    for amount in amounts:
        add_resources(total, {"memory": Quantity.parse(amount)})
    assert str(total["memory"]) == printed


def test_compares_by_amount() -> None:
    assert Quantity.parse("1024Mi") == Quantity.parse("1Gi")
    assert Quantity.parse("999m") < Quantity.parse("1")
    assert Quantity.of(3) == Quantity.of_milli(3000)


FORMATS: st.SearchStrategy[Format] = st.sampled_from(["DecimalSI", "BinarySI", "DecimalExponent"])


@given(st.integers(-(10**27), 10**27), FORMATS)
def test_parse_reads_what_str_prints(nano: int, fmt: Format) -> None:
    assert Quantity.parse(str(Quantity(nano, fmt))) == Quantity(nano)


@given(st.text(max_size=12))
def test_parse_raises_nothing_but_value_errors(text: str) -> None:
    try:
        Quantity.parse(text)
    except ValueError as error:
        assert "is not a quantity" in str(error)
