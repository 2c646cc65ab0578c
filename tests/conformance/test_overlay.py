"""A part of a part, as goresctrl counts it."""

from __future__ import annotations

import pytest

from tests.conformance import overlay


@pytest.mark.parametrize(
    ("base", "low", "high", "least", "part"),
    [
        pytest.param(0xFFF, 0, 50, 1, 0x3F, id="half"),
        pytest.param(0xFF0, 0, 50, 1, 0xF0, id="of a part that does not begin at way 0"),
        pytest.param(0xFFF, 1, 1, 2, 0x3, id="widened upwards where there is nothing below"),
        pytest.param(0xFFF, 99, 100, 3, 0xE00, id="widened downwards first"),
    ],
)
def test_a_part_of_a_part(base: int, low: int, high: int, least: int, part: int) -> None:
    assert overlay.percent_part(base=base, low=low, high=high, min_bits=least) == part


@pytest.mark.parametrize(
    ("base", "low", "high", "least"),
    [(0xFFF, 0, 0, 1), (0xFFF, 60, 50, 1), (0xFFF, 1, 101, 1), (0b101, 1, 50, 1), (0, 1, 50, 1), (0b1, 1, 50, 2)],
    ids=["nothing", "backwards", "beyond", "a base with holes", "no base", "a base too small"],
)
def test_no_part_of_a_part(base: int, low: int, high: int, least: int) -> None:
    with pytest.raises(ValueError):
        overlay.percent_part(base=base, low=low, high=high, min_bits=least)


def test_a_mask_within_a_part_begins_at_the_parts_first_way() -> None:
    assert overlay.absolute_part(base=0xFF0, mask=0x6, min_bits=1) == 0x60
    with pytest.raises(ValueError, match="not all among"):
        overlay.absolute_part(base=0xFF0, mask=0x1FF, min_bits=1)
