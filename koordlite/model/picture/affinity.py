"""Pods of the node that talk to each other, and those that were declared to belong together."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class Talk(msgspec.Struct, frozen=True):
    """Two pods and the TCP connections between them. `first` is the smaller uid."""

    first: str
    second: str
    connections: int


class Connections(msgspec.Struct, frozen=True, kw_only=True):
    """One count of the established TCP connections of all pods that have a network namespace of their own."""

    rounds: int
    """Number of counts in this run, this one included."""
    totals: Mapping[str, int]
    """Number of connections that leave the pod, by uid."""
    talks: tuple[Talk, ...] = ()
    """Pairs of pods of this node, those with most connections first."""
    uncounted: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Pods whose connections are not known, by uid → why."""
    cost_seconds: float = 0.0
    """Time that the agent spent on this count."""


class AffinityState(msgspec.Struct, frozen=True, kw_only=True):
    """Inputs of `numaAffinity`; all of it is empty while that strategy is off."""

    enforced: bool = False
    """Its placements hold: it writes the CPU sets of the pods that it has placed, and no other strategy does."""
    connections: Connections | None = None
    """The last count; None before the first one has ended."""
    numa_nodes: Mapping[str, int] = msgspec.field(default_factory=dict)
    """NUMA node that the resource Oenuma names for a pod on this node, by `namespace/name`."""
    whitelist: frozenset[str] | None = None
    """`namespace/name` of the only pods that may be moved, by the resource Whitelist; None where none is in effect."""
