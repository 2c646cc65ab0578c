"""Required pod affinity and anti-affinity: beside whom a pod has to be, and whom it must not be with. Both over whole
domains, kept up to date while a plan is made.

Source: kube-scheduler's InterPodAffinity filter. A pod counts when it matches all of the terms; where nobody does, the
first pod of a group may be anywhere, if it matches them itself. Upstream does not ask for affinity, and for
anti-affinity looks at the candidate's own terms and at pods of the one node only (docs/compatibility.md).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping

import msgspec

from descheduler.framework import PodView, View
from descheduler.picture.pods import SpecKey, anti_affinity_terms
from koordlite.model import label_selectors
from koordlite.model.wire import objects

Wanted = list[tuple[str, frozenset[str] | None]]
"""Values of a node label where the pod may be, by label; None: any, as long as the node has the label."""


def terms(pod: PodView) -> tuple[objects.PodAffinityTerm, ...]:
    """The required affinity terms of a pod."""
    affinity = pod.object.spec.affinity
    together = affinity.pod_affinity if affinity else None
    return (together.required or ()) if together else ()


def met(value: str | None, wanted: frozenset[str] | None) -> bool:
    """Tell whether the pod may be on a node with this value of the label. None: it has no such label."""
    return value is not None and (wanted is None or value in wanted)


def alone(key: str) -> str:
    """Refusal of a node where nobody is whom the pod has to be with."""
    return f"no pod that its required affinity asks for is there, by {key}"


class PodAffinity:
    """The pods that others have to be with, and their nodes."""

    def __init__(self, view: View, matching_pods: MatchingPods) -> None:
        self._view = view
        self._matching_pods = matching_pods
        self._by_template: dict[SpecKey, tuple[tuple[int, ...], list[Mapping[str, set[str]]]]] = {}
        """uids by value of each term's label, with the versions of the selections they were made of, by template."""

    def wanted(self, pod: PodView) -> Wanted:
        """The domains that the pod's own terms allow. The pod itself is leaving, so it does not count."""
        asked = terms(pod)
        if not asked:
            return []
        found = [
            (term.topology_key, frozenset(value for value, uids in held.items() if uids - {pod.uid}))
            for term, held in zip(asked, self._holders_by_value(pod, asked), strict=True)
        ]
        if any(values for _, values in found) or not self._selects_itself(pod, asked):
            return list(found)
        return [(key, None) for key, _ in found]

    def _selects_itself(self, pod: PodView, asked: Iterable[objects.PodAffinityTerm]) -> bool:
        own = pod.pod.namespace
        return all(
            namespace_counts(term, own, own, self._view.namespaces)
            and label_selectors.labels_match(term.label_selector, pod.pod.labels)
            for term in asked
        )

    def _holders_by_value(
        self, pod: PodView, asked: tuple[objects.PodAffinityTerm, ...]
    ) -> list[Mapping[str, set[str]]]:
        """For each of the pod's terms the uids of pods that all terms select, by value of its label."""
        own = pod.pod.namespace
        present, labels = self._matching_pods.namespaces, self._view.namespaces
        names = [sorted(reached(term, own, present, labels)) for term in asked]
        selected = [
            [self._matching_pods.selected(name, term.label_selector) for name in several]
            for term, several in zip(asked, names, strict=True)
        ]
        versions = tuple([len(one.moves) for several in selected for one in several])
        known = self._by_template.get(pod.template.spec)
        if known is None or known[0] != versions:
            where = [{uid: node for one in several for uid, node in one.where.items()} for several in selected]
            common = set(where[0]).intersection(*where[1:])
            held = [self._by_value(term.topology_key, {uid: where[0][uid] for uid in common}) for term in asked]
            known = self._by_template[pod.template.spec] = versions, held
        return known[1]

    def _by_value(self, key: str, where: Mapping[str, str]) -> Mapping[str, set[str]]:
        found: dict[str, set[str]] = defaultdict(set)
        for uid, node in where.items():
            view = self._view.nodes.get(node)
            if view is not None and key in view.node.labels:
                found[view.node.labels[key]].add(uid)
        return found


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


class _Held(msgspec.Struct):
    """One term, and where the pods are that have it."""

    term: objects.PodAffinityTerm
    namespace: str
    """Of the pods that have it."""
    holders: dict[str, set[str]] = msgspec.field(default_factory=lambda: defaultdict(set))
    """uids by value of the topology label."""


