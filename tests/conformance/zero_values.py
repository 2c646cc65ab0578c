"""Cases as Go reads them: a field that is missing, or null, is the zero of its type.

The types are those that a field of this name has in the given vectors, for the function that is asked. A field that is
null in some of them is a pointer, and stays None. Adapters read fields with `given["name"]`.
"""

from __future__ import annotations

import functools
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

VECTORS = Path(__file__).parents[1] / "vectors"
_QUANTITIES = ("cpu", "memory", "quantity", "divisor")
"""Written as text, and zero as a number."""
_VERBATIM = ("patch",)
"""Documents inside a case, in which null says something: a merge patch deletes a field by it."""
_SHARED = ""
"""Instead of a function: what the name means in most of them."""

Types = Mapping[tuple[str, str], type]


class Fields(dict[str, Any]):
    """One object of a case. A subscript never fails for a name that has a type somewhere in the vectors."""

    def __init__(self, function: str, given: Mapping[str, Any]) -> None:
        present = ((name, value) for name, value in given.items() if value is not None or _may_be_null(function, name))
        super().__init__((name, value if name in _VERBATIM else read(function, value)) for name, value in present)
        self.function = function

    def __getitem__(self, name: str) -> Any:
        value = self.get(name)
        return _zero(self.function, name) if value is None else value

    def __or__(self, more: Mapping[str, Any]) -> Fields:  # type: ignore[override]
        """These fields and more; `{**fields}` would lose the zeros."""
        return Fields(self.function, {**self, **more})


def read(function: str, value: Any) -> Any:
    """The value with `Fields` for each object in it."""
    if isinstance(value, Mapping):
        return Fields(function, value)
    return [read(function, one) for one in value] if isinstance(value, list) else value


def function_of(case: Any) -> str:
    """What a case asks: its function or kind; of kinds that many plugins share, the validator or `run <plugin>`."""
    given, kind = case["input"], case.get("func") or case.get("kind") or ""
    if kind == "validate":
        return str(given["validator"])
    return f"{kind} {given['plugin']}" if kind == "run" else kind


def _may_be_null(function: str, name: str) -> bool:
    return _types().get((function, name)) is type(None)


def _zero(function: str, name: str) -> Any:
    types = _types()
    found = types.get((function, name)) or types.get((_SHARED, name))
    if found is None:
        raise KeyError(name)
    if found is dict:
        return Fields(function, {})
    if found is str and (name in _QUANTITIES or "/" in name):
        return "0"
    return None if found is type(None) else found()


@functools.cache
def _types() -> Types:
    seen: dict[tuple[str, str], dict[type, int]] = defaultdict(lambda: defaultdict(int))
    for path in sorted(VECTORS.rglob("*.json")):
        document = json.loads(path.read_text())
        for case in document if isinstance(document, list) else ():
            if isinstance(case, dict) and "input" in case and "expect" in case:
                function = function_of(case)
                for name, found in (*_named(case["input"]), *_named(case["expect"])):
                    seen[function, name][found] += 1
                    seen[_SHARED, name][found] += 1
    return {key: _usual(counts, pointer=bool(key[0])) for key, counts in seen.items()}


def _usual(counts: Mapping[type, int], *, pointer: bool) -> type:
    if pointer and type(None) in counts:
        return type(None)
    return max(counts, key=lambda found: (found is not type(None), counts[found]))


def _named(value: Any) -> Iterator[tuple[str, type]]:
    """Each field at any depth, with the type of its value."""
    for name, inner in value.items() if isinstance(value, dict) else ():
        yield name, type(inner)
        yield from _named(inner)
    for inner in value if isinstance(value, list) else ():
        yield from _named(inner)
