"""Every reason word of the code is explained on the page, and the page explains no word that is not in the code."""

from __future__ import annotations

import pathlib
import re

import pytest
from reasonwords import Module

SOURCES = (
    "koordlite/strategies/*.py",
    "koordlite/agent.py",
    "koordlite/formulas/topology/numa.py",
    "koordlite/strategies/shared/*.py",
    "descheduler/framework.py",
    "descheduler/cycle/*.py",
    "descheduler/filters/*.py",
    "descheduler/fit/*.py",
    "descheduler/history/*.py",
    "descheduler/plan.py",
    "descheduler/rules/*.py",
    "descheduler/plugins/*.py",
    "descheduler/utilization/*.py",
    "descheduler/migration/*.py",
    "descheduler/evictors/*.py",
    "descheduler/serve/*.py",
)
_WORD = re.compile(r"[A-Z][A-Za-z]+")
_HEADING = re.compile(r"^### (\w+)$|^\| `([A-Z]\w+)` \|", re.MULTILINE)


@pytest.fixture(scope="module")
def said(root: pathlib.Path) -> dict[str, str]:
    """Word → the file that says it."""
    paths = [path for pattern in SOURCES for path in sorted(root.glob(pattern))]
    return {word: str(path.relative_to(root)) for path in paths for word in Module(path.read_text()).words()}


@pytest.fixture(scope="module")
def explained(root: pathlib.Path) -> list[str]:
    """The words of the page, in its order."""
    page = (root / "docs" / "decisions.md").read_text(encoding="utf-8")
    return [first or second for first, second in _HEADING.findall(page)]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ('def f():\n    yield Decision("s", "skip", "Plain")', {"Plain"}),
        ('def f(x):\n    yield Decision("s", "skip", "One" if x else "Two")', {"One", "Two"}),
        ('T = {"a": "One"}\ndef f(x):\n    r = T[x]\n    return Decision("s", "set", r)', {"One"}),
        ('def f():\n    return g("Given")\ndef g(why):\n    return Decision("s", "set", why)', {"Given"}),
        ('def f():\n    r, n = g()\n    return Decision("s", "set", r)\ndef g():\n    return "Part", 1', {"Part"}),
        ('def f(x):\n    r = x()\n    return Decision("s", "set", r)', {"?r"}),
        ('def f(x):\n    return Finding(reason=x.reason, kept="Young" if x else "")', {"Young"}),
        ('_A: dict[str, Guard] = {"Kept": f}', {"Kept"}),
        ('def _counters(self):\n    yield "Full", "", 1, "text"', {"Full"}),
    ],
    ids=["constant", "choice", "table", "caller", "returned part", "lost", "keyword", "guard", "limit"],
)
def test_a_word_is_found_however_it_reaches_the_answer(source: str, words: set[str]) -> None:
    assert set(Module(source).words()) == words


def test_words_are_in_camel_case(said: dict[str, str]) -> None:
    assert len(said) > 60
    assert [word for word in said if not _WORD.fullmatch(word)] == []


def test_every_word_of_the_code_is_explained(said: dict[str, str], explained: list[str]) -> None:
    missing = {word: path for word, path in said.items() if word not in explained}
    assert not missing, f"docs/decisions.md lacks {missing}"


def test_every_explained_word_is_in_the_code(said: dict[str, str], explained: list[str]) -> None:
    assert [word for word in explained if word not in said] == []


def test_no_word_is_explained_twice(explained: list[str]) -> None:
    assert len(explained) == len(set(explained))
