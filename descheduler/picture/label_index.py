"""Find the pods that a label selector selects without asking each of them: by the rarest label that it names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from descheduler.picture.pods import PodView
from descheduler.picture.templates import SpecGroup, Template, pods_of
from koordlite.model import label_selectors
from koordlite.model.wire import objects


class LabelIndex:
    """Templates of one namespace. A label is indexed when a selector first asks for it."""

    def __init__(self, groups: Sequence[SpecGroup]) -> None:
        self._groups = groups
        self._by_key: dict[str, Mapping[str, list[Template]]] = {}

    def select(self, selector: objects.LabelSelector | None) -> list[PodView]:
        """The pods that `selector` selects, in the order of the picture."""
        if selector is None:
            return []
        candidates: Sequence[Template] | None = None
        for key, values in _equalities(selector):
            buckets = self._index(key)
            found = [template for value in dict.fromkeys(values) for template in buckets.get(value, ())]
            if candidates is None or len(found) < len(candidates):
                candidates = found
        if candidates is None:
            candidates = [template for group in self._groups for template in group.templates]
        if len(selector.match_labels or ()) == 1 and not selector.match_expressions:
            return pods_of(candidates)  # They were found by all that it asks for.
        return pods_of([one for one in candidates if label_selectors.labels_match(selector, one.labels)])

    def _index(self, key: str) -> Mapping[str, list[Template]]:
        if key not in self._by_key:
            buckets: dict[str, list[Template]] = defaultdict(list)
            for group in self._groups:
                for value, templates in group.by_label(key).items():
                    buckets[value] += templates
            self._by_key[key] = buckets
        return self._by_key[key]


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
