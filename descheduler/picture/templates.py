"""Pods in groups by the pod template they were made from, and by labels: what that says is worked out once for all.

A cluster has tens of pods of each template. So a rule about labels, owners or affinity is applied to thousands of
templates, not to hundreds of thousands of pods.
"""

from __future__ import annotations

import bisect
import functools
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
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
    first: PodView
    """The pod that speaks for all of them."""
    namespace: str
    """Of all of them."""
    labels: Mapping[str, str]
    """Of all of them."""

    @classmethod
    def of(cls, pods: list[PodView]) -> Template:
        """The template of these pods."""
        first = pods[0]
        return cls(pods, first, first.pod.namespace, first.pod.labels)


_NONE = frozenset[str]()


@functools.lru_cache(maxsize=1 << 14)
def _only(node: str) -> frozenset[str]:
    return frozenset((node,))


class SpecGroup:
    """Pods with the same `SpecKey`, by template. Never changed: when some of its pods change, another group follows it.

    Where every pod has amounts or tolerations of its own there is a group for each, so that a group of one is small.
    """

    __slots__ = ("_known", "_pods", "_templates", "first")

    def __init__(self, templates: Iterable[Template]) -> None:
        """`templates`: at least one."""
        self._templates = tuple(templates)
        self._pods: list[PodView] | None = None
        self._known: dict[Hashable, Any] | None = None
        """Results of `once`; by a function its `counts`, which follow the pods."""
        self.first = min([template.first for template in self._templates], key=place)
        """The pod that speaks for all of them as far as their `SpecKey` goes: the first in the order of the picture."""

    @classmethod
    def of(cls, pods: Iterable[PodView]) -> SpecGroup:
        """The group of these pods, of which there is one at least."""
        by_key: dict[TemplateKey, list[PodView]] = defaultdict(list)
        for pod in pods:
            by_key[pod.template].append(pod)
        return cls(Template.of(sorted(several, key=place)) for several in by_key.values())

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """Result of `make`, worked out once for this group, as of `koordlite.model.once`."""
        if self._known is None:
            self._known = {}
        if key not in self._known:
            self._known[key] = make()
        result: T = self._known[key]
        return result

    @property
    def namespace(self) -> str:
        """The one namespace of all pods."""
        return self.first.pod.namespace

    @property
    def templates(self) -> Sequence[Template]:
        """In the order of their first pods."""
        if len(self._templates) == 1:
            return self._templates
        return self.once("templates", lambda: sorted(self._templates, key=lambda one: place(one.first)))

    @property
    def pods(self) -> Sequence[PodView]:
        """In the order of the picture."""
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

    @property
    def size(self) -> int:
        """Number of pods."""
        if len(self._templates) == 1:
            return len(self._templates[0].pods)
        return self.once("size", lambda: sum([len(template.pods) for template in self._templates]))

    def by_label(self, key: str) -> Mapping[str, tuple[Template, ...]]:
        """Templates that have the label, by its value."""

        def by_value() -> Mapping[str, tuple[Template, ...]]:
            found: dict[str, list[Template]] = defaultdict(list)
            for template in self._templates:
                if key in template.labels:
                    found[template.labels[key]].append(template)
            return {value: tuple(several) for value, several in found.items()}

        return self.once(("label", key), by_value)

    def is_all(self, templates: Sequence[Template]) -> bool:
        """Tell whether these are all its templates."""
        return len(templates) == len(self._templates)

    def changed(self, left: Iterable[PodView], came: Iterable[PodView]) -> SpecGroup | None:
        """The group without the pods that `left`, and with those that `came`; None when no pod is in it."""
        by_key = {template.first.template: template for template in self._templates}
        for key, (gone, new) in _moves_by(lambda pod: pod.template, left, came).items():
            known = by_key.pop(key, None)
            pods = _changed(known.pods if known else [], gone, new)
            if pods:
                by_key[key] = Template.of(pods)
        if not by_key:
            return None
        follows = SpecGroup(by_key.values())
        follows._known = {
            of: _recounted(counted, map(of, left), map(of, came))
            for of, counted in (self._known or {}).items()
            if callable(of)
        }
        return follows


