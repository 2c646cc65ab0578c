"""Topology spread constraints of pods, each one once for all pods that share it, with the nodes that count and the pods
that it counts; and which pods have to go so that no domain has too many more than another.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import msgspec

from descheduler.framework import NodeGroup, NodeView, PodView
from descheduler.picture.node_index import NodeNames, fingerprint, index_of, node_affinity
from descheduler.picture.pods import TemplateKey
from descheduler.picture.templates import LabelIndex
from koordlite.model import label_selectors
from koordlite.model.wire import objects

T = TypeVar("T")


def is_level(sizes: Sequence[int], max_skew: int) -> bool:
    """Tell whether no domain holds more than `max_skew` more than another.

    >>> is_level([2, 3], 1), is_level([1, 3], 1)
    (True, False)
    """
    return max(sizes, default=0) - min(sizes, default=0) <= max_skew


def moves(
    domains: list[list[T]],
    max_skew: int,
    movable: Callable[[T], bool],
    *,
    preferred: Callable[[T], bool] = lambda _item: True,
    empty: int = 0,
) -> Iterator[T]:
    """The items that have to leave their domain, given the domains from the smallest to the largest.

    Each domain gives its last items first. What it gives goes to the smallest domain that lacks some: the larger one
    stays at or above the average, the smaller one at or below, and no more goes than the skew asks for. An item that
    is not `movable` stays where it is, and counts there: a domain with nothing else gives no more. One that is movable
    but not `preferred` goes only when no preferred one is left. `empty` more domains have nothing, and are the smallest
    of all.

    >>> list(moves([[], ["x"], list("abcde")], 1, lambda item: True))
    ['d', 'e', 'c']
    """
    total = sum(map(len, domains))
    ideal = total / (len(domains) + empty) if domains else 0
    # Each domain that is given something gets an item at least, so that no more of the empty ones are needed.
    domains = [*([] for _ in range(min(empty, total))), *domains]
    low, high, grown = 0, len(domains) - 1, False
    while low < high:
        giver, taker = domains[high], domains[low]
        skew = len(giver) - len(taker)
        if len(giver) <= ideal:
            high -= 1
            continue
        wanted = min(math.ceil(len(giver) - ideal), math.ceil(ideal - len(taker)), math.ceil((skew - max_skew) / 2))
        if skew <= max_skew or wanted <= 0:
            if not grown:
                return  # The domains after this one are no smaller, so none of them asks for more either.
            low, grown = low + 1, False
            continue
        taken = _take(giver, wanted, movable, preferred)
        yield from taken
        taker += taken
        grown = True
        if len(taken) < wanted:
            high -= 1


def _take(giver: list[T], wanted: int, movable: Callable[[T], bool], preferred: Callable[[T], bool]) -> list[T]:
    """Take up to `wanted` movable items from the end, preferred ones first. Those passed over go to the front: they are
    not asked again before all others are gone."""
    taken: list[T] = []
    stuck: list[T] = []
    others: list[T] = []
    while giver and len(taken) < wanted:
        item = giver.pop()
        (stuck if not movable(item) else taken if preferred(item) else others).append(item)
    missing = wanted - len(taken)
    giver[:0] = [*reversed(stuck), *reversed(others[missing:])]
    return [*taken, *others[:missing]][::-1]


class Constraint(msgspec.Struct, frozen=True):
    """A constraint with everything resolved that depends on the pod it was written on."""

    max_skew: int
    key: str
    selector: objects.LabelSelector | None
    nodes: NodeNames
    """Nodes that count: all, or those that the pod's affinity and tolerations leave, as its policies say."""


Domains = Mapping[str, list[PodView]]
"""Pods that a constraint counts, by the value of its key; values without such a pod are missing."""


class _Layout(msgspec.Struct, frozen=True):
    """The domains of one key over some nodes."""

    by_node: Mapping[str, str]
    """Domain by node; a node without the key is in none."""
    values: list[str]
    """All of them, by name."""


