"""Required pod affinity and anti-affinity: beside whom a pod has to be, and whom it must not be with. Both over whole
domains, kept up to date while a plan is made.

Source: kube-scheduler's InterPodAffinity filter. A pod counts when it matches all of the terms; where nobody does, the
first pod of a group may be anywhere, if it matches them itself. Upstream does not ask for affinity, and for
anti-affinity looks at the candidate's own terms and at pods of the one node only (docs/compatibility.md).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from typing import Generic, TypeVar

import msgspec

from descheduler.framework import PodView, View
from descheduler.picture.pods import SpecKey, TemplateKey, anti_affinity_terms
from koordlite.model import label_selectors
from koordlite.model.wire import objects

T = TypeVar("T")
RequiredDomains = list[tuple[str, frozenset[str] | None]]
"""Values of a node label where the pod may be, by label; None: any, as long as the node has the label."""


def terms(pod: PodView) -> tuple[objects.PodAffinityTerm, ...]:
    """The required affinity terms of a pod."""
    affinity = pod.object.spec.affinity
    together = affinity.pod_affinity if affinity else None
    return (together.required or ()) if together else ()


def refusal(key: str, value: str | None, domains: frozenset[str] | None) -> str:
    """Refusal of nodes with this value of the label `key`, None without it, where the pod may be in `domains`; empty
    when there is none."""
    is_open = value is not None and (domains is None or value in domains)
    return "" if is_open else f"no pod that its required affinity asks for is there, by {key}"


class PodAffinity:
    """The pods that others have to be with, and their nodes."""

    def __init__(self, view: View, matching_pods: MatchingPods) -> None:
        self._view = view
        self._matching_pods = matching_pods
        self._near: dict[SpecKey, list[_Near]] = {}
        """The pods that each term selects, by what pods with these terms share."""

    def required_domains(self, pod: PodView) -> RequiredDomains:
        """The domains that the pod's own terms allow. The pod itself is leaving, so it does not count."""
        own_terms = terms(pod)
        near = self._near.get(pod.template.spec)
        if near is None:
            near = self._near[pod.template.spec] = [self._matching_pods.near(pod, term) for term in own_terms]
        # Pods that all terms select; of one term its domains have no others.
        partners = set.intersection(*[one.uids for one in near]) if len(near) > 1 else None
        required = []
        for term, one in zip(own_terms, near, strict=True):
            partners_by_value = [(value, uids - {pod.uid}) for value, uids in one.up_to_date().items()]
            values = [value for value, uids in partners_by_value if (uids if partners is None else uids & partners)]
            required.append((term.topology_key, frozenset(values)))
        if any(values for _, values in required) or not self._selects_itself(pod, own_terms):
            return list(required)
        return [(key, None) for key, _ in required]

    def _selects_itself(self, pod: PodView, own_terms: Iterable[objects.PodAffinityTerm]) -> bool:
        own = pod.pod.namespace
        return all(
            namespace_counts(term, own, own, self._view.namespaces)
            and label_selectors.labels_match(term.label_selector, pod.pod.labels)
            for term in own_terms
        )


TOGETHER = "pod matches inter-pod anti-affinity rule of other pod on node"


class Elsewhere(msgspec.Struct, frozen=True):
    """Values of a node label where someone but the pod itself is."""

    holders: Mapping[str, Collection[str]]
    """uids by value."""
    uid: str

    def __contains__(self, value: str | None) -> bool:
        """Tell whether another pod is there. None: nodes without the label."""
        uids = self.holders.get(value) if value is not None else None
        if not uids:
            return False
        return len(uids) > 1 or self.uid not in uids


Blocked = list[tuple[str, Elsewhere]]
"""Values of a node label where the pod may not be, by label."""


class _Term(msgspec.Struct):
    """An anti-affinity term, and where the pods are that have it."""

    term: objects.PodAffinityTerm
    namespace: str
    """Namespace of the pods that have it."""
    holders: dict[str, set[str]] = msgspec.field(default_factory=lambda: defaultdict(set))
    """uids by value of the topology label."""


