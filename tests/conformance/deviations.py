"""Rules by which we answer differently on purpose, and the cases each explains (docs/compatibility.md has reasons)."""

from __future__ import annotations

import dataclasses
import functools
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from koordlite.model.errors import KoordliteError

Applies = Callable[[Any, Any, Any], bool]
"""Whether a rule explains a difference: (input, expected, found)."""


@dataclasses.dataclass(frozen=True, slots=True)
class Deviation:
    """Cases of these functions that differ by one rule of ours."""

    functions: tuple[str, ...]
    applies: Applies
    rule: str


_DEVIATIONS: list[Deviation] = []


def deviation(rule: str, *functions: str) -> Callable[[Applies], Applies]:
    """Register a predicate as that of a rule: its name, and what it says, as the reports show them."""

    def register(applies: Applies) -> Applies:
        _DEVIATIONS.append(Deviation(functions, applies, rule))
        return applies

    return register


@functools.cache
def deviations() -> list[Deviation]:
    """All of them, from every module of rules beside this one."""
    for path in sorted(Path(__file__).parent.glob("*_rules.py")):
        importlib.import_module(f"{__package__}.{path.stem}")
    return _DEVIATIONS


def rule_for(function: str, given: Any, wanted: Any, found: Any) -> str:
    """The first rule that explains why this case differs; empty when none does."""
    for each in deviations():
        if function in each.functions:
            try:
                if each.applies(given, wanted, found):
                    return each.rule
            except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, KoordliteError):
                continue  # A rule explains nothing about a case that has not what the rule speaks of.
    return ""
