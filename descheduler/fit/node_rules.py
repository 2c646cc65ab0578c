"""Answers of nodes whatever else is on them: by their state, labels and taints, and the reach of a pod's volumes.

Pods that ask the same get the same answer, and nodes that look the same to them give the same: both are asked once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from descheduler.fit.refusals import FixedTally
from descheduler.framework import NodeView, PodView, View
from descheduler.picture.node_index import node_affinity
from koordlite.model import label_selectors, node_selectors
from koordlite.model.wire import objects

_NAME = "metadata.name"
_OUTSIDE = "outside the evictor's nodeSelector"
_MOST_TAINTS = 64
"""Sets of taints up to which the tolerations of pods are compared by what they tolerate."""
_Key = tuple[object, ...]


class EligibleNodes(msgspec.Struct, frozen=True, eq=False):
    """Nodes that may take pods of one kind as far as they themselves go, and what the others say. Equal to itself
    alone: `NodeRules` makes one for all pods with the same rules."""

    names: Mapping[str, None]
    """Nodes that have nothing against them, by name; a set that keeps its order."""
    others: FixedTally
    """What each other node says."""
    allowed: Mapping[str, None]
    """Nodes that the pod's own selector and affinity allow, whatever the nodes say."""
    tolerated: frozenset[str]
    """Nodes whose taints the pod tolerates, whatever else they say."""


class NodeRules:
    """Static answers for a picture."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._node_rules: dict[_Key, EligibleNodes] = {}
        self._by_keys: dict[tuple[str, ...], list[tuple[NodeView, list[str]]]] = {}
        self._taints = tuple(dict.fromkeys(node.object.spec.taints or () for node in view.nodes.values()))

    def of(self, pod: PodView, inside: objects.LabelSelector) -> EligibleNodes:
        """The shape of `pod` among the nodes that `inside` selects: the same one for pods that ask the same."""
        spec = pod.object.spec
        volumes = tuple(self._volumes(pod))
        key: _Key = (
            tuple(sorted((spec.node_selector or {}).items())),
            node_affinity(spec).required,
            self._tolerated(spec.tolerations or ()),
            volumes,
            label_selectors.key(inside),
        )
        if key not in self._node_rules:
            names: list[str] = []
            refusals: dict[str, str] = {}
            allowed: list[str] = []
            tolerated: list[str] = []
            for node, members in self._buckets(_keys(spec, volumes, inside)):
                chosen = node_selectors.node_matches(spec, node.name, node.node.labels)
                taint = node_selectors.untolerated(node.object.spec.taints or (), spec.tolerations or ())
                why = _refusal(node, taint, volumes, chosen=chosen)
                if not label_selectors.labels_match(inside, node.node.labels):
                    why = _OUTSIDE
                allowed += members if chosen else ()
                tolerated += members if taint is None else ()
                if why:
                    refusals.update(dict.fromkeys(members, why))
                else:
                    names += members
            self._node_rules[key] = EligibleNodes(
                dict.fromkeys(sorted(names)), FixedTally(refusals), dict.fromkeys(sorted(allowed)), frozenset(tolerated)
            )
        return self._node_rules[key]

    def _tolerated(self, tolerations: tuple[objects.Toleration, ...]) -> tuple[object, ...]:
        """Equal for tolerations that mean the same to the nodes there are."""
        if len(self._taints) > _MOST_TAINTS:
            return tolerations
        return tuple(node_selectors.untolerated(taints, tolerations) for taints in self._taints)

    def _volumes(self, pod: PodView) -> Iterator[objects.NodeSelector]:
        """Selectors of the nodes that reach each volume of the pod."""
        for volume in pod.object.spec.volumes or ():
            name = (volume.persistent_volume_claim or {}).get("claimName")
            yield from self._view.volume_nodes.get(f"{pod.pod.namespace}/{name}", ()) if name else ()

    def _buckets(self, keys: tuple[str, ...]) -> list[tuple[NodeView, list[str]]]:
        """Nodes that agree in these labels, their taints and their state, each group with one that stands for it."""
        if keys not in self._by_keys:
            groups: dict[object, tuple[NodeView, list[str]]] = {}
            for name, node in self._view.nodes.items():
                labels, spec = node.node.labels, node.object.spec
                own = tuple(name if key == _NAME else labels.get(key) for key in keys)
                alike = (own, spec.taints, bool(spec.unschedulable), node.ready)
                groups.setdefault(alike, (node, []))[1].append(name)
            self._by_keys[keys] = list(groups.values())
        return self._by_keys[keys]


def _refusal(
    node: NodeView, taint: objects.Taint | None, volumes: Iterable[objects.NodeSelector], *, chosen: bool
) -> str:
    """The first objection, in the order and the words of upstream NodeFit; volumes are ours."""
    if not node.ready:
        return "node is not ready"
    if node.object.spec.unschedulable:
        return "node is not schedulable"
    if not chosen:
        return "pod node selector does not match the node label"
    if taint:
        return f"pod does not tolerate the taint {taint.key}:{taint.effect}"
    if not all(_reaches(node, volume) for volume in volumes):
        return "a volume of the pod cannot be reached from the node"
    return ""


def _reaches(node: NodeView, volume: objects.NodeSelector) -> bool:
    terms = volume.node_selector_terms or ()
    return any(node_selectors.term_matches(term, node.name, node.node.labels) for term in terms)


def _keys(
    spec: objects.PodSpec, volumes: tuple[objects.NodeSelector, ...], inside: objects.LabelSelector
) -> tuple[str, ...]:
    """Labels that anybody here asks for; the name of the node among them where a field selector does."""
    required = node_affinity(spec).required
    found = {*(spec.node_selector or {}), *(inside.match_labels or {})}
    found.update(line.key for line in inside.match_expressions or ())
    for selector in (*((required,) if required else ()), *volumes):
        for term in selector.node_selector_terms or ():
            found.update(line.key for line in term.match_expressions or ())
            found.update(_NAME for _ in term.match_fields or ())
    return tuple(sorted(found))
