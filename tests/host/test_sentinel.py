"""Samples of CPU time."""

from __future__ import annotations

import pathlib

import pytest

from koordlite.host import sentinel
from koordlite.host.sentinel import OpenCounter, UsageSample
from koordlite.model.status.reaction import FreshUse


@pytest.mark.parametrize(
    ("second", "use"),
    [
        pytest.param(UsageSample(10.02, 130_000_000, 60, 0), FreshUse(1500, 0, 0), id="thirty-ms-in-twenty-ms"),
        pytest.param(
            UsageSample(10.02, 0, 20_000_050, 40), FreshUse(0, 1000, 0), id="a-counter-that-went-back-is-no-use"
        ),
        pytest.param(
            UsageSample(10.02, None, 50, 10_000_040), FreshUse(None, 0, 500), id="v2-has-no-counter-of-the-node"
        ),
    ],
)
def test_between(second: UsageSample, use: FreshUse) -> None:
    assert sentinel.between(UsageSample(10.0, 100_000_000, 50, 40), second) == use


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
