"""Classes and bands."""

from __future__ import annotations

import pytest

from koordlite.model.pod.qos import (
    sub_priority,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (None, 0),
        ("", 0),
        ("0", 0),
        ("9100", 9100),
        ("-5", -5),
        ("+5", 5),
        ("0x1F", 31),
        ("0X1f", 31),
        ("0b101", 5),
        ("0o17", 15),
        ("017", 15),
        ("-017", -15),
        ("0_17", 15),
        ("1_000", 1000),
        ("0x_ff", 255),
        ("2147483647", 2**31 - 1),
        ("-2147483648", -(2**31)),
    ],
)
def test_the_order_inside_a_band_is_written_as_in_go(text: str | None, value: int) -> None:
    assert sub_priority(text) == value


@pytest.mark.parametrize(
    "text", ["08", "1__0", "_1", "1_", "0x", "1.5", " 1", "1\n", "١", "high", "2147483648", "--1", "1e3"]
)
def test_what_go_refuses_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"whole number|32 bits"):
        sub_priority(text)