class PodAntiAffinity:
    """The pods that may not share a domain."""

    def __init__(self, view: View, matching_pods: MatchingPods) -> None:
        self._view = view
        self._matching_pods = matching_pods
        self._terms: dict[Hashable, _Term] = {}
        self._by_selector: _BySelector[_Term] = _BySelector()
        self._of_templates: dict[TemplateKey, tuple[list[_Term], list[tuple[str, _Near]]]] = {}
        """The terms that select pods of a template, and the pods that its own terms select, by topology label."""
        for group in view.groups:
            for term in anti_affinity_terms(group.first):
                self._hold(self._term(term, group.namespace), [(pod.uid, pod.node) for pod in group.pods])

    def blocked(self, pod: PodView) -> Blocked:
        """The domains that the pod's own terms, and those of others, forbid."""
        rules = self._of_templates.get(pod.template)
        if rules is None:
            other, namespaces = pod.pod.namespace, self._view.namespaces
            selecting = self._by_selector.selecting(pod.pod.labels)
            against = [one for one in selecting if namespace_counts(one.term, one.namespace, other, namespaces)]
            own = [(term.topology_key, self._matching_pods.near(pod, term)) for term in anti_affinity_terms(pod)]
            rules = self._of_templates[pod.template] = against, own
        uid = pod.pod.uid
        by_others = [(one.term.topology_key, Elsewhere(one.holders, uid)) for one in rules[0]]
        return by_others + [(key, Elsewhere(near.up_to_date(), uid)) for key, near in rules[1]]

    def remove(self, pod: PodView, node: str) -> None:
        """Note that `pod` is no more on `node`."""
        for term in anti_affinity_terms(pod):
            # Terms of a pod that has ended are nobody's business: unless others have them, they were never looked at.
            one = self._terms.get(_key(term, pod.pod.namespace))
            if one:
                one.holders[self._matching_pods.values(term.topology_key).get(node, "")].discard(pod.uid)

    def add(self, pod: PodView, node: str) -> None:
        """Note that a pod like `pod` is expected on `node`."""
        for term in anti_affinity_terms(pod):
            self._hold(self._term(term, pod.pod.namespace), [(pod.uid, node)])

    def _term(self, term: objects.PodAffinityTerm, namespace: str) -> _Term:
        key = _key(term, namespace)
        if key not in self._terms:
            one = self._terms[key] = _Term(term, namespace)
            self._by_selector.add(term.label_selector, one)
            self._of_templates.clear()
        return self._terms[key]

    def _hold(self, one: _Term, pods: Iterable[tuple[str, str]]) -> None:
        """`pods`: uid and node."""
        values = self._matching_pods.values(one.term.topology_key)
        for uid, node in pods:
            value = values.get(node)
            if value is not None:
                one.holders[value].add(uid)


class _Near:
    """uids of selected pods by value of a label of their nodes, brought up to date when they are asked for."""

    def __init__(self, selected: list[Selected], values: Mapping[str, str]) -> None:
        """`values`: value of the label by node."""
        self._values = values
        self._holders: dict[str, set[str]] = defaultdict(set)
        self._counts = [(one, len(one.moves)) for one in selected]
        """Numbers of their moves that are in `_holders`."""
        for uid, node in (item for one in selected for item in one.where.items()):
            self._come(uid, node)

    @property
    def uids(self) -> set[str]:
        """All of them, also on nodes without the label."""
        return {uid for one, _ in self._counts for uid in one.where}

    def up_to_date(self) -> Mapping[str, set[str]]:
        """uids by value."""
        for one, count in self._counts:
            for uid, source, target in one.moves[count:]:
                self._holders[self._values.get(source, "")].discard(uid)
                self._come(uid, target)
        self._counts = [(one, len(one.moves)) for one, _ in self._counts]
        return self._holders

    def _come(self, uid: str, node: str) -> None:
        value = self._values.get(node)
        if value is not None:
            self._holders[value].add(uid)


def namespace_counts(
    term: objects.PodAffinityTerm, own: str, other: str, namespaces: Mapping[str, Mapping[str, str]]
) -> bool:
    """Tell whether a term of a pod in namespace `own` speaks of pods in namespace `other`."""
    if not term.namespaces and term.namespace_selector is None:
        return own == other
    listed = other in (term.namespaces or ())
    return listed or label_selectors.labels_match(term.namespace_selector, namespaces.get(other, {}))


def namespaces_of(
    term: objects.PodAffinityTerm, own: str, present: Iterable[str], namespaces: Mapping[str, Mapping[str, str]]
) -> list[str]:
    """Namespaces of `present` that a term of a pod in namespace `own` speaks of; `own` alone where it names
    none."""
    if not term.namespaces and term.namespace_selector is None:
        return [own]
    return [name for name in present if namespace_counts(term, own, name, namespaces)]


def _key(term: objects.PodAffinityTerm, namespace: str) -> Hashable:
    return (
        term.topology_key,
        label_selectors.key(term.label_selector),
        namespace if not term.namespaces and term.namespace_selector is None else "",
        term.namespaces,
        label_selectors.key(term.namespace_selector),
    )


class _BySelector(Generic[T]):
    """Items by the label selectors that they stand for: few of them are tried on the labels of a pod."""

    def __init__(self) -> None:
        self._by_label: dict[tuple[str, str], list[tuple[objects.LabelSelector | None, T]]] = defaultdict(list)
        """Terms under the label of their selector that fewest others ask for."""
        self._unlabelled: list[tuple[objects.LabelSelector | None, T]] = []

    def add(self, selector: objects.LabelSelector | None, item: T) -> None:
        """Add an item."""
        labels = ((selector.match_labels if selector else None) or {}).items()
        rarest = min(labels, key=lambda label: len(self._by_label.get(label, ())), default=None)
        (self._by_label[rarest] if rarest else self._unlabelled).append((selector, item))

    def selecting(self, labels: Mapping[str, str]) -> Iterator[T]:
        """The items whose selectors select these labels."""
        likely = [entry for label in labels.items() for entry in self._by_label.get(label, ())]
        for selector, item in likely + self._unlabelled:
            if label_selectors.labels_match(selector, labels):
                yield item


