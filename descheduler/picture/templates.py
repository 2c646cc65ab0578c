"""Pods in groups by the pod template they were made from, and by labels: what that says is worked out once for all.

A cluster has tens of pods of each template. So a rule about labels, owners or affinity is applied to thousands of
templates, not to hundreds of thousands of pods.
"""

from __future__ import annotations

import bisect
import functools
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from descheduler.picture.pods import PodView, SpecKey, TemplateKey
from koordlite.model import label_selectors
from koordlite.model.wire import objects

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class Template(msgspec.Struct, frozen=True):
    """Pods with the same `TemplateKey`. Annotations, priority, status and the rest may differ."""

    pods: list[PodView]
    """At least one; in the order of the picture: by node, namespace and name."""

    @property
    def first(self) -> PodView:
        """The pod that speaks for all of them."""
        return self.pods[0]

    @property
    def labels(self) -> Mapping[str, str]:
        """Labels of all of them."""
        return self.pods[0].pod.labels


_NONE = frozenset[str]()
_BY_KEY = "templates by key"


@functools.lru_cache(maxsize=1 << 14)
def _only(node: str) -> frozenset[str]:
    return frozenset((node,))


class SpecGroup:
    """Pods with the same `SpecKey`, by template. Never changed: when some of its pods change, another group follows it.

    Where every pod has amounts or tolerations of its own there is a group for each, so that a group of one is small.
    """

    __slots__ = ("_pods", "_results", "_templates", "first", "size")

    def __init__(self, templates: Iterable[Template], first: PodView | None = None, size: int = 0) -> None:
        """`templates`: at least one. `first`: the first pod, `size`: number of pods, where they are known."""
        self._templates = tuple(templates)
        self.size = size or sum([len(template.pods) for template in self._templates])
        self._pods: list[PodView] | None = None
        self._results: dict[Hashable, Any] | None = None
        """Results of `once`; by a function its `counts`, which follow the pods."""
        self.first = first or min([template.first for template in self._templates], key=place)
        """The pod that speaks for all of them as far as their `SpecKey` goes: the first in the order of the picture."""

    @classmethod
    def of(cls, pods: Iterable[PodView]) -> SpecGroup:
        """The group of these pods, of which there is one at least."""
        by_key: dict[TemplateKey, list[PodView]] = defaultdict(list)
        for pod in pods:
            by_key[pod.template].append(pod)
        return cls(Template(sorted(several, key=place)) for several in by_key.values())

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """Result of `make`, worked out once for this group, as of `koordlite.model.once`."""
        if self._results is None:
            self._results = {}
        if key not in self._results:
            self._results[key] = make()
        result: T = self._results[key]
        return result

    @property
    def namespace(self) -> str:
        """The one namespace of all pods."""
        return self.first.pod.namespace

    @property
    def templates(self) -> Sequence[Template]:
        """Templates in the order of their first pods."""
        if len(self._templates) == 1:
            return self._templates
        return self.once("templates", lambda: sorted(self._templates, key=lambda one: place(one.first)))

    @property
    def pods(self) -> Sequence[PodView]:
        """Pods in the order of the picture."""
        if self._pods is None:
            self._pods = pods_of(self._templates)
        return self._pods

    @property
    def nodes(self) -> frozenset[str]:
        """Names of their nodes."""
        if self.size == 1:
            return _only(self.first.node)
        return self.once("nodes", lambda: frozenset(self.counts(_node)))

    @property
    def crowded(self) -> frozenset[str]:
        """Nodes with more than one of them."""
        if self.size == 1:
            return _NONE
        return self.once("crowded", lambda: frozenset([name for name, n in self.counts(_node).items() if n > 1]))

    def counts(self, of: Callable[[PodView], K]) -> Mapping[K, int]:
        """Number of pods by value. `of` must follow from the pod alone, is a function of a module, and is asked
        once of each pod that comes; of one that is alone each time."""
        if self.size == 1:
            return {of(self.first): 1}
        return self.once(of, lambda: Counter([of(pod) for one in self._templates for pod in one.pods]))

    def by_label(self, key: str) -> Mapping[str, tuple[Template, ...]]:
        """Templates that have the label, by its value."""
        if len(self._templates) == 1:
            labels = self._templates[0].labels
            return {labels[key]: self._templates} if key in labels else {}

        def by_value() -> Mapping[str, tuple[Template, ...]]:
            buckets: dict[str, list[Template]] = defaultdict(list)
            for template in self._templates:
                if key in template.labels:
                    buckets[template.labels[key]].append(template)
            return {value: tuple(several) for value, several in buckets.items()}

        return self.once(("label", key), by_value)

    def is_all(self, templates: Sequence[Template]) -> bool:
        """Tell whether these are all its templates."""
        return len(templates) == len(self._templates)

    def changed(self, removed: Collection[PodView], added: Collection[PodView]) -> SpecGroup | None:
        """The group without the pods `removed`, and with those `added`; None when no pod is in it."""
        by_key = dict(self.once(_BY_KEY, lambda: {template.pods[0].template: template for template in self._templates}))
        first: PodView | None = self.first
        for key, (old, new) in _by(lambda pod: pod.template, removed, added).items():
            pods = list(by_key.pop(key).pods) if key in by_key else []
            for pod in old:
                number = bisect.bisect_left(pods, place(pod), key=place)
                while pods[number] is not pod:
                    number += 1
                del pods[number]
                first = None if pod is first else first
            for pod in new:
                bisect.insort(pods, pod, key=place)
            if pods:
                by_key[key] = Template(pods)
        if not by_key:
            return None
        earlier = [pod for pod in added if place(pod) <= place(self.first)]
        size = self.size + len(added) - len(removed)
        group = SpecGroup(by_key.values(), min(earlier, key=place) if earlier else first, size)
        group._results = {
            of: _recount(counts, map(of, removed), map(of, added))
            for of, counts in (self._results or {}).items()
            if callable(of)
        }
        group._results[_BY_KEY] = by_key
        return group


