"""Names and CPU lists in lines of a width."""

from __future__ import annotations

import pytest

from koordlite.report import paragraph


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        pytest.param("runs on shop-web-0 now", ["runs on", "shop-web-0", "now"], id="a name is not broken at hyphens"),
        pytest.param("CPUs 1-2,4-5,7", ["CPUs", "1-2,4-5,7"], id="a list of CPUs that fits on a line stays whole"),
        pytest.param("1-2,4-5,10-11,14", ["1-2,4-5,", "10-11,14"], id="a longer one is broken after a comma"),
        pytest.param(
            "a node-of-a-long-name", ["a", "node-of-a-long-name"], id="a name without a comma is never broken"
        ),
    ],
)
def test_wrap(text: str, lines: list[str]) -> None:
    assert paragraph.wrap(text, 10) == lines


def test_the_first_line_and_the_rest_have_their_own_beginnings() -> None:
    assert paragraph.fill("one two three", 9, first="a  ", hanging="   ") == "a  one\n   two\n   three"
