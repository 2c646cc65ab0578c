"""Run vector files against the product: count what passes, fails, deviates by rule, or has no adapter."""

from __future__ import annotations

import collections
import dataclasses
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from koordlite.model.errors import KoordliteError
from tests.conformance import apiserver_player, deviations, transcript_cases, zero_values
from tests.conformance.adapters import ADAPTERS, NotCovered

NO_ADAPTER = "without adapter"
_BROKEN = (
    *(ArithmeticError, AssertionError, AttributeError, LookupError, OSError),
    *(RuntimeError, StopIteration, TypeError, ValueError, KoordliteError),
)


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one case: `passed`, `failed`, `deviating` or `without adapter`, and the details of a difference."""

    function: str
    source: str
    verdict: str
    detail: str = ""


def run(path: Path) -> list[Outcome]:
    """The outcomes of all cases of one file."""
    return [_judge(*case) for case in _cases(path)]


def files(paths: Iterable[Path]) -> Iterator[Path]:
    """The JSON files among `paths` and inside the folders among them."""
    for path in paths:
        yield from sorted(path.rglob("*.json")) if path.is_dir() else [path]


def summary(outcomes: Iterable[Outcome]) -> str:
    """Counts by verdict in one line."""
    counts = collections.Counter(outcome.verdict for outcome in outcomes)
    return ", ".join(f"{counts[word]} {word}" for word in ("passed", "failed", "deviating", NO_ADAPTER))


def _cases(path: Path) -> Iterator[tuple[str, str, Any, Any]]:
    """(function, source, input, expect) of each case; files that hold no cases give none."""
    document = json.loads(path.read_text())
    if apiserver_player.is_recording(document):
        yield from apiserver_player.of_recording(document)
        return
    for case in document if isinstance(document, list) else [document]:
        if isinstance(case, dict) and "ops" in case and "flavour" in case:
            yield from transcript_cases.of_recording(case)
        elif case is document:
            return
        elif "cbm" in case and "mask" in case:
            yield "koord_cat_l3_mask", f"cbm={case['cbm']} {case['start']}-{case['end']}", case, case["mask"]
        elif "base" in case and "min_bits" in case:
            yield "goresctrl_overlay", f"base={case['base']} of at least {case['min_bits']}", case, case["mask"]
        elif isinstance(case, dict) and "expect" in case:
            function = zero_values.function_of(case)
            given, expect = (zero_values.read(function, case[part]) for part in ("input", "expect"))
            yield function, case.get("source", ""), given, expect


def _judge(function: str, source: str, given: Any, expect: Any) -> Outcome:
    if function not in ADAPTERS:
        return Outcome(function, source, NO_ADAPTER)
    try:
        found, wanted = ADAPTERS[function](given, expect)
        if _without_null(found) == _without_null(wanted):
            return Outcome(function, source, "passed")
        rule = deviations.rule_for(function, given, wanted, found)
    except NotCovered:
        return Outcome(function, source, NO_ADAPTER)
    except _BROKEN as error:
        # One case that breaks its adapter, or a rule, must not hide the others.
        return Outcome(function, source, "failed", f"broke: {type(error).__name__}: {error}")
    return Outcome(function, source, "deviating" if rule else "failed", rule or f"expected {wanted!r}, got {found!r}")


def _without_null(answer: Any) -> Any:
    """The answer without fields that are null: as in Go, they say no more than a field that is missing."""
    if isinstance(answer, dict):
        return {name: _without_null(value) for name, value in answer.items() if value is not None}
    return answer
