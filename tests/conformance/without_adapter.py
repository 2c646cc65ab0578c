"""Functions of the vectors that no adapter asks about yet, each with the reason. A new one has to be listed here."""

from __future__ import annotations

_SCHEDULER = "a scheduler's work, and there is none here"

REASONS: dict[str, str] = {
    **dict.fromkeys(
        (
            *("MatchReservationOwners", "ReservationAffinity", "NewReservePod", "SetReservationAvailable"),
            *("SetReservationCondition", "GetReservationRestrictedResources", "ExactMatchReservation"),
            *("ValidateReservation", "isReservationNeedExpiration", "isReservationNeedCleanup"),
            *("syncReservationStatus", "ReservationInfo", "ScoreReservation", "findMostPreferredReservationByOrder"),
            *("matchReservation", "filterWithReservations", "fitsNodeAndReservation"),
        ),
        _SCHEDULER,
    ),
}
"""Function or kind to why no adapter asks for it."""
