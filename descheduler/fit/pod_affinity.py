"""Required pod affinity: beside whom a pod has to be, kept up to date while a plan is made.

Source: kube-scheduler's InterPodAffinity filter. A pod counts when it matches all of the terms; where nobody does, the
first pod of a group may be anywhere, if it matches them itself. Upstream does not ask for this (docs/compatibility.md).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from descheduler.fit.matching_pods import MatchingPods, Selected
from descheduler.fit.pod_anti_affinity import namespace_counts
from descheduler.framework import PodView, View
from descheduler.picture.pods import SpecKey
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
    """Is a node with this value of the label where the pod may be? None: it has no such label."""
    return value is not None and (wanted is None or value in wanted)


def refusal(key: str) -> str:
    """What a node says where nobody is whom the pod has to be with."""
    return f"no pod that its required affinity asks for is there, by {key}"


class PodAffinity:
    """Where the pods are that others have to be with."""

    def __init__(self, view: View, matching_pods: MatchingPods) -> None:
        self._view = view
        self._matching_pods = matching_pods
        self._by_template: dict[SpecKey, tuple[tuple[int, ...], list[Mapping[str, set[str]]]]] = {}
        """uids by value of each term's label, with the versions of the selections they were made of, by template."""

    def wanted(self, pod: PodView) -> Wanted:
        """Where the pod may be by its own terms. The pod itself is leaving, so it does not count."""
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
        selected = [list(self._selected(term, own)) for term in asked]
        versions = tuple([len(one.moves) for several in selected for one in several])
        known = self._by_template.get(pod.template.spec)
        if known is None or known[0] != versions:
            where = [{uid: node for one in several for uid, node in one.where.items()} for several in selected]
            common = set(where[0]).intersection(*where[1:])
            held = [self._by_value(term.topology_key, {uid: where[0][uid] for uid in common}) for term in asked]
            known = self._by_template[pod.template.spec] = versions, held
        return known[1]

    def _selected(self, term: objects.PodAffinityTerm, own: str) -> Iterator[Selected]:
        only_own = not term.namespaces and term.namespace_selector is None
        for name in (own,) if only_own else sorted(self._matching_pods.namespaces):
            if namespace_counts(term, own, name, self._view.namespaces):
                yield self._matching_pods.selected(name, term.label_selector)

    def _by_value(self, key: str, where: Mapping[str, str]) -> Mapping[str, set[str]]:
        found: dict[str, set[str]] = defaultdict(set)
        for uid, node in where.items():
            view = self._view.nodes.get(node)
            if view is not None and key in view.node.labels:
                found[view.node.labels[key]].add(uid)
        return found
