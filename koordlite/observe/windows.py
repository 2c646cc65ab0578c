"""Use of the node and its pods over the last seconds: means and percentiles over every window asked for."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Set

from koordlite.model.picture.usage import Usage, Use
from koordlite.observe.history import History

NODE, BEST_EFFORT, POD, HOST = "node", "besteffort", "pod", "host"
REQUEST, LIMIT = "be-request", "be-limit"
ONE = ""
"""The name of what there is only one of."""
NODE_PERCENTS = (50, 90, 95, 99)
"""Those of Koordinator's NodeMetric."""

Sample = Mapping[str, Mapping[str, Use]]
"""By kind (above) and name: uid of a pod, name of an application."""


class Windows:
    """Samples of everything, kept as long as the longest window that is asked for."""

    def __init__(self) -> None:
        self._kept: dict[str, dict[str, History]] = {}
        self._lengths: frozenset[int] = frozenset()

    def add(self, time: float, sample: Sample, known: Mapping[str, Set[str]], lengths: Iterable[int]) -> None:
        """Take in a sample. `known` names whoever is still looked at; the history of the others is dropped."""
        self._resize(frozenset(lengths))
        self._kept = {kind: self._added(time, kind, sample.get(kind, {}), names) for kind, names in known.items()}

    def mean(self, length: int) -> Usage:
        """Means over one window; nobody is in it while there is no sample."""
        if length not in self._lengths:
            return usage({}, 0)
        means = {
            kind: {name: mean for name, each in kept.items() if (mean := each.mean(length)) is not None}
            for kind, kept in self._kept.items()
        }
        return usage(means, self._samples(length))

    def percentile(self, length: int, percent: int) -> Usage:
        """Values that `percent` of the samples of each subject do not exceed."""
        found = {
            kind: {name: use for name, each in kept.items() if (use := each.percentile(length, percent / 100))}
            for kind, kept in self._kept.items()
        }
        return usage(found, self._samples(length))

    def node_percentiles(self, length: int) -> dict[int, Use]:
        """Percent → use of the node; empty without a sample."""
        node = self._kept.get(NODE, {}).get(ONE)
        return node.percentiles(length, NODE_PERCENTS) if node else {}

    def has(self, length: int) -> bool:
        """Tell whether a window has a sample of anybody."""
        histories = itertools.chain.from_iterable(kept.values() for kept in self._kept.values())
        return length in self._lengths and any(each.samples(length) for each in histories)

    def _samples(self, length: int) -> int:
        node = self._kept.get(NODE, {}).get(ONE)
        return node.samples(length) if node else 0

    def _added(self, time: float, kind: str, uses: Mapping[str, Use], names: Set[str]) -> dict[str, History]:
        kept = self._kept.get(kind, {})
        if kept.keys() != names:
            kept = {name: kept[name] if name in kept else History(self._lengths) for name in names}
        for name, history in kept.items():
            use = uses.get(name)
            if use is None:
                history.trim(time)
            else:
                history.add(time, use)
        return kept

    def _resize(self, lengths: frozenset[int]) -> None:
        if lengths == self._lengths:
            return
        self._lengths = lengths
        for kept in self._kept.values():
            for history in kept.values():
                history.over(lengths)


def usage(sample: Sample, samples: int) -> Usage:
    """A sample, or means of some, as the picture has them."""
    return Usage(
        node=sample.get(NODE, {}).get(ONE),
        pods=sample.get(POD, {}),
        host_apps=sample.get(HOST, {}),
        best_effort_cpu=_cpu(sample, BEST_EFFORT),
        best_effort_request=_cpu(sample, REQUEST),
        best_effort_limit=_cpu(sample, LIMIT),
        samples=samples,
    )


def _cpu(sample: Sample, kind: str) -> int | None:
    use = sample.get(kind, {}).get(ONE)
    return use.cpu if use else None
