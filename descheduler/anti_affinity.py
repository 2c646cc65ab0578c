"""Required pod anti-affinity, both ways: what the pod asks of others, and what others ask of it.

Upstream looks at the candidate's own terms and at pods of the one node only; a scheduler looks at the whole domain and
at everybody's terms, and so do we (docs/compatibility.md).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from descheduler import selectors
from descheduler.framework import PodView, View
from descheduler.room import Room
from koordlite.model import wire


def terms(pod: PodView) -> tuple[wire.PodAffinityTerm, ...]:
    """The required anti-affinity terms of a pod."""
    affinity = pod.object.spec.affinity
    anti = affinity.pod_anti_affinity if affinity else None
    return (anti.required or ()) if anti else ()


class Domains:
    """Which nodes share the value of a label; each label is indexed when it is first asked for."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._by_key: dict[str, dict[str, list[str]]] = {}
        self.guarded = tuple((pod, terms(pod)) for pod in view.pods() if terms(pod))
        """Pods that have terms of their own."""

    def of(self, node: str, key: str) -> tuple[str, ...]:
        """Nodes in the domain of `node`; empty when the node does not have the label."""
        value = self._view.nodes[node].node.labels.get(key)
        return () if value is None else tuple(self._index(key)[value])

    def _index(self, key: str) -> dict[str, list[str]]:
        if key not in self._by_key:
            index: dict[str, list[str]] = defaultdict(list)
            for name, node in self._view.nodes.items():
                if key in node.node.labels:
                    index[node.node.labels[key]].append(name)
            self._by_key[key] = index
        return self._by_key[key]

    def conflict(self, pod: PodView, node: str, rooms: Mapping[str, Room]) -> bool:
        """Would `pod` on `node` break somebody's required anti-affinity?"""
        own = any(
            self._selects(term, pod, other)
            for term in terms(pod)
            for other in self._others(pod, self.of(node, term.topology_key), rooms)
        )
        return own or any(self._objects(holder, held, pod, node, rooms) for holder, held in self.guarded)

    def _others(self, pod: PodView, names: Iterable[str], rooms: Mapping[str, Room]) -> Iterator[PodView]:
        return (other for name in names for other in rooms[name].pods if other.uid != pod.uid)

    def _objects(
        self,
        holder: PodView,
        held: tuple[wire.PodAffinityTerm, ...],
        pod: PodView,
        node: str,
        rooms: Mapping[str, Room],
    ) -> bool:
        """A pod that is still where the picture has it, with a term against `pod` in the domain of `node`."""
        if holder.uid == pod.uid or holder not in rooms[holder.node].residents:
            return False
        return any(self._selects(t, holder, pod) and holder.node in self.of(node, t.topology_key) for t in held)

    def _selects(self, term: wire.PodAffinityTerm, holder: PodView, other: PodView) -> bool:
        return self._namespace_counts(term, holder, other.pod.namespace) and selectors.labels_match(
            term.label_selector, other.pod.labels
        )

    def _namespace_counts(self, term: wire.PodAffinityTerm, holder: PodView, namespace: str) -> bool:
        if not term.namespaces and term.namespace_selector is None:
            return namespace == holder.pod.namespace
        listed = namespace in (term.namespaces or ())
        labels = self._view.namespaces.get(namespace, {})
        return listed or selectors.labels_match(term.namespace_selector, labels)
