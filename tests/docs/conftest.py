"""The documents of this repository, as the tests here read them."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Callable

import pytest

ROOT = pathlib.Path(__file__).parents[2]
_FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)

Blocks = Callable[[pathlib.Path, str], list[tuple[int, str]]]


@pytest.fixture(scope="session")
def root() -> pathlib.Path:
    """The folder of the repository."""
    return ROOT


@pytest.fixture(scope="session")
def blocks() -> Blocks:
    """Fenced blocks of one language in a document: (line of the first line inside, text)."""

    def find(path: pathlib.Path, language: str) -> list[tuple[int, str]]:
        text = path.read_text(encoding="utf-8")
        found = [match for match in _FENCE.finditer(text) if match[1] == language]
        return [(text.count("\n", 0, match.start(2)) + 1, match[2]) for match in found]

    return find