class PodAntiAffinity:
    """The pods that may not share a domain."""

    def __init__(self, view: View, matching_pods: MatchingPods) -> None:
        self._view = view
        self._matching_pods = matching_pods
        self._labelled: dict[str, Mapping[str, str]] = {}
        self._held: dict[Hashable, _Held] = {}
        self._by_label: dict[tuple[str, str], list[_Held]] = defaultdict(list)
        self._unlabelled: list[_Held] = []
        self._near: dict[Hashable, _Near] = {}
        """The pods that a term selects."""
        for group in view.groups:
            for term in anti_affinity_terms(group.first):
                self._hold(self._held_for(term, group.namespace), [(pod.uid, pod.node) for pod in group.pods])

    def blocked(self, pod: PodView) -> Blocked:
        """The domains that the pod's own terms, and those of others, forbid."""
        near = [held for item in pod.pod.labels.items() for held in self._by_label.get(item, ())]
        against = [held for held in near + self._unlabelled if self._selects(held, pod)]
        by_others = [(held.term.topology_key, Elsewhere(held.holders, pod.pod.uid)) for held in against]
        return by_others + [
            (term.topology_key, Elsewhere(self._selected_by(pod, number, term).up_to_date(), pod.pod.uid))
            for number, term in enumerate(anti_affinity_terms(pod))
        ]

    def left(self, pod: PodView, node: str) -> None:
        """Note that `pod` is no more on `node`."""
        for term in anti_affinity_terms(pod):
            # Terms of a pod that has ended are nobody's business: unless others have them, they were never looked at.
            held = self._held.get(_key(term, pod.pod.namespace))
            if held:
                held.holders[self._values(term.topology_key).get(node, "")].discard(pod.uid)

    def came(self, pod: PodView, node: str) -> None:
        """Note that a pod like `pod` is expected on `node`."""
        for term in anti_affinity_terms(pod):
            self._hold(self._held_for(term, pod.pod.namespace), [(pod.uid, node)])

    def _held_for(self, term: objects.PodAffinityTerm, namespace: str) -> _Held:
        key = _key(term, namespace)
        held = self._held.get(key)
        if held is None:
            held = self._held[key] = _Held(term, namespace)
            # Under the label it asks for that fewest others ask for, so that few terms are looked at for a pod.
            selector = term.label_selector
            labels = (selector.match_labels or {}).items() if selector else ()
            wanted = min(labels, key=lambda item: len(self._by_label.get(item, ())), default=None)
            if wanted:
                self._by_label[wanted].append(held)
            else:
                self._unlabelled.append(held)
        return held

    def _hold(self, held: _Held, pods: Iterable[tuple[str, str]]) -> None:
        """`pods`: uid and node."""
        values = self._values(held.term.topology_key)
        for uid, node in pods:
            value = values.get(node)
            if value is not None:
                held.holders[value].add(uid)

    def _values(self, key: str) -> Mapping[str, str]:
        """Value of a label by node; a node without it is missing."""
        known = self._labelled.get(key)
        if known is None:
            labels = ((node.name, node.node.labels) for node in self._view.nodes.values())
            known = self._labelled[key] = {name: one[key] for name, one in labels if key in one}
        return known

    def _selects(self, held: _Held, pod: PodView) -> bool:
        inside = namespace_counts(held.term, held.namespace, pod.pod.namespace, self._view.namespaces)
        return inside and label_selectors.labels_match(held.term.label_selector, pod.pod.labels)

    def _selected_by(self, pod: PodView, number: int, term: objects.PodAffinityTerm) -> _Near:
        """The pods that this term of the pod selects."""
        key = (pod.template.spec, number)
        if key not in self._near:
            present, labels = self._matching_pods.namespaces, self._view.namespaces
            names = reached(term, pod.pod.namespace, present, labels)
            selected = [self._matching_pods.selected(name, term.label_selector) for name in names]
            self._near[key] = _Near(selected, self._values(term.topology_key))
        return self._near[key]


