"""Links between documents lead somewhere."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterator

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)
_SECTION = re.compile(r'docs/(\w+\.md)(?:, "([^"]+)")?')


def anchors(page: pathlib.Path) -> set[str]:
    """What a link may name inside a page, as GitHub makes it from the headings."""
    headings = _HEADING.findall(_FENCED.sub("", page.read_text(encoding="utf-8")))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken(page: pathlib.Path) -> Iterator[str]:
    """Links of a page that lead nowhere in this repository."""
    for target in _LINK.findall(_FENCED.sub("", page.read_text(encoding="utf-8"))):
        if target.startswith(("https://", "http://")):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        if not there.exists() or (anchor and anchor not in anchors(there)):
            yield target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: pathlib.Path) -> None:
    assert list(broken(page)) == []


def test_a_link_to_nowhere_is_seen(tmp_path: pathlib.Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Here\n[a](#here) [b](#gone) [c](page.md#here) [d](no.md) [e](https://example.org/)\n")
    assert list(broken(page)) == ["#gone", "no.md"]


def test_pages_that_the_code_names_exist_with_the_section_it_names(root: pathlib.Path) -> None:
    named = {
        (page, section)
        for folder in ("koordlite", "descheduler")
        for path in sorted((root / folder).rglob("*.py"))
        for page, section in _SECTION.findall(" ".join(path.read_text(encoding="utf-8").split()))
    }
    assert len(named) > 8
    absent = [(page, section) for page, section in sorted(named) if not _is_there(root / "docs" / page, section)]
    assert absent == []


def _is_there(page: pathlib.Path, section: str) -> bool:
    anchor = re.sub(r"[^\w\- ]", "", section.lower()).replace(" ", "-")
    return page.exists() and (not anchor or anchor in anchors(page))
