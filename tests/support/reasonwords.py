"""The reason words a source file can answer with, found in its syntax tree without running it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

CARRIERS = {
    "Decision": ((2, "reason"),),
    "published": ((1, "reason"),),
    "Violation": ((1, "reason"),),
    "Refusal": ((0, "reason"),),
    "Note": ((None, "reason"),),
    "Finding": ((None, "reason"), (None, "kept")),
}
"""Calls that make an answer, and where among their arguments the word is."""
GUARDS = ("dict[str, Guard]", "dict[str, Protection]")
LIMITS = "_counters"


class Module:
    """One source file: finds the words that can end up as a reason in it."""

    def __init__(self, text: str) -> None:
        self.tree = ast.parse(text)
        self.functions = {f.name: f for f in ast.walk(self.tree) if isinstance(f, ast.FunctionDef)}
        self.tables = {
            target.id: node.value
            for node in self.tree.body
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict)
            for target in node.targets
            if isinstance(target, ast.Name)
        }

        self.constants = {
            _name(node.targets[0]): node.value.value
            for node in self.tree.body
            if isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        }

    def words(self) -> Iterator[str]:
        """Every word, perhaps more than once."""
        for function in [*self.functions.values(), None]:
            for call in _own_calls(function or self.tree):
                for position, name in CARRIERS.get(_name(call.func), ()):
                    yield from self.carried(_name(call.func), _argument(call, position, name), function)
        yield from self.guards()
        yield from self.limits()

    def carried(self, carrier: str, given: ast.expr | None, function: ast.FunctionDef | None) -> Iterator[str]:
        """The words of one answer. A local name that leads nowhere is no word, so that it does not pass unseen;
        a Refusal may hand on what guards and limits said."""
        found = list(self.values(given, function))
        lost = isinstance(given, ast.Name) and not found and carrier != "Refusal"
        yield from [f"?{ast.unparse(given)}"] if lost and given else found

    def guards(self) -> Iterator[str]:
        """Keys of the tables of guards."""
        for node in self.tree.body:
            if isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation) in GUARDS:
                assert isinstance(node.value, ast.Dict)
                yield from (key.value for key in node.value.keys if isinstance(key, ast.Constant))

    def limits(self) -> Iterator[str]:
        """First parts of what the function that lists the limits yields."""
        for node in ast.walk(self.functions.get(LIMITS, ast.Module([], []))):
            if isinstance(node, ast.Yield) and isinstance(node.value, ast.Tuple):
                yield from self.values(node.value.elts[0], None)

    def values(self, expression: ast.expr | None, function: ast.FunctionDef | None) -> Iterator[str]:
        """The texts an expression can have: a constant, a choice, a table, a local name, or the callers' argument."""
        match expression:
            case ast.Constant(value=str(text)):
                yield from [text] if text else []
            case ast.IfExp(body=one, orelse=other):
                yield from self.values(one, function)
                yield from self.values(other, function)
            case ast.Subscript(value=ast.Name(id=table)):
                for value in getattr(self.tables[table], "values", ()):
                    yield from self.values(value, function)
            case ast.Name(id=name) if name in self.constants:
                yield self.constants[name]
            case ast.Name(id=name) if function is not None:
                yield from self.named(name, function)

    def named(self, name: str, function: ast.FunctionDef) -> Iterator[str]:
        """What the local `name` of a function can hold."""
        assigned = [node for node in ast.walk(function) if isinstance(node, ast.Assign)]
        for target, value in ((target, node.value) for node in assigned for target in node.targets):
            if isinstance(target, ast.Tuple):
                yield from self.unpacked(value, [_name(part) for part in target.elts], name)
            elif _name(target) == name:
                yield from self.values(value, function)
        names = [argument.arg for argument in function.args.args]
        if name in names:
            for caller in self.functions.values():
                for call in _own_calls(caller):
                    if _name(call.func) == function.name:
                        yield from self.values(_argument(call, names.index(name), name), caller)

    def unpacked(self, value: ast.expr, names: list[str], name: str) -> Iterator[str]:
        """What `name` holds after `names = f()`: that part of everything f returns."""
        called = self.functions.get(_name(value.func)) if isinstance(value, ast.Call) else None
        for node in ast.walk(called) if called and name in names else ():
            if isinstance(node, ast.Return) and node.value:
                for part in _tuples(node.value):
                    yield from self.values(part.elts[names.index(name)], called)


def _tuples(returned: ast.expr) -> Iterator[ast.Tuple]:
    if isinstance(returned, ast.IfExp):
        yield from _tuples(returned.body)
        yield from _tuples(returned.orelse)
    elif isinstance(returned, ast.Tuple):
        yield returned


def _own_calls(scope: ast.AST) -> Iterator[ast.Call]:
    for child in ast.iter_child_nodes(scope):
        if isinstance(child, ast.Call):
            yield child
        if not isinstance(child, ast.FunctionDef):
            yield from _own_calls(child)


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _argument(call: ast.Call, position: int | None, name: str) -> ast.expr | None:
    by_name = next((keyword.value for keyword in call.keywords if keyword.arg == name), None)
    if by_name is None and position is not None and position < len(call.args):
        return call.args[position]
    return by_name
