"""Pods must not be together with pods that their required anti-affinity keeps away.

The scheduler keeps them apart when it places them; a label that changes later brings them together. Only the pod that
says so goes: its counterpart has asked for nothing. Source: upstream RemovePodsViolatingInterPodAntiAffinity.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping

import msgspec

from descheduler.arguments.common import ANY_NAMESPACE, LabelSelector, Namespaces
from descheduler.fit.pod_affinity import namespaces_of
from descheduler.framework import Conversation, Finding, Handle, NodeView, PodView, View
from descheduler.picture.node_index import fingerprint
from descheduler.picture.pods import SpecKey, anti_affinity_terms, least_important_first
from descheduler.picture.templates import LabelIndex, SpecGroup, pods_of
from descheduler.rules.pod_filter import indices, select_groups
from koordlite.model import label_selectors
from koordlite.model.wire import objects

NAME = "RemovePodsViolatingInterPodAntiAffinity"
POINT = "deschedule"
READS = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """Arguments of `RemovePodsViolatingInterPodAntiAffinity`."""

    namespaces: Namespaces = ANY_NAMESPACE
    """Namespaces whose pods are judged, and serve as counterparts; empty: all."""
    label_selector: LabelSelector | None = None
    """Only pods that match are judged, and looked for as counterparts; null: all."""


def judge(view: View, config: Config, handle: Handle) -> Conversation:
    """A finding for each pod that is with one it must not be with, the least important of each node first."""
    present = select_groups(view, handle.nodes, config.namespaces, config.label_selector)
    conflicts = Conflicts(handle.nodes, indices(view, present), view.namespaces)
    declaring = pods_of(group for group in present if anti_affinity_terms(group.first) and conflicts.possible(group))
    for _, pods in itertools.groupby(declaring, key=lambda pod: pod.node):
        for pod in sorted(pods, key=least_important_first):
            conflict = conflicts.of(pod)
            verdict = (yield _finding(pod, conflict)) if conflict else None
            if verdict and verdict.evicted:
                conflicts.remove(pod)


def numbers(pod: PodView, view: View, config: Config, handle: Handle) -> str:
    """Number of its terms, and the pod that breaks one."""
    terms = anti_affinity_terms(pod)
    if not terms:
        return "it requires no distance from other pods"
    present = select_groups(view, handle.nodes, config.namespaces, config.label_selector)
    conflict = Conflicts(handle.nodes, indices(view, present), view.namespaces).of(pod)
    count = f"{len(terms)} term{'s' if len(terms) > 1 else ''} of its anti-affinity"
    return f"{count}, against which {conflict.other.key} is" if conflict else f"{count}, no pod is against them"


def _finding(pod: PodView, conflict: Conflict) -> Finding:
    term, other = conflict.term, conflict.other
    where = f"on the same node {pod.node}" if other.node == pod.node else f"on {other.node}, which shares it"
    evidence: dict[str, int | float | str] = {
        "topologyKey": term.topology_key,
        "counterpart": other.key,
        "counterparts": conflict.count,
    }
    return Finding(
        pod=pod.uid,
        reason="AntiAffinityViolated",
        promise=f"pods that its anti-affinity selects do not share {term.topology_key} with it",
        fact=f"{other.key} does, {where}" + (f", and {conflict.count - 1} more" if conflict.count > 1 else ""),
        cure="moves to where none of them is",
        evidence=evidence,
        weight=conflict.count,
    )


_Domain = tuple[str, ...]
"""A value of the topology key, or, of a node without the key, the node itself."""
_Selected = Mapping[_Domain, dict[str, PodView]]
"""The pods that a term selects, by domain and uid."""


class Conflict(msgspec.Struct, frozen=True):
    """A pod that `term` forbids another pod to be with."""

    term: objects.PodAffinityTerm
    other: PodView
    """One of them, the first by node and name."""
    count: int
    """Number of such pods."""


class Conflicts:
    """The company of each pod, among the pods `present` on `nodes`. Source: upstream `CheckPodsWithAntiAffinityExist`.

    Unlike upstream, a term's namespaceSelector counts, and a pod is known by its uid, not by its name.
    """

    def __init__(
        self,
        nodes: Iterable[NodeView],
        present: Mapping[str, LabelIndex],
        namespaces: Mapping[str, Mapping[str, str]],
    ) -> None:
        self._labels = {node.name: node.node.labels for node in nodes}
        self._namespaces = namespaces
        self._indexes = present
        self._by_term: dict[bytes, _Selected] = {}
        self._of_specs: dict[SpecKey, list[tuple[objects.PodAffinityTerm, _Selected]]] = {}
        self._memberships: dict[str, list[dict[str, PodView]]] = defaultdict(list)
        """Groups of `_by_term` that hold each pod, by uid."""
        self._removed: set[str] = set()

    def of(self, pod: PodView) -> Conflict | None:
        """The first of the pod's terms that someone present breaks; None when all hold."""
        uid = pod.uid
        for term, selected in self._terms(pod):
            together = selected.get(self._domain(pod.node, term.topology_key), {})
            if len(together) > (uid in together):
                other = next(other for other in together.values() if other.uid != uid)
                return Conflict(term, other, len(together) - (uid in together))
        return None

    def possible(self, group: SpecGroup) -> bool:
        """Tell whether a pod of the group may have a conflict. Asked first, because of most groups none has: each pod
        is alone in its domain, and is one of those that its terms select."""
        for term, selected in self._terms(group.first):
            if any(len(together) > 1 for together in selected.values()):
                return True
            matches = (label_selectors.labels_match(term.label_selector, one.labels) for one in group.templates)
            if group.namespace not in self._reach(term, group.namespace) or not all(matches):
                return True
        return False

    def remove(self, pod: PodView) -> None:
        """The pod goes: nobody is with it any more."""
        self._removed.add(pod.uid)
        for together in self._memberships.pop(pod.uid, ()):
            del together[pod.uid]

    def _terms(self, pod: PodView) -> list[tuple[objects.PodAffinityTerm, _Selected]]:
        terms = self._of_specs.get(pod.template.spec)
        if terms is None:
            namespace = pod.pod.namespace
            terms = [(term, self._selected(term, namespace)) for term in anti_affinity_terms(pod)]
            self._of_specs[pod.template.spec] = terms
        return terms

    def _selected(self, term: objects.PodAffinityTerm, namespace: str) -> _Selected:
        key = fingerprint(term, namespace)
        if key not in self._by_term:
            by_domain: dict[_Domain, dict[str, PodView]] = defaultdict(dict)
            selected = (self._indexes[name].select(term.label_selector) for name in self._reach(term, namespace))
            for pod in itertools.chain.from_iterable(selected):
                if pod.pod.uid in self._removed:
                    continue
                together = by_domain[self._domain(pod.node, term.topology_key)]
                uid = pod.pod.uid
                together[uid] = pod
                self._memberships[uid].append(together)
            self._by_term[key] = by_domain
        return self._by_term[key]

    def _reach(self, term: objects.PodAffinityTerm, namespace: str) -> list[str]:
        """Namespaces that the term speaks of, of those with pods."""
        names = namespaces_of(term, namespace, self._indexes, self._namespaces)
        return [name for name in names if name in self._indexes]

    def _domain(self, node: str, key: str) -> _Domain:
        value = self._labels[node].get(key)
        return (value,) if value is not None else ("", node)
