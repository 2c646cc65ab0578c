"""Admission policies evaluated by cel-python, as a stand-in for the API server's CEL.

What Kubernetes' CEL has and cel-python has not comes from here: `JSONPatch{…}`, `jsonpatch.escapeKey`, `quantity`,
`indexOf` and `join`. What cel-python would take and the API server would not is refused by `cel_functions`.
"""

from __future__ import annotations

import copy
import functools
import json
import re
from typing import Any

import cel_functions
import celpy
from celpy import celtypes

from koordlite.model.quantity import NANO, Quantity


def _compare(left: Any, right: Any) -> celtypes.IntType:
    one, other = Quantity.parse(left), Quantity.parse(right)
    return celtypes.IntType((one > other) - (one < other))


def _quantity(text: Any) -> Any:
    Quantity.parse(text)
    return text


_FUNCTIONS = {
    "asApproximateFloat": lambda text: celtypes.DoubleType(Quantity.parse(text).nano / NANO),
    "compareTo": _compare,
    "escapeKey": lambda _, key: celtypes.StringType(key.replace("~", "~0").replace("/", "~1")),
    "indexOf": lambda items, item: celtypes.IntType(list(items).index(item)),
    "join": lambda items, between: celtypes.StringType(between.join(items)),
    "quantity": _quantity,
    "sign": lambda text: _compare(text, "0"),
}


class _Untyped:
    """Stands for a type that only `cast` is given."""

    def __getitem__(self, _: object) -> type[object]:
        return object


celpy.evaluation.Union = _Untyped()
"""cel-python makes these types anew at every step of an evaluation, which is a quarter of its time."""


@functools.cache
def _environment() -> celpy.Environment:
    return celpy.Environment(annotations={"JSONPatch": celtypes.MessageType})


@functools.cache
def _program(expression: str) -> Any:
    cel_functions.check(expression)
    return _environment().program(_environment().compile(expression), functions=_FUNCTIONS)


@functools.cache
def _variables_of(expression: str) -> frozenset[str]:
    """Names of the variables that an expression asks for."""
    return frozenset(re.findall(r"\bvariables\.(\w+)", expression))


class Request:
    """The objects of a request in the form of CEL, and the policy's variables. As in the API server, a variable is
    worked out when something asks for it, and once."""

    def __init__(self, spec: dict[str, Any], known: dict[str, Any]) -> None:
        self._expressions = {each["name"]: each["expression"] for each in spec.get("variables", ())}
        self._variables = celtypes.MapType()
        self._held = {name: celpy.json_to_cel(value) for name, value in known.items()}
        self._held |= {"jsonpatch": celtypes.StringType(""), "variables": self._variables}

    def evaluated(self, expression: str) -> Any:
        """The value of one expression; celpy.CELEvalError when it has none."""
        for name in _variables_of(expression):
            if name not in self._variables:
                value = self.evaluated(self._expressions[name])
                # This interpreter joins two texts to a plain one, which has no methods.
                value = celtypes.StringType(value) if isinstance(value, str) else value
                self._variables[celtypes.StringType(name)] = value
        return _program(expression).evaluate(self._held)


def mutated(spec: dict[str, Any], pod: dict[str, Any], **known: Any) -> dict[str, Any]:
    """The pod after the policy's mutations, each of which sees what the one before made."""
    request = Request(spec, {"object": pod, **known})
    for mutation in spec["mutations"]:
        operations = json.loads(json.dumps(request.evaluated(mutation["jsonPatch"]["expression"])))
        if operations:
            pod = patched(pod, operations)
            request = Request(spec, {"object": pod, **known})
    return pod


def refusals(spec: dict[str, Any], obj: dict[str, Any]) -> list[str]:
    """Messages of the validations that do not hold."""
    request = Request(spec, {"object": obj})
    return [each["message"] for each in spec["validations"] if not request.evaluated(each["expression"])]


def patched(document: dict[str, Any], operations: list[dict[str, Any]]) -> dict[str, Any]:
    """A JSON patch of `add` and `remove`; KeyError where a path is not there."""
    made = copy.deepcopy(document)
    for operation in operations:
        *parents, last = [each.replace("~1", "/").replace("~0", "~") for each in operation["path"].split("/")[1:]]
        place: Any = made
        for key in parents:
            place = place[int(key)] if isinstance(place, list) else place[key]
        if operation["op"] == "add":
            place[last] = operation["value"]
        elif operation["op"] == "remove":
            del place[last]
        else:
            raise ValueError(f"unknown operation {operation['op']}")
    return made
