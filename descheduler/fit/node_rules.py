"""Answers of nodes whatever else is on them: by their state, labels and taints, and the reach of a pod's volumes.

Pods that ask the same get the same answer, and nodes that look the same to them give the same: both are asked once.
"""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Callable, Iterable, Mapping

import msgspec

from descheduler.framework import NodeView, PodView
from descheduler.picture.node_index import NodeIndex, label_keys, node_affinity
from koordlite.model import label_selectors, node_selectors
from koordlite.model.wire import objects

EXAMPLES = 3


class Group(msgspec.Struct, frozen=True):
    """Nodes that refuse for one reason."""

    nodes: int
    examples: tuple[str, ...]
    """Up to `EXAMPLES` of them."""


_NO_NODES = Group(0, ())
Groups = Mapping[str, Group]
"""Groups by reason."""


class Tally:
    """The answer of each node, kept by reason as well once that is asked for. Answers may change; what is said of them
    follows from the last ones alone, not from their order."""

    def __init__(self, refusals: Mapping[str, str]) -> None:
        self.by_node = dict(refusals)
        self._by_reason: dict[str, set[str]] | None = None
        self._first: dict[str, list[str]] = {}
        """The first nodes by name, one more than there are examples, by reason."""
        self._all: Groups | None = None

    @property
    def _members(self) -> dict[str, set[str]]:
        """Nodes by reason. Most tallies are only asked whether any node took the pod."""
        if self._by_reason is None:
            self._by_reason = {}
            for name, why in self.by_node.items():
                self._by_reason.setdefault(why, set()).add(name)
        return self._by_reason

    def note(self, name: str, why: str) -> None:
        """Set the node's present answer."""
        before = self.by_node.get(name)
        if before == why:
            return
        by_reason = self._members
        if before is not None:
            by_reason[before].remove(name)
            self._first.pop(before, None)
        self.by_node[name] = why
        by_reason.setdefault(why, set()).add(name)
        self._first.pop(why, None)
        self._all = None

    def groups(self, without: str) -> Groups:
        """All reasons, leaving one node out."""
        if without not in self.by_node and self._all is not None:
            return self._all
        all_groups = dict[str, Group]()
        for why, names in self._members.items():
            if count := len(names) - (without in names):
                if why not in self._first:
                    self._first[why] = heapq.nsmallest(EXAMPLES + 1, names)
                examples = [name for name in self._first[why] if name != without][:EXAMPLES]
                all_groups[why] = Group(count, tuple(examples))
        if without not in self.by_node:
            self._all = all_groups
        return all_groups


def merge(several: Iterable[Groups]) -> Groups:
    """The groups of disjoint sets of nodes as one."""
    filled = [groups for groups in several if groups]
    if len(filled) == 1:
        return filled[0]
    total: dict[str, Group] = {}
    for groups in filled:
        for why, group in groups.items():
            first = total.get(why, _NO_NODES)
            total[why] = Group(first.nodes + group.nodes, (first.examples + group.examples)[:EXAMPLES])
    return total


_OUTSIDE = "outside the evictor's nodeSelector"
_MOST_TAINTS = 64
"""Sets of taints up to which the tolerations of pods are compared by what they tolerate."""
_Key = tuple[object, ...]


class EligibleNodes(msgspec.Struct, frozen=True, eq=False):
    """Nodes that may take pods of one kind as far as they themselves go, and what the others say. Equal to itself
    alone: `NodeRules` makes one for all pods with the same rules."""

    names: Mapping[str, None]
    """Nodes that have nothing against them, by name; a set that keeps its order."""
    others: Tally
    """Refusals of the other nodes."""
    allowed: Mapping[str, None]
    """Nodes that the pod's own selector and affinity allow, whatever the nodes say."""
    tolerated: frozenset[str]
    """Nodes whose taints the pod tolerates, whatever else they say."""


