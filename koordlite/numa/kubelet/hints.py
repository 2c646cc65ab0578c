"""Topology hints of managers, and refusals in kubelet's words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Hint(NamedTuple):
    """NUMA nodes that could serve a request; `mask` None is no opinion. `preferred`: no fewer nodes could ever do."""

    mask: int | None
    preferred: bool


Hints = Mapping[str, Sequence[Hint] | None]
"""What one manager says, by resource name: None is no opinion, an empty list that nothing could serve the request."""


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
