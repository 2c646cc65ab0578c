"""Label and field selectors of queries, and label selectors of objects (apimachinery labels and fields)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from koordlite.sandbox.apiserver import status
from koordlite.sandbox.apiserver.resources import Resource

Labels = Mapping[str, str]
Matches = Callable[[Any], bool]

_TOKEN = re.compile(r"\s*(==|!=|=|!|\(|\)|,|<|>|[^\s=!(),<>]+)")
_END = ""
_OPERATORS = "in, notin, =, ==, !=, gt, lt"
_FIELD = re.compile(r"(?P<field>[^=!]*?)(?P<sign>==|!=|=)(?P<value>.*)\Z", re.DOTALL)


def labels(text: str) -> Callable[[Labels], bool]:
    """The label selector `text`; Refused 400 when it cannot be read."""
    if not text.strip():
        return lambda _: True
    tokens = _Tokens(_TOKEN.findall(text))
    tests = [_requirement(tokens)]
    while tokens.peek() == ",":
        tokens.take()
        tests.append(_requirement(tokens))
    if tokens.peek() != _END:
        raise status.bad_request(f"found '{tokens.peek()}', expected: ',' or 'end of string'")
    return lambda found: all(test(found) for test in tests)


class _Tokens:
    def __init__(self, words: list[str]) -> None:
        self._words = words

    def peek(self) -> str:
        """The next word; empty at the end."""
        return self._words[0] if self._words else _END

    def take(self) -> str:
        """The next word, consumed."""
        return self._words.pop(0) if self._words else _END


def _requirement(tokens: _Tokens) -> Callable[[Labels], bool]:
    if tokens.peek() == "!":
        tokens.take()
        absent = tokens.take()
        return lambda found: absent not in found
    key, sign = tokens.take(), tokens.peek()
    if sign in (_END, ","):
        return lambda found: key in found
    tokens.take()
    if sign in ("=", "==", "!="):
        return _compared(key, _single(tokens), equal=sign != "!=")
    if sign in ("in", "notin"):
        return _among(key, _several(tokens), inside=sign == "in")
    if sign in ("<", ">"):
        return _ordered(key, sign, tokens.take())
    raise status.bad_request(f"unable to parse requirement: found '{sign}', expected: {_OPERATORS}")


def _single(tokens: _Tokens) -> str:
    return _END if tokens.peek() in (_END, ",") else tokens.take()


def _several(tokens: _Tokens) -> set[str]:
    if tokens.peek() != "(":
        raise status.bad_request(f"unable to parse requirement: found '{tokens.peek()}' expected: '('")
    tokens.take()
    values: list[str] = []
    if tokens.peek() in (")", ","):
        values.append("")
    while (word := tokens.take()) != ")":
        if word == _END:
            raise status.bad_request("unable to parse requirement: found '', expected: ',' or ')'")
        if word != ",":
            values.append(word)
    return set(values)


def _compared(key: str, value: str, *, equal: bool) -> Callable[[Labels], bool]:
    return lambda found: (found.get(key) == value) is equal


def _among(key: str, values: set[str], *, inside: bool) -> Callable[[Labels], bool]:
    return lambda found: (key in found and found[key] in values) is inside


def _ordered(key: str, sign: str, limit: str) -> Callable[[Labels], bool]:
    number = _number(limit)
    if number is None:
        why = "for 'Gt', 'Lt' operators, the value must be an integer"
        raise status.bad_request(f'unable to parse requirement: values[0][{key}]: Invalid value: "{limit}": {why}')

    def test(found: Labels) -> bool:
        value = _number(found.get(key, ""))
        if value is None:
            return False
        return value > number if sign == ">" else value < number

    return test


def _number(text: str) -> int | None:
    return int(text) if re.fullmatch(r"[+-]?[0-9]+", text, re.ASCII) else None


def fields(text: str, resource: Resource) -> Matches:
    """The field selector `text` for a kind; Refused 400 for a field that may not be selected by."""
    tests = [_field(part, text, resource) for part in text.split(",") if part]
    return lambda item: all(test(item) for test in tests)


def _field(part: str, text: str, resource: Resource) -> Matches:
    match = _FIELD.match(part)
    if match is None or match["sign"] not in ("=", "==", "!="):
        raise status.bad_request(f"invalid selector: '{text}'; can't understand '{part}'")
    field, equal = match["field"], match["sign"] != "!="
    if not resource.defined(field):
        raise _unknown_field(field, resource)
    return lambda item: (_value(item, field) == match["value"]) is equal


def _unknown_field(field: str, resource: Resource) -> status.Refused:
    if resource.converts_fields:
        return status.bad_request(f"field label not supported: {field}")
    known = '"metadata.name", "metadata.namespace"' if resource.namespaced else '"metadata.name"'
    return status.bad_request(f'"{field}" is not a known field selector: only {known}')


def _value(item: Any, field: str) -> str:
    if field == "spec.unschedulable":
        return "true" if (item.get("spec") or {}).get("unschedulable") else "false"
    if field == "source" and item.get("kind") == "Event":
        return str((item.get("source") or {}).get("component") or item.get("reportingComponent") or "")
    for step in field.replace("regarding", "involvedObject").split("."):
        item = item.get(step) if isinstance(item, dict) else None
    return "" if item is None else str(item)


def selects(selector: Any, found: Labels) -> bool:
    """Whether a metav1.LabelSelector of an object matches labels; an empty one matches all."""
    wanted = (selector or {}).get("matchLabels") or {}
    if any(found.get(key) != value for key, value in wanted.items()):
        return False
    return all(_expression(each, found) for each in (selector or {}).get("matchExpressions") or ())


def _expression(expression: Any, found: Labels) -> bool:
    key, values = expression["key"], expression.get("values") or ()
    match expression["operator"]:
        case "In":
            return key in found and found[key] in values
        case "NotIn":
            return found.get(key) not in values
        case "Exists":
            return key in found
        case _:
            return key not in found
