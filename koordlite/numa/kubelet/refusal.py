"""Why kubelet refuses a pod, in its own words."""

from __future__ import annotations

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
