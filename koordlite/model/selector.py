"""Label selectors as Kubernetes writes them: does this set of labels match?

Source: metav1.LabelSelector and `LabelSelectorAsSelector`: no selector matches nothing, an empty one everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def matches(selector: Any, labels: Mapping[str, str]) -> bool:
    """Whether `labels` satisfy every requirement of `selector` (decoded JSON); ValueError when it is not one."""
    if selector is None:
        return False
    exact = _object(_object(selector, "a selector").get("matchLabels") or {}, "matchLabels")
    listed = selector.get("matchExpressions") or []
    if not isinstance(listed, list):
        raise ValueError("matchExpressions is not a list")
    # Every requirement is read before the first is judged: a mistake must not hide behind a mismatch.
    wanted = [_equal(key, value) for key, value in exact.items()] + [_expression(item) for item in listed]
    return all(_meets(labels.get(key), operator, values) for key, operator, values in wanted)


Requirement = tuple[str, str, frozenset[str]]


def _equal(key: str, value: Any) -> Requirement:
    if not isinstance(value, str):
        raise ValueError(f"matchLabels.{key} is {value!r}, not text")
    return key, "In", frozenset({value})


def _expression(item: Any) -> Requirement:
    given = _object(item, "an entry of matchExpressions")
    key, operator, values = given.get("key"), given.get("operator"), given.get("values") or []
    if not isinstance(key, str) or not key:
        raise ValueError("an entry of matchExpressions has no key")
    if operator not in ("In", "NotIn", "Exists", "DoesNotExist"):
        raise ValueError(f"operator {operator!r} of {key} is not In, NotIn, Exists or DoesNotExist")
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ValueError(f"values of {key} is not a list of texts")
    if bool(values) != (operator in ("In", "NotIn")):
        raise ValueError(f"operator {operator} of {key} takes {'no' if values else 'at least one'} value")
    return key, operator, frozenset(values)


def _meets(value: str | None, operator: str, values: frozenset[str]) -> bool:
    if operator == "Exists":
        return value is not None
    if operator == "DoesNotExist":
        return value is None
    return (value in values) == (operator == "In")


def _object(value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{what} is not a JSON object")
    return value
