"""Pressure files as kernels print them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlite.host import procfs
from koordlite.model.picture.usage import Pressure, Stall

SOME = b"some avg10=1.50 avg60=2.25 avg300=0.10 total=12345\n"
FULL = b"full avg10=0.50 avg60=0.00 avg300=0.00 total=99\n"


def test_both_lines_are_read() -> None:
    found = procfs.pressure(SOME + FULL)
    assert found == Pressure(Stall(1.5, 2.25, 0.1, 12345), Stall(0.5, 0.0, 0.0, 99))


def test_a_kernel_that_prints_no_full_line_for_cpu_says_nothing_about_it() -> None:
    assert procfs.pressure(SOME).full is None


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"", id="an empty file"),
        pytest.param(FULL, id="a file without some"),
        pytest.param(SOME + b"half avg10=0.00 avg60=0.00 avg300=0.00 total=0\n", id="a third kind of line"),
        pytest.param(b"some avg10=0.00 avg60=0.00 total=0\n", id="a line that lacks a field"),
        pytest.param(b"some avg10=x avg60=0.00 avg300=0.00 total=0\n", id="a field that is no number"),
    ],
)
def test_what_is_no_pressure_file_is_refused(raw: bytes) -> None:
    with pytest.raises(ValueError, match="some"):
        procfs.pressure(raw)


@given(st.integers(0, 10_000), st.integers(0, 2**64 - 1))
def test_every_number_the_kernel_prints_comes_back(hundredths: int, total: int) -> None:
    share = f"{hundredths // 100}.{hundredths % 100:02d}"
    found = procfs.pressure(f"some avg10={share} avg60={share} avg300={share} total={total}\n".encode())
    assert (found.some.avg10, found.some.total_us) == (float(share), total)
