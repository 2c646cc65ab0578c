"""Find the pods that a label selector selects without asking each of them: by the rarest label that it names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from descheduler.picture.pods import PodView
from descheduler.picture.templates import Template, pods_of
from koordlite.model import label_selectors
from koordlite.model.wire import objects


class LabelIndex:
    """Templates of one namespace. A label is indexed when a selector first asks for it."""

    def __init__(self, templates: Sequence[Template]) -> None:
        self._templates = templates
        self._by_key: dict[str, Mapping[str, list[Template]]] = {}

    def select(self, selector: objects.LabelSelector | None) -> list[PodView]:
        """The pods that `selector` selects, in the order of the picture."""
        if selector is None:
            return []
        candidates: Sequence[Template] = self._templates
        for key, values in _equalities(selector):
            buckets = self._index(key)
            found = [template for value in dict.fromkeys(values) for template in buckets.get(value, ())]
            if len(found) < len(candidates):
                candidates = found
        return pods_of([one for one in candidates if label_selectors.labels_match(selector, one.labels)])

    def _index(self, key: str) -> Mapping[str, list[Template]]:
        if key not in self._by_key:
            buckets: dict[str, list[Template]] = defaultdict(list)
            for template in self._templates:
                value = template.labels.get(key)
                if value is not None:
                    buckets[value].append(template)
            self._by_key[key] = buckets
        return self._by_key[key]


def by_namespace(templates: Iterable[Template]) -> dict[str, LabelIndex]:
    """An index for each namespace that has pods."""
    grouped: dict[str, list[Template]] = defaultdict(list)
    for template in templates:
        grouped[template.namespace].append(template)
    return {name: LabelIndex(found) for name, found in grouped.items()}


def _equalities(selector: objects.LabelSelector) -> Iterable[tuple[str, tuple[str, ...]]]:
    for key, value in (selector.match_labels or {}).items():
        yield key, (value,)
    for line in selector.match_expressions or ():
        if line.operator == "In":
            yield line.key, line.values or ()
