"""The nodes that a pod's rules allow, worked out once for all pods with equal rules and once for all nodes that look
alike.

Two nodes look alike to a rule when they agree on the labels that it names, their taints and their state. So a rule is
put to a handful of kinds of nodes, not to each of thousands.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from descheduler.picture.cluster import NodeGroup, NodeView, View
from descheduler.picture.pods import PodView, SpecKey
from koordlite.model import node_selectors
from koordlite.model.wire import objects

NodeNames = frozenset[str]
_encode = msgspec.json.Encoder(order="deterministic").encode


class Kind(msgspec.Struct, frozen=True, eq=False):
    """Nodes that look alike to a rule; equal to itself alone."""

    nodes: list[NodeView] = msgspec.field(default_factory=list)

    @property
    def first(self) -> NodeView:
        """The node that stands for all of them."""
        return self.nodes[0]


def fingerprint(*rules: object) -> bytes:
    """The same for rules that say the same."""
    return _encode(rules)


def index_of(nodes: NodeGroup) -> NodeIndex:
    """The index of these nodes, made once for all who ask about the same group."""
    return nodes.once(NodeIndex, lambda: NodeIndex(nodes))


def take_over(nodes: NodeGroup, view: View, name: str) -> None:
    """Let the nodes have the index that they had under this name in the picture before, if their objects are the same
    still: no index asks for pods."""
    index = view.same((NodeIndex, name), [node.object for node in nodes], lambda: NodeIndex(nodes))
    nodes.once(NodeIndex, lambda: index)


class NodeIndex:
    """Nodes of one picture by what rules ask of them."""

    def __init__(self, nodes: Sequence[NodeView]) -> None:
        self.nodes = nodes
        self.names: NodeNames = frozenset(node.name for node in nodes)
        self._kinds: dict[frozenset[str], list[Kind]] = {}
        self._by_labels: dict[bytes, NodeNames] = {}
        self._by_taints: dict[bytes, NodeNames] = {}
        self._sets: dict[tuple[Kind, ...], NodeNames] = {}
        self._weights: dict[bytes, Weights] = {}
        self._places: dict[frozenset[str], dict[str, int]] = {}
        self._of_specs: dict[SpecKey, Weights] = {}

    def allowed_by_labels(self, spec: objects.PodSpec) -> NodeNames:
        """Nodes that the pod's nodeSelector and required node affinity match; all for a pod without either."""
        required = node_affinity(spec).required
        if not spec.node_selector and required is None:
            return self.names
        key = fingerprint(spec.node_selector, required)
        if key not in self._by_labels:
            kinds = self.alike(frozenset((*(spec.node_selector or ()), *label_keys(required))))
            self._by_labels[key] = self._names([kind for kind in kinds if matches(spec, kind.first)])
        return self._by_labels[key]

    def allowed_by_taints(self, tolerations: tuple[objects.Toleration, ...] | None) -> NodeNames:
        """Nodes without a taint that keeps a pod with these tolerations off."""
        key = fingerprint(tolerations)
        if key not in self._by_taints:
            accepted = tolerations or ()
            kinds = [(kind.first.object.spec.taints or (), kind) for kind in self.alike(frozenset())]
            open_to = [kind for taints, kind in kinds if not node_selectors.untolerated(taints, accepted)]
            self._by_taints[key] = self._names(open_to)
        return self._by_taints[key]

    def allowed(self, spec: objects.PodSpec) -> NodeNames:
        """Nodes that neither its labels nor its taints keep from the pod."""
        by_labels, by_taints = self.allowed_by_labels(spec), self.allowed_by_taints(spec.tolerations)
        if by_labels is self.names:  # Of most pods, and sets of all nodes are big.
            return by_taints
        return by_labels if by_taints is self.names else by_labels & by_taints

    def weights(self, pod: PodView) -> Weights:
        """Weights of nodes by the pod's preferences."""
        spec = pod.template.spec
        if spec not in self._of_specs:
            preferred = node_affinity(pod.object.spec).preferred or ()
            key = fingerprint(preferred)
            if key not in self._weights:
                used = frozenset(k for one in preferred for k in _term_keys(one.preference))
                self._weights[key] = Weights(preferred, self.alike(used), self._kind_numbers(used))
            self._of_specs[spec] = self._weights[key]
        return self._of_specs[spec]

    def _names(self, kinds: list[Kind]) -> NodeNames:
        """The nodes of these kinds; one set for all rules that leave the same ones, since sets of all nodes are big."""
        key = tuple(kinds)
        if key not in self._sets:
            names = frozenset(node.name for kind in kinds for node in kind.nodes)
            self._sets[key] = self.names if len(names) == len(self.names) else names
        return self._sets[key]

    def alike(self, used: frozenset[str]) -> list[Kind]:
        """The nodes in groups that agree on these labels, their taints and their state; `metadata.name` stands for the
        name."""
        if used not in self._kinds:
            groups: dict[tuple[object, ...], Kind] = defaultdict(Kind)
            ordered = sorted(used - {"metadata.name"})
            for node in self.nodes:
                name, spec = node.name if "metadata.name" in used else None, node.object.spec
                state = spec.taints or (), bool(spec.unschedulable), node.ready
                groups[(name, *state, *map(node.node.labels.get, ordered))].nodes.append(node)
            self._kinds[used] = list(groups.values())
        return self._kinds[used]

    def _kind_numbers(self, used: frozenset[str]) -> dict[str, int]:
        """Number of the kind that each node is of."""
        if used not in self._places:
            kinds = enumerate(self.alike(used))
            self._places[used] = {node.name: number for number, kind in kinds for node in kind.nodes}
        return self._places[used]


