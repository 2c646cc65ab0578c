"""Refusals of nodes by reason: how many, and which ones for example. A plan that evicts thousands of pods in a
cluster of thousands of nodes cannot keep, or print, what each node said to each pod."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping

import msgspec

EXAMPLES = 3


class Group(msgspec.Struct, frozen=True):
    """Nodes that refuse for one reason."""

    nodes: int
    examples: tuple[str, ...]
    """Up to `EXAMPLES` of them."""


Groups = Mapping[str, Group]
"""By reason."""


class Tally:
    """The answer of each node, kept by reason as well once that is asked for. Answers may change."""

    def __init__(self, refusals: Mapping[str, str]) -> None:
        self.by_node = dict(refusals)
        self._known: dict[str, dict[str, None]] | None = None

    @property
    def _members(self) -> dict[str, dict[str, None]]:
        """Nodes by reason. Most tallies are only asked whether any node took the pod."""
        if self._known is None:
            self._known = {}
            for name, why in self.by_node.items():
                self._known.setdefault(why, {})[name] = None
        return self._known

    def note(self, name: str, why: str) -> None:
        """Set the node's present answer."""
        before = self.by_node.get(name)
        if before == why:
            return
        by_reason = self._members
        if before is not None:
            members = by_reason[before]
            del members[name]
            if not members:
                del by_reason[before]
        self.by_node[name] = why
        by_reason.setdefault(why, {})[name] = None

    def groups(self, without: str) -> Groups:
        """All reasons, leaving one node out."""
        return {why: group for why, names in self._members.items() if (group := _group(names, without)).nodes}


class FixedTally(Tally):
    """A tally whose answers do not change: who asks for all of it gets the same groups."""

    def __init__(self, refusals: Mapping[str, str]) -> None:
        super().__init__(refusals)
        self._all = super().groups("")

    def groups(self, without: str) -> Groups:
        """All reasons, leaving one node out."""
        return super().groups(without) if without in self.by_node else self._all


def _group(names: Mapping[str, None], without: str) -> Group:
    others = itertools.islice((name for name in names if name != without), EXAMPLES)
    return Group(len(names) - (without in names), tuple(others))


def merged(several: Iterable[Groups]) -> Groups:
    """The groups of disjoint sets of nodes as one."""
    filled = [groups for groups in several if groups]
    if len(filled) == 1:
        return filled[0]
    found: dict[str, Group] = {}
    for groups in filled:
        for why, one in groups.items():
            group, known = one, found.get(why)
            if known:
                group = Group(known.nodes + group.nodes, (known.examples + group.examples)[:EXAMPLES])
            found[why] = group
    return found
