"""Find the pods that a label selector selects without asking each of them: by the rarest label that it names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from descheduler.picture.pods import PodView
from descheduler.picture.templates import SpecGroup, Template, pods_of
from koordlite.model import label_selectors
from koordlite.model.wire import objects

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
        for key, values in _equalities(selector):
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


def by_namespace(groups: Iterable[SpecGroup]) -> dict[str, LabelIndex]:
    """An index for each namespace that has pods."""
    found: dict[str, list[SpecGroup]] = defaultdict(list)
    for group in groups:
        found[group.namespace].append(group)
    return {name: LabelIndex(several) for name, several in found.items()}


def _equalities(selector: objects.LabelSelector) -> Iterable[tuple[str, tuple[str, ...]]]:
    for key, value in (selector.match_labels or {}).items():
        yield key, (value,)
    for line in selector.match_expressions or ():
        if line.operator == "In":
            yield line.key, line.values or ()
