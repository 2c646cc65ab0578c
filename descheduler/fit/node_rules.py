"""Answers of nodes whatever else is on them: by their state, labels and taints, and the reach of a pod's volumes.

Pods that ask the same get the same answer, and nodes that look the same to them give the same: both are asked once.
"""

from __future__ import annotations

import bisect
import heapq
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from descheduler.framework import NodeView, PodView, View
from descheduler.picture.node_index import node_affinity
from koordlite.model import label_selectors, node_selectors
from koordlite.model.wire import objects

EXAMPLES = 3


class Group(msgspec.Struct, frozen=True):
    """Nodes that refuse for one reason."""

    nodes: int
    examples: tuple[str, ...]
    """Up to `EXAMPLES` of them."""


Groups = Mapping[str, Group]
"""By reason."""


class Tally:
    """The answer of each node, kept by reason as well once that is asked for. Answers may change."""

    def __init__(self, refusals: Mapping[str, str]) -> None:
        self.by_node = dict(refusals)
        self._known: dict[str, dict[str, None]] | None = None

    @property
    def _members(self) -> dict[str, dict[str, None]]:
        """Nodes by reason. Most tallies are only asked whether any node took the pod."""
        if self._known is None:
            self._known = {}
            for name, why in self.by_node.items():
                self._known.setdefault(why, {})[name] = None
        return self._known

    def note(self, name: str, why: str) -> None:
        """Set the node's present answer."""
        before = self.by_node.get(name)
        if before == why:
            return
        by_reason = self._members
        if before is not None:
            members = by_reason[before]
            del members[name]
            if not members:
                del by_reason[before]
        self.by_node[name] = why
        by_reason.setdefault(why, {})[name] = None

    def groups(self, without: str) -> Groups:
        """All reasons, leaving one node out."""
        return {why: group for why, names in self._members.items() if (group := _group(names, without)).nodes}


class FixedTally(Tally):
    """A tally whose answers do not change: who asks for all of it gets the same groups."""

    def __init__(self, refusals: Mapping[str, str]) -> None:
        super().__init__(refusals)
        self._all = super().groups("")

    def groups(self, without: str) -> Groups:
        """All reasons, leaving one node out."""
        return super().groups(without) if without in self.by_node else self._all


def _group(names: Mapping[str, None], without: str) -> Group:
    others = itertools.islice((name for name in names if name != without), EXAMPLES)
    return Group(len(names) - (without in names), tuple(others))


def merged(several: Iterable[Groups]) -> Groups:
    """The groups of disjoint sets of nodes as one."""
    filled = [groups for groups in several if groups]
    if len(filled) == 1:
        return filled[0]
    found: dict[str, Group] = {}
    for groups in filled:
        for why, one in groups.items():
            group, known = one, found.get(why)
            if known:
                group = Group(known.nodes + group.nodes, (known.examples + group.examples)[:EXAMPLES])
            found[why] = group
    return found


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


_KEPT = 1024
"""Orders that are kept; each costs a little at every change of the plan."""
_KEPT_WHOLE = 64
"""All of them together have no more entries than so many orders of all nodes."""
_MOST_DOMAINS = 16
"""A label that makes more domains is not worth an order for each of them."""

_Order = list[tuple[float, str]]
"""How full, and name."""
_Domains = dict[str | None, _Order]


class Closing(msgspec.Struct, frozen=True):
    """A rule that keeps a pod off whole domains of a node label."""

    key: str
    refusal: Callable[[str | None], str]
    """What all nodes with this value of the label say; empty when nothing. None: nodes without the label."""


class Orders:
    """Nodes of each shape, those with the largest free part of their CPUs first; also by domains of a label."""

    def __init__(self, nodes: Mapping[str, NodeView], fullness: Callable[[str], float]) -> None:
        self._nodes, self._fullness = nodes, fullness
        self._kept: dict[tuple[EligibleNodes, str], _Domains] = {}
        """By shape and label; without a label there is one domain."""
        self._entries = 0
        """Of all kept orders together."""

    def emptiest(self, eligible: EligibleNodes) -> Iterator[str]:
        """All nodes of the shape."""
        domains = self._domains(eligible, "")
        order = domains[None] if domains else self._sorted(eligible)
        return (name for _, name in order)

    def open_to(self, eligible: EligibleNodes, closing: Closing) -> Iterator[str]:
        """The nodes of the shape without those of closed domains, where that is quicker to say."""
        domains = self._few_domains(eligible, closing)
        if domains is None:
            return self.emptiest(eligible)
        return (name for _, name in heapq.merge(*(o for value, o in domains.items() if not closing.refusal(value))))

    def closed(self, eligible: EligibleNodes, closing: Closing, without: str) -> Groups:
        """Refusals of the nodes that `open_to` leaves out; one node does not count."""
        found = []
        for value, order in (self._few_domains(eligible, closing) or {}).items():
            why = closing.refusal(value)
            if why:
                found.append(Tally(dict.fromkeys((name for _, name in order), why)).groups(without))
        return merged(found)

    def changed(self, name: str, before: float, after: float) -> None:
        """A node is fuller or emptier than it was."""
        labels = self._nodes[name].node.labels
        for (eligible, key), domains in self._kept.items():
            order = domains.get(labels.get(key) if key else None) if name in eligible.names else None
            if order:
                del order[bisect.bisect_left(order, (before, name))]
                bisect.insort(order, (after, name))

    def _few_domains(self, eligible: EligibleNodes, closing: Closing) -> _Domains | None:
        domains = self._domains(eligible, closing.key)
        return None if domains is None or len(domains) > _MOST_DOMAINS else domains

    def _domains(self, eligible: EligibleNodes, key: str) -> _Domains | None:
        """None when there are too many shapes to keep an order."""
        known = self._kept.get((eligible, key))
        if known is None:
            entries = self._entries + len(eligible.names)
            if len(self._kept) >= _KEPT or entries > _KEPT_WHOLE * len(self._nodes):
                return None
            self._entries = entries
            known = self._kept[(eligible, key)] = self._made(eligible, key)
        return known

    def _made(self, eligible: EligibleNodes, key: str) -> _Domains:
        found: _Domains = defaultdict(list)
        for entry in self._sorted(eligible):
            value = self._nodes[entry[1]].node.labels.get(key) if key else None
            found[value].append(entry)
        if len(found) > _MOST_DOMAINS:
            return {value: [] for value in found}
        return found or {None: []}

    def _sorted(self, eligible: EligibleNodes) -> _Order:
        return sorted((self._fullness(name), name) for name in eligible.names)
