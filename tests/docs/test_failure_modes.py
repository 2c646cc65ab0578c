"""Every row of docs/failure-modes.md names a test that is there."""

from __future__ import annotations

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PAGE = ROOT / "docs" / "failure-modes.md"
_NAMED = re.compile(r"\| `(tests/[\w/]+\.py)::(\w+)` \|$")
ROWS = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ") and "|---" not in line]
SHOWN = [row for row in ROWS if not row.startswith("| what happens")]


def test_the_page_has_rows() -> None:
    assert len(SHOWN) > 20


@pytest.mark.parametrize("row", SHOWN, ids=[row.split("|")[1].strip() for row in SHOWN])
def test_the_named_test_is_there(row: str) -> None:
    named = _NAMED.search(row)
    assert named, f"the row names no test: {row}"
    path = ROOT / named[1]
    assert path.exists()
    assert f"\ndef {named[2]}(" in path.read_text(encoding="utf-8"), f"no {named[2]} in {named[1]}"
