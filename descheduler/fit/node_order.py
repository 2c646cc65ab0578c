"""In which order nodes are asked: the emptiest first, kept sorted while a plan moves pods about."""

from __future__ import annotations

import bisect
import heapq
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping

from descheduler.fit.node_rules import EligibleNodes
from descheduler.fit.topology_spread import Rule
from descheduler.framework import NodeView

_FEW = 8
"""Nodes are sorted for the pod alone when it may go to less than one in so many."""
_KEPT = 64
"""Orders that are kept; each costs a little at every change of the plan."""
_MOST_DOMAINS = 16
"""A label that makes more domains is not worth an order for each of them."""

_Order = list[tuple[float, str]]
"""How full, and name."""


class Orders:
    """Nodes of each shape, those with the largest free part of their CPUs first; also by domains of a label."""

    def __init__(self, nodes: Mapping[str, NodeView], fullness: Callable[[str], float]) -> None:
        self._nodes, self._fullness = nodes, fullness
        self._kept: dict[tuple[EligibleNodes, str], dict[str | None, _Order]] = {}
        """By shape and label; without a label there is one domain."""

    def emptiest(self, eligible: EligibleNodes) -> Iterator[str]:
        """All nodes of the shape."""
        domains = self._domains(eligible, "")
        order = domains[None] if domains else self._sorted(eligible)
        return (name for _, name in order)

    def open_to(self, eligible: EligibleNodes, rule: Rule) -> Iterator[str]:
        """The nodes of the shape without those of domains that the rule closes, where that is quicker to say."""
        domains = self._domains(eligible, rule.key)
        if domains is None or len(domains) > _MOST_DOMAINS:
            return self.emptiest(eligible)
        return (name for _, name in heapq.merge(*(o for value, o in domains.items() if not rule.closes(value))))

    def changed(self, name: str, before: float, after: float) -> None:
        """A node is fuller or emptier than it was."""
        for (eligible, key), domains in self._kept.items():
            order = domains.get(self._value(name, key)) if name in eligible.names else None
            if order:
                del order[bisect.bisect_left(order, (before, name))]
                bisect.insort(order, (after, name))

    def _domains(self, eligible: EligibleNodes, key: str) -> dict[str | None, _Order] | None:
        """None when the shape is too small, or there are too many shapes, to keep an order."""
        known = self._kept.get((eligible, key))
        if known is None:
            if len(eligible.names) * _FEW < len(self._nodes) or len(self._kept) >= _KEPT:
                return None
            known = self._kept[(eligible, key)] = self._made(eligible, key)
        return known

    def _made(self, eligible: EligibleNodes, key: str) -> dict[str | None, _Order]:
        found: dict[str | None, _Order] = defaultdict(list)
        for entry in self._sorted(eligible):
            found[self._value(entry[1], key)].append(entry)
        if len(found) > _MOST_DOMAINS:
            return {value: [] for value in found}
        return found or {None: []}

    def _value(self, name: str, key: str) -> str | None:
        return self._nodes[name].node.labels.get(key) if key else None

    def _sorted(self, eligible: EligibleNodes) -> _Order:
        return sorted((self._fullness(name), name) for name in eligible.names)
