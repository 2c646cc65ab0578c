"""Functions of the vectors that no adapter asks about yet, each with the reason. A new one has to be listed here."""

from __future__ import annotations

_SCHEDULER = "a scheduler's work, and there is none here"
_KUBELET = "an allocation of kubelet's; here only the emulated node makes one, by simpler rules"

REASONS: dict[str, str] = {
    **dict.fromkeys(
        (
            *("Allocate", "getAvailableNUMANodeResources", "NewTopologyOptions"),
            *("takeCPUs", "takePreferredCPUs", "getAvailableCPUs"),
            *("numa.merge", "checkExclusivePolicy", "GetTopologyHints", "PreFilter", "schedule"),
            *("MatchReservationOwners", "ReservationAffinity", "NewReservePod", "SetReservationAvailable"),
            *("SetReservationCondition", "GetReservationRestrictedResources", "ExactMatchReservation"),
            *("ValidateReservation", "isReservationNeedExpiration", "isReservationNeedCleanup"),
            *("syncReservationStatus", "ReservationInfo", "ScoreReservation", "findMostPreferredReservationByOrder"),
            *("matchReservation", "filterWithReservations", "fitsNodeAndReservation"),
            *("crane.allocate", "crane.filter", "crane.score", "crane.parse_reserved_cpus", "crane.build_zones"),
            *("volcano.cpu_hints", "volcano.cpu_allocate", "volcano.policy_predicate", "volcano.score"),
        ),
        _SCHEDULER,
    ),
    **dict.fromkeys(
        (
            *("cpu.static_add", "cpu.take_by_topology", "cpu.static_sequence", "cpu.topology_hints"),
            *("memory_manager.allocate", "memory_manager.hints", "topology_manager.merge"),
        ),
        _KUBELET,
    ),
}
"""Function or kind to why no adapter asks for it."""