class Weights:
    """The weights of nodes for pods with the same preferences: the sum of the weights of the terms that match.

    Source: upstream `GetNodeWeightGivenPodPreferredAffinity`.
    """

    def __init__(
        self, preferred: tuple[objects.PreferredNodes, ...], kinds: list[Kind], places: Mapping[str, int]
    ) -> None:
        self._values = [weight(preferred, kind.first) for kind in kinds]
        self._kinds = sorted(zip(self._values, kinds, strict=True), key=lambda one: -one[0])
        self._places = places
        self._above: dict[int, NodeGroup] = {}

    @property
    def most(self) -> int:
        """Weight of the best node."""
        return self._kinds[0][0]

    def of(self, node: NodeView) -> int:
        """Weight of one node."""
        return self._values[self._places[node.name]]

    def above(self, least: int) -> NodeGroup:
        """Nodes that weigh more than `least`, the best first."""
        if least not in self._above:
            self._above[least] = NodeGroup(node for value, kind in self._kinds if value > least for node in kind.nodes)
        return self._above[least]


def matches(spec: objects.PodSpec, node: NodeView) -> bool:
    """Tell whether the pod's nodeSelector and required node affinity match the node."""
    return node_selectors.node_matches(spec, node.name, node.node.labels)


def weight(preferred: Iterable[objects.PreferredNodes], node: NodeView) -> int:
    """Sum of the weights of the preferences that match the node; an empty one matches none."""
    name, labels = node.name, node.node.labels
    return sum(one.weight for one in preferred if node_selectors.term_matches(one.preference, name, labels))


def node_affinity(spec: objects.PodSpec) -> objects.NodeAffinity:
    """The pod's node affinity, an empty one when it has none."""
    affinity = spec.affinity
    return (affinity.node_affinity if affinity else None) or _NO_AFFINITY


_NO_AFFINITY = objects.NodeAffinity()


def label_keys(required: objects.NodeSelector | None) -> Iterator[str]:
    """Labels that a selector asks for; the name of the node among them where a field selector does."""
    for term in (required.node_selector_terms if required else None) or ():
        yield from _term_keys(term)


def _term_keys(term: objects.NodeSelectorTerm) -> Iterator[str]:
    yield from (line.key for line in term.match_expressions or ())
    if term.match_fields:
        yield "metadata.name"