class Spread:
    """The nodes, and the domains that labels make of them."""

    def __init__(self, nodes: NodeGroup) -> None:
        self._nodes = index_of(nodes)
        self._by_name = {node.name: node for node in nodes}
        self._layouts: dict[tuple[str, NodeNames], _Layout] = {}
        self._by_value: dict[str, Mapping[str, list[NodeView]]] = {}

    def constraints(self, pods: Iterable[PodView], words: Collection[str]) -> Iterator[tuple[Constraint, PodView]]:
        """The constraints of `pods` whose whenUnsatisfiable is one of `words`, each once, with the first pod that has
        it. Source: upstream, which takes equal ones for one."""
        seen: set[bytes] = set()
        for pod, written in _written(pods):
            if written.when_unsatisfiable in words:
                key = _identity(written, pod)
                if key not in seen:
                    seen.add(key)
                    yield self._resolve(written, pod), pod

    def domains(self, constraint: Constraint, pods: LabelIndex) -> Domains:
        """Pods that count, by domain. Pods that are going, and those of nodes that do not count, do not.

        Source: the scheduler's PodTopologySpread; upstream counts pods of nodes that do not count.
        """
        found: dict[str, list[PodView]] = defaultdict(list)
        by_node = self._laid_out(constraint).by_node
        for pod in pods.select(constraint.selector):
            value = by_node.get(pod.node)
            if value is not None and not pod.pod.deleting:
                found[value].append(pod)
        return found

    def domain(self, pod: PodView, constraint: Constraint) -> str:
        """The domain of a pod; empty when its node does not count: it has no such label, or is left out."""
        return self._laid_out(constraint).by_node.get(pod.node, "")

    def values(self, constraint: Constraint) -> list[str]:
        """All domains of a constraint by name, those without a pod too."""
        return self._laid_out(constraint).values

    def _laid_out(self, constraint: Constraint) -> _Layout:
        key = (constraint.key, constraint.nodes)
        if key not in self._layouts:
            labels = ((name, self._by_name[name].node.labels) for name in constraint.nodes)
            by_node = {name: one[constraint.key] for name, one in labels if constraint.key in one}
            self._layouts[key] = _Layout(by_node, sorted(set(by_node.values())))
        return self._layouts[key]

    def nodes_outside(self, constraint: Constraint, full: Collection[str]) -> Iterator[NodeView]:
        """The nodes that count and whose domain is none of `full`, by domain."""
        if constraint.key not in self._by_value:
            groups: dict[str, list[NodeView]] = defaultdict(list)
            for node in self._nodes.nodes:
                if constraint.key in node.node.labels:
                    groups[node.node.labels[constraint.key]].append(node)
            self._by_value[constraint.key] = dict(sorted(groups.items()))
        for value, nodes in self._by_value[constraint.key].items():
            if value not in full:
                yield from (node for node in nodes if node.name in constraint.nodes)

    def _resolve(self, written: objects.TopologySpreadConstraint, pod: PodView) -> Constraint:
        spec, nodes = pod.object.spec, self._nodes.names
        if _honors_affinity(written):
            nodes = self._nodes.allowed_by_labels(spec)
        if _honors_taints(written):
            tolerated = self._nodes.allowed_by_taints(spec.tolerations)
            nodes = tolerated if nodes is self._nodes.names else nodes & tolerated
        selector = label_selectors.with_label_keys(written, pod.pod.labels)
        return Constraint(written.max_skew, written.topology_key, selector, nodes)


def _written(pods: Iterable[PodView]) -> Iterator[tuple[PodView, objects.TopologySpreadConstraint]]:
    """Constraints in the pods' specs, of pods of one template only once."""
    templates: set[TemplateKey] = set()
    for pod in pods:
        if pod.template not in templates:
            templates.add(pod.template)
            yield from ((pod, written) for written in pod.object.spec.topology_spread_constraints or ())


def _honors_affinity(written: objects.TopologySpreadConstraint) -> bool:
    return written.node_affinity_policy in (None, "Honor")


def _honors_taints(written: objects.TopologySpreadConstraint) -> bool:
    return written.node_taints_policy == "Honor"


def _identity(written: objects.TopologySpreadConstraint, pod: PodView) -> bytes:
    """Equal for constraints that ask the same of the same nodes and pods."""
    spec = pod.object.spec
    labels = [pod.pod.labels.get(key) for key in written.match_label_keys or ()]
    affinity = (spec.node_selector, node_affinity(spec).required) if _honors_affinity(written) else None
    return fingerprint(
        written.max_skew,
        written.topology_key,
        (written.label_selector, written.match_label_keys, labels),
        affinity,
        spec.tolerations if _honors_taints(written) else None,
    )