class NodeRules:
    """Static answers of nodes: they follow from the objects of these nodes alone, not from their pods."""

    def __init__(self, nodes: Mapping[str, NodeView]) -> None:
        self._index = NodeIndex(tuple(nodes.values()))
        self._eligible: dict[_Key, EligibleNodes] = {}
        self._last: dict[_Key, EligibleNodes] = {}
        """The same of the plan before."""
        self._taints = tuple(dict.fromkeys(node.object.spec.taints or () for node in nodes.values()))

    def begin(self) -> None:
        """Begin a plan: forget what the last one did not ask for."""
        self._eligible, self._last = {}, self._eligible

    def of(
        self,
        pod: PodView,
        inside: objects.LabelSelector,
        volume_nodes: Mapping[str, tuple[objects.NodeSelector, ...]],
    ) -> EligibleNodes:
        """The shape of `pod` among the nodes that `inside` selects: the same one for pods that ask the same.
        `volume_nodes`: those of the picture."""
        spec = pod.object.spec
        claims = [(volume.persistent_volume_claim or {}).get("claimName") for volume in spec.volumes or ()]
        # Selectors of the nodes that reach each volume of the pod.
        volumes = tuple(
            selector for name in claims if name for selector in volume_nodes.get(f"{pod.pod.namespace}/{name}", ())
        )
        key: _Key = (
            tuple(sorted((spec.node_selector or {}).items())),
            node_affinity(spec).required,
            self._tolerated(spec.tolerations or ()),
            volumes,
            label_selectors.key(inside),
        )
        if key in self._last:
            self._eligible[key] = self._last[key]
        elif key not in self._eligible:
            names: list[str] = []
            refusals: dict[str, str] = {}
            allowed: list[str] = []
            tolerated: list[str] = []
            labels = {*(spec.node_selector or {}), *(inside.match_labels or {})}
            labels.update(line.key for line in inside.match_expressions or ())
            for selector in (node_affinity(spec).required, *volumes):
                labels.update(label_keys(selector))
            for kind in self._index.alike(frozenset(labels)):
                node, members = kind.first, [one.name for one in kind.nodes]
                is_match = node_selectors.node_matches(spec, node.name, node.node.labels)
                taint = node_selectors.untolerated(node.object.spec.taints or (), spec.tolerations or ())
                why = _refusal(node, taint, volumes, is_match=is_match)
                if not label_selectors.labels_match(inside, node.node.labels):
                    why = _OUTSIDE
                allowed += members if is_match else ()
                tolerated += members if taint is None else ()
                if why:
                    refusals.update(dict.fromkeys(members, why))
                else:
                    names += members
            self._eligible[key] = EligibleNodes(
                dict.fromkeys(sorted(names)), Tally(refusals), dict.fromkeys(sorted(allowed)), frozenset(tolerated)
            )
        return self._eligible[key]

    def _tolerated(self, tolerations: tuple[objects.Toleration, ...]) -> tuple[object, ...]:
        """Equal for tolerations that mean the same to the nodes there are."""
        if len(self._taints) > _MOST_TAINTS:
            return tolerations
        return tuple(node_selectors.untolerated(taints, tolerations) for taints in self._taints)


def _refusal(
    node: NodeView, taint: objects.Taint | None, volumes: Iterable[objects.NodeSelector], *, is_match: bool
) -> str:
    """The first objection, in the order and the words of upstream NodeFit; volumes are ours."""
    if not node.ready:
        return "node is not ready"
    if node.object.spec.unschedulable:
        return "node is not schedulable"
    if not is_match:
        return "pod node selector does not match the node label"
    if taint:
        return f"pod does not tolerate the taint {taint.key}:{taint.effect}"
    for volume in volumes:
        terms = volume.node_selector_terms or ()
        if not any(node_selectors.term_matches(term, node.name, node.node.labels) for term in terms):
            return "a volume of the pod cannot be reached from the node"
    return ""


_MOST_DOMAINS = 16
"""A label that makes more domains is put to the nodes one by one."""


class Closing(msgspec.Struct, frozen=True):
    """A rule that keeps a pod off whole domains of a node label."""

    key: str
    refusal: Callable[[str | None], str]
    """Refusal of all nodes with this value of the label; empty when there is none. None: nodes without the label."""


class Order:
    """The nodes, those with the largest free part of their CPUs first: one order for all pods, since every change of
    the plan has to be noted in it."""

    def __init__(self, nodes: Mapping[str, NodeView], fullness: Callable[[str], float]) -> None:
        self._nodes, self._fullness = nodes, fullness
        self._order = sorted((fullness(name), name) for name in nodes)
        self._domains_by_key: dict[str, tuple[Mapping[str, str | None], frozenset[str | None]]] = {}

    def of(self, eligible: EligibleNodes) -> Iterable[str]:
        """All nodes of the shape. Few are sorted, many are picked out."""
        names = eligible.names
        if len(names) ** 2 < len(self._order):
            return [name for _, name in sorted((self._fullness(name), name) for name in names)]
        return (name for _, name in self._order if name in names)

    def open_to(self, eligible: EligibleNodes, closing: Closing) -> Iterable[str]:
        """The nodes of the shape without those of closed domains, where these are few."""
        domains, values = self._domains(closing.key)
        if not values:
            return self.of(eligible)
        names, open_ = eligible.names, {value for value in values if not closing.refusal(value)}
        return (name for _, name in self._order if name in names and domains[name] in open_) if open_ else ()

    def closed(self, eligible: EligibleNodes, closing: Closing, without: str) -> Groups:
        """Refusals of the nodes that `open_to` leaves out; one node does not count."""
        domains, values = self._domains(closing.key)
        refusals = {value: closing.refusal(value) for value in values}
        names = eligible.names if values else ()
        return Tally({name: why for name in names if (why := refusals[domains[name]])}).groups(without)

    def changed(self, name: str, before: float, after: float) -> None:
        """A node is fuller or emptier than it was."""
        del self._order[bisect.bisect_left(self._order, (before, name))]
        bisect.insort(self._order, (after, name))

    def _domains(self, key: str) -> tuple[Mapping[str, str | None], frozenset[str | None]]:
        """Value of the label by node, and all values; none where there are many."""
        if key not in self._domains_by_key:
            domains = {name: node.node.labels.get(key) for name, node in self._nodes.items()}
            values = frozenset(domains.values())
            self._domains_by_key[key] = domains, values if len(values) <= _MOST_DOMAINS else frozenset()
        return self._domains_by_key[key]
