"""Samples of CPU time."""

from __future__ import annotations

import math
import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlite.formulas.cpu import reaction
from koordlite.host import sentinel
from koordlite.host.sentinel import OpenCounter, UsageSample
from koordlite.model.status import FreshUse


@pytest.mark.parametrize(
    ("second", "use"),
    [
        pytest.param(UsageSample(10.02, 10.02, 130_000_000, 60, 0), FreshUse(1500, 0, 0), id="thirty-ms-in-twenty-ms"),
        pytest.param(
            UsageSample(10.02, 10.02, 0, 20_000_050, 40), FreshUse(0, 1000, 0), id="a-counter-that-went-back-is-no-use"
        ),
        pytest.param(
            UsageSample(10.02, 10.02, None, 50, 10_000_040), FreshUse(None, 0, 500), id="v2-has-no-counter-of-the-node"
        ),
        pytest.param(
            UsageSample(10.008, 10.012, 112_000_000, 50, 40),
            FreshUse(1000, 0, 0),
            id="three-timer-interrupts-in-eight-ms-are-no-more-than-one-CPU",
        ),
    ],
)
def test_between(second: UsageSample, use: FreshUse) -> None:
    assert sentinel.between(UsageSample(10.0, 10.0, 100_000_000, 50, 40), second) == use


@given(
    st.sampled_from([0.001, 1 / 300, 0.004, 0.01]),
    st.floats(0, 1),
    st.floats(1e-6, 0.004),
    st.integers(1, 64),
)
def test_work_without_a_break_never_looks_like_more_than_it_is(
    period: float, began: float, late: float, cpus: int
) -> None:
    """Accounted at the timer interrupt only, measured from any moment, and for somewhat longer than intended."""

    def sample(time: float) -> UsageSample:
        interrupts = math.floor(time / period)
        return UsageSample(time, interrupts * period, None, round(interrupts * period * cpus * 1e9), 0)

    wanted = reaction.confirm_seconds(timer_period_seconds=period)
    use = sentinel.between(sample(began), sample(began + wanted + late))
    assert 660 * cpus < use.pods <= 1000 * cpus + 1


def test_a_kept_descriptor_reads_what_is_written_later(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "usage"
    file.write_text("1")
    kept = OpenCounter(str(file))
    file.write_text("22")
    assert kept() == b"22"
    kept.close()


def test_a_descriptor_that_failed_is_opened_again(tmp_path: pathlib.Path) -> None:
    """A removed group answers ENODEV for ever on an old descriptor; a folder's descriptor fails as lastingly."""
    place = tmp_path / "usage"
    place.mkdir()
    kept = OpenCounter(str(place))
    place.rmdir()
    place.write_text("7")
    assert kept() == b"7"
    kept.close()


def test_a_file_that_is_gone_is_an_error(tmp_path: pathlib.Path) -> None:
    place = tmp_path / "usage"
    place.mkdir()
    kept = OpenCounter(str(place))
    place.rmdir()
    with pytest.raises(FileNotFoundError):
        kept()
    kept.close()
