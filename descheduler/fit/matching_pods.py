"""The nodes of the pods that a label selector selects, kept up to date while a plan is made."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Mapping

import msgspec

from descheduler.framework import PodView, View
from koordlite.model import label_selectors
from koordlite.model.wire import objects


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
