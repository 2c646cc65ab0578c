"""Where the pods are that a label selector selects, kept up to date while a plan is made."""

from __future__ import annotations

import dataclasses
import functools
from collections import defaultdict
from collections.abc import Collection, Hashable

from descheduler.framework import PodView, View
from descheduler.picture import label_index
from descheduler.picture.label_index import LabelIndex
from koordlite.model import label_selectors
from koordlite.model.wire import objects


@dataclasses.dataclass
class Selected:
    """Pods of one namespace that one selector selects."""

    selector: objects.LabelSelector | None
    where: dict[str, str]
    """Node by uid."""
    version: int = 0
    """How often it has changed."""


class MatchingPods:
    """Every pod that has not ended, by namespace; indexed when someone first asks."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._selected: dict[str, dict[Hashable, Selected]] = defaultdict(dict)
        self._moved: dict[str, dict[str, tuple[PodView, str]]] = defaultdict(dict)
        """Pod and node by uid, by namespace."""

    @functools.cached_property
    def _indices(self) -> dict[str, LabelIndex]:
        return label_index.by_namespace(self._view.templates)

    @property
    def namespaces(self) -> Collection[str]:
        """Namespaces that have pods."""
        return self._indices.keys()

    def selected(self, namespace: str, selector: objects.LabelSelector | None) -> Selected:
        """The pods of a namespace that `selector` selects, as the plan has left them."""
        known, key = self._selected[namespace], label_selectors.key(selector)
        if key not in known:
            index = self._indices.get(namespace)
            known[key] = Selected(selector, {p.uid: p.node for p in index.select(selector)} if index else {})
            for pod, node in self._moved[namespace].values():
                _place(known[key], pod, node)
        return known[key]

    def move(self, pod: PodView, node: str) -> None:
        """Note that `pod` is expected on `node`; an empty name is nowhere."""
        self._moved[pod.pod.namespace][pod.uid] = (pod, node)
        for selected in self._selected[pod.pod.namespace].values():
            _place(selected, pod, node)


def _place(selected: Selected, pod: PodView, node: str) -> None:
    if not label_selectors.labels_match(selected.selector, pod.pod.labels):
        return
    selected.version += 1
    if node:
        selected.where[pod.uid] = node
    else:
        selected.where.pop(pod.uid, None)