class Selected(msgspec.Struct):
    """Pods of one namespace that one selector selects."""

    selector: objects.LabelSelector | None
    where: dict[str, str]
    """Node by uid."""
    moves: list[tuple[str, str, str]] = msgspec.field(default_factory=list)
    """uid, and the node it leaves and that it comes to; an empty name is nowhere."""

    def move(self, uid: str, node: str) -> None:
        """Note that the pod is expected on `node`."""
        self.moves.append((uid, self.where.get(uid, ""), node))
        if node:
            self.where[uid] = node
        else:
            self.where.pop(uid, None)


class MatchingPods:
    """Every pod that has not ended, by namespace; indexed when someone first asks."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._selected: dict[str, dict[Hashable, Selected]] = defaultdict(dict)
        self._by_selector: dict[str, _BySelector[Selected]] = defaultdict(_BySelector)
        self._near: dict[Hashable, _Near] = {}
        self._values: dict[str, Mapping[str, str]] = {}
        self._moves: dict[str, dict[str, tuple[PodView, str]]] = defaultdict(dict)
        """Pod and node by uid, by namespace."""

    def selected(self, namespace: str, selector: objects.LabelSelector | None) -> Selected:
        """The pods of a namespace that `selector` selects, as the plan has left them."""
        by_selector, key = self._selected[namespace], label_selectors.key(selector)
        if key not in by_selector:
            index = self._view.indices.get(namespace)
            pods = index.select(selector) if index else ()
            selected = by_selector[key] = Selected(selector, {pod.pod.uid: pod.node for pod in pods})
            self._by_selector[namespace].add(selector, selected)
            for pod, node in self._moves[namespace].values():
                if label_selectors.labels_match(selector, pod.pod.labels):
                    selected.move(pod.uid, node)
        return by_selector[key]

    def near(self, pod: PodView, term: objects.PodAffinityTerm) -> _Near:
        """The pods that this term of the pod selects, by its topology label."""
        key = _key(term, pod.pod.namespace)
        if key not in self._near:
            names = namespaces_of(term, pod.pod.namespace, self._view.indices.keys(), self._view.namespaces)
            selected = [self.selected(name, term.label_selector) for name in names]
            self._near[key] = _Near(selected, self.values(term.topology_key))
        return self._near[key]

    def values(self, key: str) -> Mapping[str, str]:
        """Value of a label by node; a node without it is missing."""
        if key not in self._values:
            labels = ((node.name, node.node.labels) for node in self._view.nodes.values())
            self._values[key] = {name: one[key] for name, one in labels if key in one}
        return self._values[key]

    def node_of(self, pod: PodView) -> str:
        """The node that the pod is on, or is expected on; empty when none."""
        move = self._moves[pod.pod.namespace].get(pod.uid)
        return move[1] if move else pod.node

    def move(self, pod: PodView, node: str) -> None:
        """Note that `pod` is expected on `node`; an empty name is nowhere."""
        namespace, uid = pod.pod.namespace, pod.uid
        self._moves[namespace][uid] = (pod, node)
        for selected in self._by_selector[namespace].selecting(pod.pod.labels):
            selected.move(uid, node)


class DomainCounts:
    """The number of selected pods in each domain, brought up to date with what moved since it was last asked."""

    def __init__(self, selected: Selected, domains: Mapping[str, str]) -> None:
        """`domains`: domain by node, of the nodes that count."""
        self._selected, self._domains = selected, domains
        self._count = len(selected.moves)
        """Number of the moves that are in the counts."""
        self._by_domain = Counter(dict.fromkeys(domains.values(), 0))
        self._by_domain.update([domains[node] for node in selected.where.values() if node in domains])
        self._sizes = Counter(self._by_domain.values())
        """Number of domains by their number of pods."""

    def up_to_date(self) -> Mapping[str, int]:
        """Pods by domain."""
        for _, source, target in self._selected.moves[self._count :]:
            self._change(source, -1)
            self._change(target, 1)
        self._count = len(self._selected.moves)
        return self._by_domain

    @property
    def least(self) -> int:
        """Number in the emptiest domain; 0 when there is none. As of `up_to_date`."""
        return min(self._sizes, default=0)

    def _change(self, node: str, by: int) -> None:
        domain = self._domains.get(node)
        if domain is None:
            return
        size = self._by_domain[domain]
        self._sizes[size] -= 1
        if not self._sizes[size]:
            del self._sizes[size]
        self._by_domain[domain] = size + by
        self._sizes[size + by] += 1