class _Near:
    """uids of selected pods by value of a label of their nodes, brought up to date when they are asked for."""

    def __init__(self, selected: list[Selected], values: Mapping[str, str]) -> None:
        """`values`: value of the label by node."""
        self._values = values
        self._holders: dict[str, set[str]] = defaultdict(set)
        self._seen = [(one, len(one.moves)) for one in selected]
        for uid, node in (item for one in selected for item in one.where.items()):
            self._come(uid, node)

    def up_to_date(self) -> Mapping[str, set[str]]:
        """uids by value."""
        for one, seen in self._seen:
            for uid, left, came in one.moves[seen:]:
                self._holders[self._values.get(left, "")].discard(uid)
                self._come(uid, came)
        self._seen = [(one, len(one.moves)) for one, _ in self._seen]
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


def reached(
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


class Selected(msgspec.Struct):
    """Pods of one namespace that one selector selects."""

    selector: objects.LabelSelector | None
    where: dict[str, str]
    """Node by uid."""
    moves: list[tuple[str, str, str]] = msgspec.field(default_factory=list)
    """uid, and the node it leaves and that it comes to; an empty name is nowhere."""


class MatchingPods:
    """Every pod that has not ended, by namespace; indexed when someone first asks."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._selected: dict[str, dict[Hashable, Selected]] = defaultdict(dict)
        self._by_label: dict[tuple[str, str, str], list[Selected]] = defaultdict(list)
        """By namespace and the label a selector asks for that fewest others ask for: few are asked when a pod moves."""
        self._unlabelled: dict[str, list[Selected]] = defaultdict(list)
        self._moved: dict[str, dict[str, tuple[PodView, str]]] = defaultdict(dict)
        """Pod and node by uid, by namespace."""

    @property
    def namespaces(self) -> Collection[str]:
        """Namespaces that have pods."""
        return self._view.indices.keys()

    def selected(self, namespace: str, selector: objects.LabelSelector | None) -> Selected:
        """The pods of a namespace that `selector` selects, as the plan has left them."""
        known, key = self._selected[namespace], label_selectors.key(selector)
        if key not in known:
            index = self._view.indices.get(namespace)
            pods = index.select(selector) if index else ()
            selected = known[key] = Selected(selector, {pod.pod.uid: pod.node for pod in pods})
            labels = [(namespace, *label) for label in ((selector.match_labels if selector else None) or {}).items()]
            rarest = min(labels, key=lambda label: len(self._by_label.get(label, ())), default=None)
            (self._by_label[rarest] if rarest else self._unlabelled[namespace]).append(selected)
            for pod, node in self._moved[namespace].values():
                _place(selected, pod, node)
        return known[key]

    def node_of(self, pod: PodView) -> str:
        """Where the pod is, or is expected; empty when nowhere."""
        known = self._moved[pod.pod.namespace].get(pod.uid)
        return known[1] if known else pod.node

    def move(self, pod: PodView, node: str) -> None:
        """Note that `pod` is expected on `node`; an empty name is nowhere."""
        namespace = pod.pod.namespace
        self._moved[namespace][pod.uid] = (pod, node)
        concerned = [one for label in pod.pod.labels.items() for one in self._by_label.get((namespace, *label), ())]
        for selected in (*concerned, *self._unlabelled[namespace]):
            _place(selected, pod, node)


def _place(selected: Selected, pod: PodView, node: str) -> None:
    if not label_selectors.labels_match(selected.selector, pod.pod.labels):
        return
    selected.moves.append((pod.uid, selected.where.get(pod.uid, ""), node))
    if node:
        selected.where[pod.uid] = node
    else:
        selected.where.pop(pod.uid, None)


class DomainCounts:
    """The number of selected pods in each domain, brought up to date with what moved since it was last asked."""

    def __init__(self, selected: Selected, domains: Mapping[str, str]) -> None:
        """`domains`: domain by node, of the nodes that count."""
        self._selected, self._domains = selected, domains
        self._seen = len(selected.moves)
        self._by_domain = Counter(dict.fromkeys(domains.values(), 0))
        self._by_domain.update([domains[node] for node in selected.where.values() if node in domains])
        self._sizes = Counter(self._by_domain.values())
        """How many domains have so many pods."""

    def up_to_date(self) -> Mapping[str, int]:
        """Pods by domain."""
        for _, left, came in self._selected.moves[self._seen :]:
            self._change(left, -1)
            self._change(came, 1)
        self._seen = len(self._selected.moves)
        return self._by_domain

    @property
    def least(self) -> int:
        """In the emptiest domain; 0 when there is none. As of `up_to_date`."""
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
