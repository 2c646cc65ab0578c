"""Examples in documents are run: what a page shows is what the code answers."""

from __future__ import annotations

import doctest
import pathlib
from collections.abc import Callable

Blocks = Callable[[pathlib.Path, str], list[tuple[int, str]]]


def test_every_worked_formula_gives_what_the_page_shows(root: pathlib.Path, blocks: Blocks) -> None:
    page = root / "docs" / "formulas.md"
    parser, names, told = doctest.DocTestParser(), {}, list[str]()
    runner = doctest.DocTestRunner(verbose=False)
    for line, text in blocks(page, "python"):
        example = parser.get_doctest(text, names, page.name, str(page), line - 1)
        runner.run(example, out=told.append, clear_globs=False)
        names = example.globs
    assert runner.summarize(verbose=False).attempted > 40, "the examples were not found"
    assert not told, "".join(told)
