"""Find the pods that a label selector selects without asking each of them: by the rarest label that it names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from descheduler import selectors
from descheduler.framework import PodView
from koordlite.model import wire


class LabelIndex:
    """Pods of one namespace. A label is indexed when a selector first asks for it."""

    def __init__(self, pods: Sequence[PodView]) -> None:
        self._pods = pods
        self._by_key: dict[str, Mapping[str, list[PodView]]] = {}

    def select(self, selector: wire.LabelSelector | None) -> list[PodView]:
        """The pods that `selector` selects, in their order where one value is asked for."""
        if selector is None:
            return []
        candidates: Sequence[PodView] = self._pods
        for key, values in _equalities(selector):
            buckets = self._index(key)
            found = [pod for value in dict.fromkeys(values) for pod in buckets.get(value, ())]
            if len(found) < len(candidates):
                candidates = found
        return [pod for pod in candidates if selectors.labels_match(selector, pod.pod.labels)]

    def _index(self, key: str) -> Mapping[str, list[PodView]]:
        if key not in self._by_key:
            buckets: dict[str, list[PodView]] = defaultdict(list)
            for pod in self._pods:
                value = pod.pod.labels.get(key)
                if value is not None:
                    buckets[value].append(pod)
            self._by_key[key] = buckets
        return self._by_key[key]


def _equalities(selector: wire.LabelSelector) -> Iterable[tuple[str, tuple[str, ...]]]:
    for key, value in (selector.match_labels or {}).items():
        yield key, (value,)
    for line in selector.match_expressions or ():
        if line.operator == "In":
            yield line.key, line.values or ()
