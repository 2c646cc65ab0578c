"""Which functions the API server's CEL has, by name and by the way they are called, recorded on a real one.

cel-python takes `x.f()` and `f(x)` for the same; the API server does not. `tests/e2e/test_policies.py` verifies this.
"""

from __future__ import annotations

import functools
import json
import pathlib

import celpy

TABLE = pathlib.Path(__file__).parents[1] / "manifests" / "cel-functions.json"
PATCH = "JSONPatch: "
"""Before an expression of a MutatingAdmissionPolicy."""
Call = tuple[str, str]
"""`method` or `function`, and its name."""


class UnknownFunctionError(AssertionError):
    """An expression that the API server would refuse."""


def rows() -> list[dict[str, object]]:
    """Expressions with the server's answer: 201 accepted, 422 refused, and the compiler's words."""
    return list(json.loads(TABLE.read_text()))


def calls(expression: str) -> set[Call]:
    """The calls in an expression. A name before a dot counts as an object: `lists.range` is a method."""
    environment = celpy.Environment(annotations={"JSONPatch": celpy.celtypes.MessageType})
    called = set[Call]()
    for part in environment.compile(expression).iter_subtrees():
        if part.data == "member_dot_arg":
            called.add(("method", str(part.children[1])))
        elif part.data == "ident_arg":
            called.add(("function", str(part.children[0])))
    return called


@functools.cache
def known() -> frozenset[Call]:
    """The calls in all expressions that the server accepts."""
    return frozenset(call for row in rows() if row["status"] == 201 for call in _readable(str(row["expression"])))


def _readable(expression: str) -> set[Call]:
    """The calls; none where cel-python cannot read the expression, as with optional fields."""
    try:
        return calls(expression.removeprefix(PATCH))
    except celpy.CELParseError:
        return set()


@functools.cache
def check(expression: str) -> None:
    """UnknownFunctionError for a call that no recorded expression shows to be accepted."""
    unknown = calls(expression) - known()
    if unknown:
        shown = ", ".join(f"{style} {name}()" for style, name in sorted(unknown))
        raise UnknownFunctionError(
            f"the API server's CEL is not known to have {shown} (cel-functions.json): {expression}"
        )
