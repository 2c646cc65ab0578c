"""Fenced blocks are ones that the site's renderer knows, and none of them is left as text in a site that was built."""

from __future__ import annotations

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
BUILT = sorted((ROOT / "out" / "site").rglob("*.html"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_fence_has_one_word_and_an_end(page: pathlib.Path) -> None:
    """Python-Markdown takes a line of backticks with two words for text, and with it all up to the next fence."""
    fences = re.findall(r"^```.*$", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert [fence for fence in fences if not re.fullmatch(r"```\w*", fence)] == []
    assert all(fence != "```" for fence in fences[::2]) and set(fences[1::2]) <= {"```"}


@pytest.mark.skipif(not BUILT, reason="the site is not built: make site")
def test_no_fence_is_left_in_the_site() -> None:
    assert [page.name for page in BUILT if "```" in page.read_text(encoding="utf-8")] == []
