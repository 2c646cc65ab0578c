"""Topology hints of managers, and refusals in kubelet's words. A mask is an int with one bit a node id, 0 to 63."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

MAX_NODES = 64
"""NUMA node ids beyond 63 fit in no mask of kubelet."""


class Hint(NamedTuple):
    """NUMA nodes that could serve a request; `mask` None is no opinion. `preferred`: no fewer nodes could ever do."""

    mask: int | None
    preferred: bool


Hints = Mapping[str, Sequence[Hint] | None]
"""What one manager says, by resource name: None is no opinion, an empty list that nothing could serve the request."""


def mask_of(nodes: Iterable[int]) -> int:
    """The mask of these NUMA nodes; ValueError names an id that fits in none."""
    mask = 0
    for node in nodes:
        if not 0 <= node < MAX_NODES:
            raise ValueError(f"NUMA node {node} is outside 0-{MAX_NODES - 1}, the ids kubelet aligns")
        mask |= 1 << node
    return mask


def nodes_of(mask: int) -> tuple[int, ...]:
    """The NUMA nodes in a mask, ascending."""
    return tuple(node for node in range(mask.bit_length()) if mask >> node & 1)


def subsets(nodes: Iterable[int]) -> Iterator[tuple[tuple[int, ...], int]]:
    """All non-empty subsets with their masks: the small ones first, those of one size in order of their ids."""
    ordered = sorted(nodes)
    for size in range(1, len(ordered) + 1):
        for chosen in itertools.combinations(ordered, size):
            yield chosen, mask_of(chosen)


AFFINITY = "TopologyAffinityError"
SMT = "SMTAlignmentError"
UNEXPECTED = "UnexpectedAdmissionError"


class Refused(Exception):
    """A manager refuses: `reason` and `message` are those of the pod's status."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason, self.message = reason, message


def unexpected(error: str) -> Refused:
    """An allocation that failed although the topology manager had admitted it."""
    return Refused(UNEXPECTED, f"Allocate failed due to {error}, which is unexpected")


def no_affinity() -> Refused:
    """The topology manager's own refusal."""
    return Refused(AFFINITY, "Resources cannot be allocated with Topology locality")
