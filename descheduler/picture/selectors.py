"""Kubernetes' matching rules: label selectors, node selectors, taints and tolerations."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping

from koordlite.model.wire import objects

Labels = Mapping[str, str]

_BLOCKING = ("NoSchedule", "NoExecute")
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", re.ASCII)
_PREFIX = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*", re.ASCII)
_LONGEST_PREFIX = 253


def labels_match(selector: objects.LabelSelector | None, labels: Labels) -> bool:
    """Does the selector select an object with these labels? A missing selector selects nothing, an empty one all."""
    if selector is None:
        return False
    plain = all(labels.get(key) == value for key, value in (selector.match_labels or {}).items())
    return plain and all(requirement_holds(r, labels) for r in selector.match_expressions or ())


def key(selector: objects.LabelSelector | None) -> Hashable:
    """Equal for selectors that are written alike."""
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

    Source: apimachinery `LabelSelectorAsSelector` and the syntax of labels.
    """
    prefix, slash, name = key.rpartition("/")
    if not _NAME.fullmatch(name) or (slash and not (_PREFIX.fullmatch(prefix) and len(prefix) <= _LONGEST_PREFIX)):
        raise ValueError(f"{key!r} is not a label key like app or example.com/app")
    if operator in ("In", "NotIn") and not values:
        raise ValueError(f"{key}: operator {operator} needs values")
    if operator in ("Exists", "DoesNotExist") and values:
        raise ValueError(f"{key}: operator {operator} takes no values")
    wrong = [value for value in values if value and not _NAME.fullmatch(value)]
    if wrong:
        raise ValueError(f"{key}: {wrong[0]!r} is not the value of a label")


def _number_holds(operator: str, value: str, values: tuple[str, ...]) -> bool:
    try:
        left, right = int(value), int(values[0])
    except (ValueError, IndexError):
        return False
    return left > right if operator == "Gt" else left < right


def node_matches(spec: objects.PodSpec, name: str, labels: Labels) -> bool:
    """spec.nodeSelector and the required node affinity, for the node `name`."""
    chosen = all(labels.get(key) == value for key, value in (spec.node_selector or {}).items())
    affinity = spec.affinity.node_affinity if spec.affinity else None
    required = affinity.required if affinity else None
    if not chosen or required is None:
        return chosen
    return any(term_matches(term, name, labels) for term in required.node_selector_terms or ())


def term_matches(term: objects.NodeSelectorTerm, name: str, labels: Labels) -> bool:
    """One term of a node affinity, for the node `name`. A term without lines matches no node."""
    lines, fields = term.match_expressions or (), term.match_fields or ()
    if not lines and not fields:
        return False
    by_field = {"metadata.name": name}
    return all(requirement_holds(r, labels) for r in lines) and all(requirement_holds(r, by_field) for r in fields)


def untolerated(taints: Iterable[objects.Taint], tolerations: Iterable[objects.Toleration]) -> objects.Taint | None:
    """The first taint that keeps the pod off the node; PreferNoSchedule keeps nobody off."""
    accepted = tuple(tolerations)
    blocking = (taint for taint in taints if taint.effect in _BLOCKING)
    return next((taint for taint in blocking if not any(tolerates(t, taint) for t in accepted)), None)


def tolerates(toleration: objects.Toleration, taint: objects.Taint) -> bool:
    """Empty effect: any effect; empty key with Exists: any taint; the operator is Equal unless it says otherwise."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if not toleration.key:
        return toleration.operator == "Exists"
    if toleration.key != taint.key:
        return False
    return toleration.operator == "Exists" or (toleration.operator in ("", "Equal") and toleration.value == taint.value)


_SET = re.compile(r"(?P<key>[^\s!=(),]+)\s+(?P<word>in|notin)\s+\((?P<values>[^()]*)\)\Z")
_EQUAL = re.compile(r"(?P<key>[^\s!=(),]+)\s*(?P<sign>==|=|!=)\s*(?P<value>[^\s!=(),]*)\Z")
_PRESENT = re.compile(r"(?P<no>!?)\s*(?P<key>[^\s!=(),]+)\Z")


def parse(text: str) -> objects.LabelSelector:
    """A selector in kubectl's one-line form, `role=worker,zone in (a,b),!gpu`; ValueError names what cannot be read."""
    parts = [part.strip() for part in re.split(r",(?![^()]*\))", text)] if text.strip() else []
    return objects.LabelSelector(match_expressions=tuple(map(_parse_part, parts)))


def _parse_part(part: str) -> objects.LabelRequirement:
    if match := _SET.match(part):
        values = tuple(value.strip() for value in match["values"].split(","))
        return objects.LabelRequirement(key=match["key"], operator=_SIGNS[match["word"]], values=values)
    if match := _EQUAL.match(part):
        return objects.LabelRequirement(key=match["key"], operator=_SIGNS[match["sign"]], values=(match["value"],))
    if match := _PRESENT.match(part):
        return objects.LabelRequirement(key=match["key"], operator="DoesNotExist" if match["no"] else "Exists")
    raise ValueError(f"{part!r} is not a label selector like role=worker, zone in (a,b), gpu or !gpu")


_SIGNS = {"in": "In", "notin": "NotIn", "=": "In", "==": "In", "!=": "NotIn"}
