"""What `make test` takes of a long search, and what `make test-all` takes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

OPTION = "KOORDLITE_TESTS"
"""Environment variable of the test run: `all` takes everything."""
WHOLE = os.environ.get(OPTION) == "all"


def first(values: Iterable[Any], quick: int = 1) -> list[Any]:
    """The values as parameters of a test: the first ones are always taken, the others by a long run."""
    return [value if number < quick else long(value) for number, value in enumerate(values)]


def named(values: Mapping[str, Any], quick: int = 1) -> list[Any]:
    """The same for values with names, which become the ids."""
    marks = ([] if number < quick else [pytest.mark.long] for number in range(len(values)))
    return [pytest.param(value, id=name, marks=mark) for (name, value), mark in zip(values.items(), marks, strict=True)]


def long(*values: Any, id: str | None = None) -> Any:
    """A parameter that only a long run takes."""
    return pytest.param(*values, marks=pytest.mark.long, id=id)


def amount(whole: int, quick: int) -> int:
    """How many examples, kills or seconds this run takes. Tests that ask have the marker `sliced`."""
    return whole if WHOLE else quick