def _node(pod: PodView) -> str:
    return pod.node


def _moves_by(
    key: Callable[[PodView], K], left: Iterable[PodView], came: Iterable[PodView]
) -> Mapping[K, tuple[list[PodView], list[PodView]]]:
    """The pods that left and those that came, by what they share."""
    found: dict[K, tuple[list[PodView], list[PodView]]] = defaultdict(lambda: ([], []))
    for several, number in ((left, 0), (came, 1)):
        for pod in several:
            found[key(pod)][number].append(pod)
    return found


def _changed(pods: list[PodView], left: Iterable[PodView], came: Iterable[PodView]) -> list[PodView]:
    pods = list(pods)
    for pod in left:
        number = bisect.bisect_left(pods, place(pod), key=place)
        while pods[number] is not pod:
            number += 1
        del pods[number]
    for pod in came:
        bisect.insort(pods, pod, key=place)
    return pods


def _recounted(counted: Counter[K], left: Iterable[K], came: Iterable[K]) -> Counter[K]:
    found = counted.copy()
    found.update(came)
    found.subtract(left)
    return +found


Groups = Mapping[SpecKey, SpecGroup]
"""In the order of their first pods."""


def grouped(came: Iterable[PodView], left: Iterable[PodView] = (), before: Groups | None = None) -> Groups:
    """The groups of `before`, without the pods that `left` and with those that `came`. A group that keeps its pods
    stays the same object."""
    moves = _moves_by(lambda pod: pod.template.spec, left, came)
    if not moves and before is not None:
        return before
    found = dict(before or {})
    for key, (gone, new) in moves.items():
        known = found.pop(key, None)
        group = known.changed(gone, new) if known else SpecGroup.of(new)
        if group:
            found[key] = group
    return dict(sorted(found.items(), key=lambda one: place(one[1].first)))


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


_Found = tuple[SpecGroup, Sequence[Template]]
"""Templates of one group."""


class LabelIndex:
    """Templates of one namespace. A label is indexed when a selector first asks for it."""

    def __init__(self, groups: Sequence[SpecGroup]) -> None:
        self._groups = groups
        self._by_key: dict[str, Mapping[str, list[_Found]]] = {}

    def select(self, selector: objects.LabelSelector | None) -> list[PodView]:
        """The pods that `selector` selects, in the order of the picture."""
        if selector is None:
            return []
        candidates: list[_Found] | None = None
        equalities: list[tuple[str, tuple[str, ...]]]
        equalities = [(key, (value,)) for key, value in (selector.match_labels or {}).items()]
        equalities += [(e.key, e.values or ()) for e in selector.match_expressions or () if e.operator == "In"]
        for key, values in equalities:
            buckets = self._index(key)
            found = [one for value in dict.fromkeys(values) for one in buckets.get(value, ())]
            if candidates is None or _count(found) < _count(candidates):
                candidates = found
        if candidates is None:
            candidates = [(group, group.templates) for group in self._groups]
        if len(selector.match_labels or ()) != 1 or selector.match_expressions:
            matches = label_selectors.labels_match
            candidates = [(group, [t for t in some if matches(selector, t.labels)]) for group, some in candidates]
        # Pods of a whole group are in order already.
        whole = [group for group, some in candidates if group.is_all(some)]
        parts = [template for group, some in candidates if not group.is_all(some) for template in some]
        return pods_of([*whole, *parts])

    def _index(self, key: str) -> Mapping[str, list[_Found]]:
        if key not in self._by_key:
            buckets: dict[str, list[_Found]] = defaultdict(list)
            for group in self._groups:
                for value, templates in group.by_label(key).items():
                    buckets[value].append((group, templates))
            self._by_key[key] = buckets
        return self._by_key[key]


def _count(found: list[_Found]) -> int:
    return sum([len(templates) for _, templates in found])


def indices(groups: Iterable[SpecGroup]) -> dict[str, LabelIndex]:
    """An index for each namespace that has pods."""
    found: dict[str, list[SpecGroup]] = defaultdict(list)
    for group in groups:
        found[group.namespace].append(group)
    return {name: LabelIndex(several) for name, several in found.items()}