def _node(pod: PodView) -> str:
    return pod.node


def _by(
    key: Callable[[PodView], K], removed: Iterable[PodView], added: Iterable[PodView]
) -> Mapping[K, tuple[list[PodView], list[PodView]]]:
    """The pods removed and added, by what they share."""
    moves: dict[K, tuple[list[PodView], list[PodView]]] = defaultdict(lambda: ([], []))
    for pod in removed:
        moves[key(pod)][0].append(pod)
    for pod in added:
        moves[key(pod)][1].append(pod)
    return moves


def _recount(counts: Mapping[K, int], removed: Iterable[K], added: Iterable[K]) -> Mapping[K, int]:
    total = dict(counts)
    for value in added:
        total[value] = total.get(value, 0) + 1
    for value in removed:
        total[value] -= 1
        if not total[value]:
            del total[value]
    return total


Groups = Mapping[SpecKey, SpecGroup]
"""Groups in the order of their first pods."""


def grouped(added: Iterable[PodView], removed: Iterable[PodView] = (), before: Groups | None = None) -> Groups:
    """The groups of `before`, without the pods `removed` and with those `added`. A group that keeps its pods stays the
    same object."""
    moves = _by(lambda pod: pod.template.spec, removed, added)
    if not moves and before is not None:
        return before
    groups, is_sorted = dict(before or {}), before is not None
    for key, (old, new) in moves.items():
        previous = groups.get(key)
        group = previous.changed(old, new) if previous else SpecGroup.of(new)
        is_sorted = is_sorted and bool(previous and group and place(previous.first) == place(group.first))
        if group:
            groups[key] = group
        else:
            del groups[key]
    return groups if is_sorted else dict(sorted(groups.items(), key=lambda one: place(one[1].first)))


def pods_of(several: Iterable[Template | SpecGroup]) -> list[PodView]:
    """Their pods in the order of the picture."""
    lists = [one.pods for one in several]
    if len(lists) == 1:
        return list(lists[0])
    return sorted((pod for pods in lists for pod in pods), key=place)


def by_name(pod: PodView) -> tuple[str, str]:
    """Sort key for pods of one node, and for pods without one."""
    return pod.pod.namespace, pod.pod.name


def place(pod: PodView) -> tuple[str, str, str]:
    """Sort key for the order of the picture."""
    return pod.node, pod.pod.namespace, pod.pod.name


_Part = tuple[SpecGroup, Sequence[Template]]
"""Templates of one group."""


class LabelIndex:
    """Templates of one namespace. A label is indexed when a selector first asks for it."""

    def __init__(self, groups: Sequence[SpecGroup]) -> None:
        self._groups = groups
        self._by_key: dict[str, Mapping[str, list[_Part]]] = {}

    def select(self, selector: objects.LabelSelector | None) -> list[PodView]:
        """The pods that `selector` selects, in the order of the picture."""
        if selector is None:
            return []
        candidates: list[_Part] | None = None
        equalities: list[tuple[str, tuple[str, ...]]]
        equalities = [(key, (value,)) for key, value in (selector.match_labels or {}).items()]
        equalities += [(e.key, e.values or ()) for e in selector.match_expressions or () if e.operator == "In"]
        for key, values in equalities:
            buckets = self._index(key)
            parts = [one for value in dict.fromkeys(values) for one in buckets.get(value, ())]
            if candidates is None or _count(parts) < _count(candidates):
                candidates = parts
        if candidates is None:
            candidates = [(group, group.templates) for group in self._groups]
        if len(selector.match_labels or ()) != 1 or selector.match_expressions:
            matches = label_selectors.labels_match
            candidates = [(group, [t for t in some if matches(selector, t.labels)]) for group, some in candidates]
        # Pods of a whole group are in order already.
        whole = [group for group, some in candidates if group.is_all(some)]
        templates = [template for group, some in candidates if not group.is_all(some) for template in some]
        return pods_of([*whole, *templates])

    def _index(self, key: str) -> Mapping[str, list[_Part]]:
        if key not in self._by_key:
            buckets: dict[str, list[_Part]] = defaultdict(list)
            for group in self._groups:
                for value, templates in group.by_label(key).items():
                    buckets[value].append((group, templates))
            self._by_key[key] = buckets
        return self._by_key[key]


def _count(parts: list[_Part]) -> int:
    return sum([len(templates) for _, templates in parts])


def indices(groups: Iterable[SpecGroup]) -> dict[str, LabelIndex]:
    """An index for each namespace that has pods."""
    by_namespace: dict[str, list[SpecGroup]] = defaultdict(list)
    for group in groups:
        by_namespace[group.namespace].append(group)
    return {name: LabelIndex(several) for name, several in by_namespace.items()}
