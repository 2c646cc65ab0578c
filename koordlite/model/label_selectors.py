"""Label selectors as Kubernetes writes them: does this set of labels match?

Source: metav1.LabelSelector and `LabelSelectorAsSelector`: no selector matches nothing, an empty one everything.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from typing import Any

from koordlite.model.reading import declared
from koordlite.model.reading.declared import JSONDocument
from koordlite.model.wire import objects

Labels = Mapping[str, str]
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", re.ASCII)
_PREFIX = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*", re.ASCII)
_LONGEST_PREFIX = 253
_INTEGER = re.compile(r"(?P<sign>[+-]?)(?=[0-9])0*(?P<digits>[0-9]*)", re.ASCII)
_INT64 = 2**63
_MOST_DIGITS = 19


def read(document: JSONDocument, value: Any, path: str) -> objects.LabelSelector:
    """The selector that stands at `path`; a value of the wrong type spoils the document. Whether it means anything is
    known when it is used."""
    members = document.object(value, path, declared.settings(objects.LabelSelector))
    values, _ = declared.read(document, objects.LabelSelector, members, path, "")
    return declared.build(objects.LabelSelector(), values)


def matches(selector: objects.LabelSelector, labels: Labels) -> bool:
    """Tell whether `labels` satisfy every requirement; ValueError when one of them is none."""
    # Every requirement is checked before the first is judged: a mistake must not hide behind a mismatch.
    for key, value in (selector.match_labels or {}).items():
        check_requirement(key, "In", (value,))
    for requirement in selector.match_expressions or ():
        check_requirement(requirement.key, requirement.operator, requirement.values or ())
    return labels_match(selector, labels)


def labels_match(selector: objects.LabelSelector | None, labels: Labels) -> bool:
    """Tell whether the selector selects an object with these labels. A missing selector selects nothing, an empty one
    all."""
    if selector is None:
        return False
    for name, value in (selector.match_labels or {}).items():
        if labels.get(name) != value:
            return False
    expressions = selector.match_expressions
    return not expressions or all(requirement_holds(r, labels) for r in expressions)


def key(selector: objects.LabelSelector | None) -> Hashable:
    """Equal for selectors that are written the same."""
    if selector is None:
        return None
    return tuple(sorted((selector.match_labels or {}).items())), selector.match_expressions


def with_label_keys(constraint: objects.TopologySpreadConstraint, labels: Labels) -> objects.LabelSelector | None:
    """The constraint's selector, narrowed to what has the values that the pod with `labels` has for `matchLabelKeys`; a
    key that the pod lacks does not count.

    Source: the scheduler's `mergeLabelSetWithSelector`, which upstream copied.
    """
    own = {key: labels[key] for key in constraint.match_label_keys or () if key in labels}
    if not own:
        return constraint.label_selector
    more = tuple(objects.LabelRequirement(key=key, operator="In", values=(value,)) for key, value in own.items())
    base = constraint.label_selector or objects.LabelSelector()
    return objects.LabelSelector(
        match_labels=base.match_labels, match_expressions=(base.match_expressions or ()) + more
    )


def requirement_holds(requirement: objects.LabelRequirement, labels: Labels) -> bool:
    """One line of a selector. An unknown operator holds for nothing, as the scheduler has it."""
    present = requirement.key in labels
    value, values = labels.get(requirement.key, ""), requirement.values or ()
    match requirement.operator:
        case "In":
            return present and value in values
        case "NotIn":
            return value not in values if present else True
        case "Exists":
            return present
        case "DoesNotExist":
            return not present
        case "Gt" | "Lt":
            return present and _number_holds(requirement.operator, value, values)
    return False


def check_requirement(key: str, operator: str, values: tuple[str, ...]) -> None:
    """ValueError when one line of a label selector can select nothing as it stands.
    Source: apimachinery `LabelSelectorAsSelector` and the syntax of labels."""
    prefix, slash, name = key.rpartition("/")
    if not _NAME.fullmatch(name) or (slash and not (_PREFIX.fullmatch(prefix) and len(prefix) <= _LONGEST_PREFIX)):
        raise ValueError(f"{key[:80]!r} is not a label key like app or example.com/app")
    if operator not in _OPERATORS:
        raise ValueError(f"{key}: operator {operator[:80]!r} is not {', '.join(_OPERATORS[:-1])} or {_OPERATORS[-1]}")
    if operator in ("In", "NotIn") and not values:
        raise ValueError(f"{key}: operator {operator} needs values")
    if operator in ("Exists", "DoesNotExist") and values:
        raise ValueError(f"{key}: operator {operator} takes no values")
    wrong = [value for value in values if value and not _NAME.fullmatch(value)]
    if wrong:
        raise ValueError(f"{key}: {wrong[0][:80]!r} is not the value of a label")


def whole_number(text: str) -> int | None:
    """The number that `text` writes; None when it writes none of 64 bits. Source: strconv.ParseInt."""
    match = _INTEGER.fullmatch(text)
    if match is None or len(match["digits"]) > _MOST_DIGITS:
        return None
    number = int(f"{match['sign']}{match['digits'] or 0}")
    return number if -_INT64 <= number < _INT64 else None


def _number_holds(operator: str, value: str, values: tuple[str, ...]) -> bool:
    number, bound = whole_number(value), whole_number(values[0]) if len(values) == 1 else None
    if number is None or bound is None:
        return False
    return number > bound if operator == "Gt" else number < bound


_SET = re.compile(r"(?P<key>[^\s!=<>(),]+)\s+(?P<word>in|notin)\s*\((?P<values>[^()]*)\)\Z")
_SIGN = re.compile(r"(?P<key>[^\s!=<>(),]+)\s*(?P<sign>==|=|!=|>|<)\s*(?P<value>[^\s!=<>(),]*)\Z")
_PRESENT = re.compile(r"(?P<no>!?)\s*(?P<key>[^\s!=<>(),]+)\Z")


def parse(text: str) -> objects.LabelSelector:
    """A selector in kubectl's one-line form, `role=worker,zone in (a,b),!gpu,cores>8`; ValueError names what cannot be
    read. Source: apimachinery `labels.Parse`."""
    parts = [part.strip() for part in re.split(r",(?![^()]*\))", text)] if text.strip() else []
    return objects.LabelSelector(match_expressions=tuple(map(_parse_part, parts)))


def _parse_part(part: str) -> objects.LabelRequirement:
    key, operator, values = part, "", tuple[str, ...]()
    if match := _SET.match(part):
        key, operator = match["key"], _SIGNS[match["word"]]
        values = tuple(value.strip() for value in match["values"].split(","))
    elif match := _SIGN.match(part):
        key, operator, values = match["key"], _SIGNS[match["sign"]], (match["value"],)
    elif match := _PRESENT.match(part):
        key, operator = match["key"], "DoesNotExist" if match["no"] else "Exists"
    else:
        raise ValueError(f"{part!r} is not a label selector like role=worker, zone in (a,b), gpu, !gpu or cores>8")
    numeric = operator in ("Gt", "Lt")
    check_requirement(key, "In" if numeric else operator, values)
    if numeric and whole_number(values[0]) is None:
        raise ValueError(f"{part!r} does not compare with a whole number")
    return objects.LabelRequirement(key=key, operator=operator, values=values or None)


_SIGNS = {"in": "In", "notin": "NotIn", "=": "In", "==": "In", "!=": "NotIn", ">": "Gt", "<": "Lt"}
