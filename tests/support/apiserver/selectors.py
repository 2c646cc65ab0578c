"""Label and field selectors of queries, and label selectors of objects (apimachinery labels and fields)."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from apiserver import names, status
from apiserver.resources import Resource

Labels = Mapping[str, str]
Matches = Callable[[Any], bool]

_TOKEN = re.compile(r"\s*(==|!=|=|!|\(|\)|,|<|>|[^\s=!(),<>]+)")
_END = ""
_SIGNS = frozenset({"=", "==", "!=", "!", "(", ")", ",", "<", ">"})
_COMPARING = frozenset({"in", "notin", "=", "==", "!=", "<", ">"})
_OPERATORS = "in, notin, =, ==, !=, gt, lt"
_FIELD = re.compile(r"(?P<field>[^=!]*?)(?P<sign>==|!=|=)(?P<value>.*)\Z", re.DOTALL)


def labels(text: str) -> Callable[[Labels], bool]:
    """The label selector `text`; Refused 400 when it cannot be read."""
    tokens, tests = _Tokens(_TOKEN.findall(text)), list[Callable[[Labels], bool]]()
    while tokens.peek() != _END:
        if tokens.peek() in _SIGNS - {"!"}:
            raise _misread(tokens.peek(), "expected: !, identifier, or 'end of string'")
        tests.append(_requirement(tokens))
        if tokens.take(",") == _END:
            if tokens.peek() != _END:
                raise _misread(tokens.peek(), "expected: ',' or 'end of string'")
        elif tokens.peek() in (_SIGNS | {_END}) - {"!"}:
            raise _misread(tokens.peek(), "expected: identifier after ','")
    return lambda found: all(test(found) for test in tests)


class _Tokens:
    def __init__(self, words: list[str]) -> None:
        self._words = words

    def peek(self) -> str:
        """The next word; empty at the end."""
        return self._words[0] if self._words else _END

    def take(self, *wanted: str) -> str:
        """The next word, consumed; empty when it is none of the wanted ones, or at the end."""
        return self._words.pop(0) if self._words and (not wanted or self._words[0] in wanted) else _END

    def word(self, expected: str) -> str:
        """The next word, which is no sign; Refused 400."""
        if self.peek() in _SIGNS | {_END}:
            raise _unread(f"found '{self.peek()}', expected: {expected}")
        return self.take()


def _misread(found: str, expected: str) -> status.Refused:
    return status.bad_request(f"found '{found}', {expected}")


def _unread(why: str) -> status.Refused:
    return status.bad_request(f"unable to parse requirement: {why}")


def _requirement(tokens: _Tokens) -> Callable[[Labels], bool]:
    is_absent = tokens.take("!") == "!"
    key = tokens.word("identifier")
    _check(names.key_faults(key), "key", key)
    if is_absent:
        return lambda found: key not in found
    sign = tokens.peek()
    if sign in (_END, ","):
        return lambda found: key in found
    if sign not in _COMPARING:
        raise _unread(f"found '{sign}', expected: {_OPERATORS}")
    tokens.take()
    if sign in ("in", "notin"):
        return _among(key, _checked(key, _several(tokens)), inside=sign == "in")
    (value,) = _checked(key, [tokens.word("identifier") if tokens.peek() not in (_END, ",") else ""])
    return _ordered(key, sign, value) if sign in ("<", ">") else _compared(key, value, equal=sign != "!=")


def _checked(key: str, values: Sequence[str]) -> Sequence[str]:
    for place, value in enumerate(sorted(set(values))):
        _check(names.value_faults(value), f"values[{place}][{key}]", value)
    return values


def _check(faults: list[str], field: str, value: str) -> None:
    if faults:
        raise _unread(f'{field}: Invalid value: "{value}": {"; ".join(faults)}')


def _several(tokens: _Tokens) -> Sequence[str]:
    """The values in parentheses; where one is missing between commas, an empty one stands."""
    if tokens.take("(") == _END:
        raise _unread(f"found '{tokens.peek()}' expected: '('")
    values = [""] if tokens.peek() == ")" else list[str]()
    while tokens.take(")") == _END:
        if tokens.take(",") == ",":
            values += [""] if not values or tokens.peek() in (",", ")") else []
            continue
        values.append(tokens.word("',', or identifier"))
        if tokens.peek() not in (",", ")"):
            raise _unread(f"found '{tokens.peek()}', expected: ',' or ')'")
    return values


def _compared(key: str, value: str, *, equal: bool) -> Callable[[Labels], bool]:
    return lambda found: (found.get(key) == value) is equal


def _among(key: str, values: Collection[str], *, inside: bool) -> Callable[[Labels], bool]:
    return lambda found: (key in found and found[key] in values) is inside


def _ordered(key: str, sign: str, limit: str) -> Callable[[Labels], bool]:
    number = _number(limit)
    if number is None:
        why = "for 'Gt', 'Lt' operators, the value must be an integer"
        raise _unread(f'values[0]: Invalid value: "{limit}": {why}')

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
    return status.bad_request(f'"{field}" is not a known field selector: only "metadata.name", "metadata.namespace"')


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
