"""Verdicts about one pod and one node."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class Verdict(msgspec.Struct, frozen=True):
    """Answer of a filter: whether a pod may go to a node, and where there."""

    protocol: str
    """Who allocates on the node: kubelet, koordinator, crane, volcano, or none."""
    refusal: str = ""
    """Stable text for the pod's condition; empty: it may."""
    numa_nodes: tuple[int, ...] = ()
    """The NUMA nodes it would be on."""
    why: str = ""
    """What is shown beside the refusal, or in favour of the node."""
    placed: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """NUMA nodes by container; `*` is the whole pod."""

    @property
    def passes(self) -> bool:
        """Not refused."""
        return not self.refusal


class Score(msgspec.Struct, frozen=True):
    """Score of a node, 0 to 100, with its parts."""

    total: int
    terms: Mapping[str, int | str] = msgspec.field(default_factory=dict)


class Promise(msgspec.Struct, frozen=True):
    """Annotations of a Binding: the allocation that the agent of the node carries out."""

    annotations: Mapping[str, str] = msgspec.field(default_factory=dict)
    refusal: str = ""
    """Why the pod cannot be bound there any more."""
