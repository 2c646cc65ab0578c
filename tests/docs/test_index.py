"""docs/index.md leads to every document."""

from __future__ import annotations

import pathlib
import re

DOCS = pathlib.Path(__file__).parents[2] / "docs"


def test_every_page_is_linked_from_the_index() -> None:
    linked = set(re.findall(r"\]\(([\w-]+\.md)\)", (DOCS / "index.md").read_text(encoding="utf-8")))
    pages = {path.name for path in DOCS.glob("*.md")} - {"index.md"}
    assert sorted(pages - linked) == []


def test_every_page_is_in_the_navigation_of_the_site_once() -> None:
    shown = re.findall(r"- ([\w-]+\.md)$", (DOCS.parent / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(shown) == sorted(path.name for path in DOCS.glob("*.md"))
