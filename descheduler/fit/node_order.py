"""The order in which nodes are asked: the emptiest first, kept sorted while a plan moves pods about."""

from __future__ import annotations

import bisect
import heapq
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping

import msgspec

from descheduler.fit import refusals
from descheduler.fit.node_rules import EligibleNodes
from descheduler.fit.refusals import Groups
from descheduler.framework import NodeView

_KEPT = 1024
"""Orders that are kept; each costs a little at every change of the plan."""
_KEPT_WHOLE = 64
"""All of them together have no more entries than so many orders of all nodes."""
_MOST_DOMAINS = 16
"""A label that makes more domains is not worth an order for each of them."""

_Order = list[tuple[float, str]]
"""How full, and name."""
_Domains = dict[str | None, _Order]


class Closing(msgspec.Struct, frozen=True):
    """A rule that keeps a pod off whole domains of a node label."""

    key: str
    refusal: Callable[[str | None], str]
    """What all nodes with this value of the label say; empty when nothing. None: nodes without the label."""


class Orders:
    """Nodes of each shape, those with the largest free part of their CPUs first; also by domains of a label."""

    def __init__(self, nodes: Mapping[str, NodeView], fullness: Callable[[str], float]) -> None:
        self._nodes, self._fullness = nodes, fullness
        self._kept: dict[tuple[EligibleNodes, str], _Domains] = {}
        """By shape and label; without a label there is one domain."""
        self._entries = 0
        """Of all kept orders together."""

    def emptiest(self, eligible: EligibleNodes) -> Iterator[str]:
        """All nodes of the shape."""
        domains = self._domains(eligible, "")
        order = domains[None] if domains else self._sorted(eligible)
        return (name for _, name in order)

    def open_to(self, eligible: EligibleNodes, closing: Closing) -> Iterator[str]:
        """The nodes of the shape without those of closed domains, where that is quicker to say."""
        domains = self._few_domains(eligible, closing)
        if domains is None:
            return self.emptiest(eligible)
        return (name for _, name in heapq.merge(*(o for value, o in domains.items() if not closing.refusal(value))))

    def closed(self, eligible: EligibleNodes, closing: Closing, without: str) -> Groups:
        """Refusals of the nodes that `open_to` leaves out; one node does not count."""
        found = []
        for value, order in (self._few_domains(eligible, closing) or {}).items():
            why = closing.refusal(value)
            if why:
                found.append(refusals.Tally(dict.fromkeys((name for _, name in order), why)).groups(without))
        return refusals.merged(found)

    def changed(self, name: str, before: float, after: float) -> None:
        """A node is fuller or emptier than it was."""
        labels = self._nodes[name].node.labels
        for (eligible, key), domains in self._kept.items():
            order = domains.get(labels.get(key) if key else None) if name in eligible.names else None
            if order:
                del order[bisect.bisect_left(order, (before, name))]
                bisect.insort(order, (after, name))

    def _few_domains(self, eligible: EligibleNodes, closing: Closing) -> _Domains | None:
        domains = self._domains(eligible, closing.key)
        return None if domains is None or len(domains) > _MOST_DOMAINS else domains

    def _domains(self, eligible: EligibleNodes, key: str) -> _Domains | None:
        """None when there are too many shapes to keep an order."""
        known = self._kept.get((eligible, key))
        if known is None:
            entries = self._entries + len(eligible.names)
            if len(self._kept) >= _KEPT or entries > _KEPT_WHOLE * len(self._nodes):
                return None
            self._entries = entries
            known = self._kept[(eligible, key)] = self._made(eligible, key)
        return known

    def _made(self, eligible: EligibleNodes, key: str) -> _Domains:
        found: _Domains = defaultdict(list)
        for entry in self._sorted(eligible):
            value = self._nodes[entry[1]].node.labels.get(key) if key else None
            found[value].append(entry)
        if len(found) > _MOST_DOMAINS:
            return {value: [] for value in found}
        return found or {None: []}

    def _sorted(self, eligible: EligibleNodes) -> _Order:
        return sorted((self._fullness(name), name) for name in eligible.names)
