"""Kubernetes' rules for nodes: node selectors, required node affinity, taints and tolerations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from koordlite.model.label_selectors import requirement_holds
from koordlite.model.wire import objects

Labels = Mapping[str, str]

_BLOCKING = ("NoSchedule", "NoExecute")


def node_matches(spec: objects.PodSpec, name: str, labels: Labels) -> bool:
    """spec.nodeSelector and the required node affinity, for the node `name`."""
    selected = all(labels.get(key) == value for key, value in (spec.node_selector or {}).items())
    affinity = spec.affinity.node_affinity if spec.affinity else None
    required = affinity.required if affinity else None
    if not selected or required is None:
        return selected
    return any(term_matches(term, name, labels) for term in required.node_selector_terms or ())


def term_matches(term: objects.NodeSelectorTerm, name: str, labels: Labels) -> bool:
    """One term of a node affinity, for the node `name`. A term without lines matches no node."""
    lines, fields = term.match_expressions or (), term.match_fields or ()
    if not lines and not fields:
        return False
    by_field = {"metadata.name": name}
    return all(requirement_holds(r, labels) for r in lines) and all(requirement_holds(r, by_field) for r in fields)


def untolerated(taints: Iterable[objects.Taint], tolerations: Iterable[objects.Toleration]) -> objects.Taint | None:
    """The first taint that keeps the pod off the node; PreferNoSchedule keeps none off."""
    accepted = tuple(tolerations)
    blocking = (taint for taint in taints if taint.effect in _BLOCKING)
    return next((taint for taint in blocking if not any(tolerates(t, taint) for t in accepted)), None)


def tolerates(toleration: objects.Toleration, taint: objects.Taint) -> bool:
    """Empty effect: any effect; empty key: any key; the operator is Equal unless it says otherwise."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    return toleration.operator == "Exists" or (toleration.operator in ("", "Equal") and toleration.value == taint.value)
