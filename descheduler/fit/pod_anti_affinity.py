"""Required pod anti-affinity, both ways and over whole domains, kept up to date while a plan is made.

Upstream looks at the candidate's own terms and at pods of the one node only; a scheduler looks at the whole domain and
at everybody's terms, and so do we (docs/compatibility.md).
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping

from descheduler.fit.matching_pods import MatchingPods
from descheduler.framework import PodView, View
from descheduler.picture.pods import TemplateKey, anti_affinity_terms
from koordlite.model import label_selectors
from koordlite.model.wire import objects

Blocked = list[tuple[str, frozenset[str]]]
"""Values of a node label where the pod may not be, by label."""


@dataclasses.dataclass
class _Held:
    """One term, and where the pods are that have it."""

    term: objects.PodAffinityTerm
    namespace: str
    """Of the pods that have it."""
    holders: dict[str, set[str]] = dataclasses.field(default_factory=lambda: defaultdict(set))
    """uids by value of the topology label."""


class PodAntiAffinity:
    """Which pods may not share a domain."""

    def __init__(self, view: View, matching_pods: MatchingPods) -> None:
        self._view = view
        self._matching_pods = matching_pods
        self._labelled: dict[str, Mapping[str, str]] = {}
        self._held: dict[Hashable, _Held] = {}
        self._by_label: dict[tuple[str, str], list[_Held]] = defaultdict(list)
        self._unlabelled: list[_Held] = []
        self._against: dict[Hashable, tuple[_Held, ...]] = {}
        self._by_template: dict[tuple[TemplateKey, int], tuple[tuple[int, ...], Mapping[str, set[str]]]] = {}
        """Where the pods are that a term selects, with the versions of the selections it was made of, by template and
        number of the term."""
        for template in view.templates:
            for term in anti_affinity_terms(template.first):
                held = self._held_for(term, template.namespace)
                for pod in template.pods:
                    self._hold(held, pod, pod.node)

    def concerned(self, pod: PodView) -> bool:
        """Has the pod terms of its own, or someone one against it?"""
        return bool(anti_affinity_terms(pod)) or bool(self._rules_against(pod))

    def blocked(self, pod: PodView) -> Blocked:
        """Where the pod may not be, by its own terms and by those of others."""
        return [*self._by_others(pod), *self._by_itself(pod)]

    def left(self, pod: PodView, node: str) -> None:
        """Note that `pod` is no more on `node`."""
        for term in anti_affinity_terms(pod):
            # Terms of a pod that has ended are nobody's business: unless others have them, they were never looked at.
            held = self._held.get(_key(term, pod.pod.namespace))
            if held:
                held.holders[self._value(node, term.topology_key) or ""].discard(pod.uid)

    def came(self, pod: PodView, node: str) -> None:
        """Note that a pod like `pod` is expected on `node`."""
        for term in anti_affinity_terms(pod):
            self._hold(self._held_for(term, pod.pod.namespace), pod, node)

    def _held_for(self, term: objects.PodAffinityTerm, namespace: str) -> _Held:
        key = _key(term, namespace)
        held = self._held.get(key)
        if held is None:
            held = self._held[key] = _Held(term, namespace)
            self._file(held)
        return held

    def _hold(self, held: _Held, pod: PodView, node: str) -> None:
        value = self._value(node, held.term.topology_key)
        if value is not None:
            held.holders[value].add(pod.uid)

    def _file(self, held: _Held) -> None:
        """Under one label it asks for, so that few terms are looked at for a pod."""
        selector = held.term.label_selector
        wanted = next(iter((selector.match_labels or {}).items()), None) if selector else None
        if wanted:
            self._by_label[wanted].append(held)
        else:
            self._unlabelled.append(held)

    def _value(self, node: str, key: str) -> str | None:
        return self._values(key).get(node)

    def _values(self, key: str) -> Mapping[str, str]:
        """Value of a label by node; a node without it is missing."""
        known = self._labelled.get(key)
        if known is None:
            labels = ((node.name, node.node.labels) for node in self._view.nodes.values())
            known = self._labelled[key] = {name: one[key] for name, one in labels if key in one}
        return known

    def _rules_against(self, pod: PodView) -> tuple[_Held, ...]:
        labels = pod.pod.labels
        key = (pod.pod.namespace, tuple(sorted(labels.items())))
        if key not in self._against:
            near = [held for item in labels.items() for held in self._by_label.get(item, ())]
            found = (held for held in (*near, *self._unlabelled) if self._selects(held, pod))
            self._against[key] = tuple(found)
        return self._against[key]

    def _selects(self, held: _Held, pod: PodView) -> bool:
        inside = namespace_counts(held.term, held.namespace, pod.pod.namespace, self._view.namespaces)
        return inside and label_selectors.labels_match(held.term.label_selector, pod.pod.labels)

    def _by_others(self, pod: PodView) -> Iterator[tuple[str, frozenset[str]]]:
        for held in self._rules_against(pod):
            yield held.term.topology_key, _elsewhere(held.holders.items(), pod.uid)

    def _by_itself(self, pod: PodView) -> Iterator[tuple[str, frozenset[str]]]:
        for number, term in enumerate(anti_affinity_terms(pod)):
            yield term.topology_key, _elsewhere(self._holders_by_value(pod, number, term).items(), pod.uid)

    def _holders_by_value(self, pod: PodView, number: int, term: objects.PodAffinityTerm) -> Mapping[str, set[str]]:
        """uids of the pods that this term of the pod selects, by value of its topology label."""
        own, key = pod.pod.namespace, (pod.template, number)
        selected = [self._matching_pods.selected(name, term.label_selector) for name in self._namespaces(term, own)]
        versions = tuple([one.version for one in selected])
        known = self._by_template.get(key)
        if known is None or known[0] != versions:
            found: dict[str, set[str]] = defaultdict(set)
            values = self._values(term.topology_key)
            for uid, node in (item for one in selected for item in one.where.items()):
                value = values.get(node)
                if value is not None:
                    found[value].add(uid)
            known = self._by_template[key] = versions, found
        return known[1]

    def _namespaces(self, term: objects.PodAffinityTerm, own: str) -> Iterable[str]:
        if not term.namespaces and term.namespace_selector is None:
            return (own,)
        return [n for n in self._matching_pods.namespaces if namespace_counts(term, own, n, self._view.namespaces)]


def _elsewhere(holders: Iterable[tuple[str, set[str]]], uid: str) -> frozenset[str]:
    """Values where someone but the pod itself is."""
    return frozenset(value for value, uids in holders if len(uids) > (uid in uids))


def namespace_counts(
    term: objects.PodAffinityTerm, own: str, other: str, namespaces: Mapping[str, Mapping[str, str]]
) -> bool:
    """Does a term of a pod in namespace `own` speak of pods in namespace `other`?"""
    if not term.namespaces and term.namespace_selector is None:
        return own == other
    listed = other in (term.namespaces or ())
    return listed or label_selectors.labels_match(term.namespace_selector, namespaces.get(other, {}))


def _key(term: objects.PodAffinityTerm, namespace: str) -> Hashable:
    return (
        term.topology_key,
        label_selectors.key(term.label_selector),
        namespace if not term.namespaces and term.namespace_selector is None else "",
        term.namespaces,
        label_selectors.key(term.namespace_selector),
    )
