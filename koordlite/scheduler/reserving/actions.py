"""What a round does to the cluster, as values. Each is one request; between any two of them the process may end."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from koordlite.model.wire.reservation import ReservationStatus


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CreatePlaceholder:
    """Make a pod; when there is one of its name, nothing."""

    namespace: str
    body: Mapping[str, Any]
    node: str = ""
    """Where room is to be kept for it."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Nominate:
    """Have the scheduler keep room for a pod on a node; empty: no longer."""

    namespace: str
    name: str
    uid: str
    node: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DeletePlaceholder:
    """Delete a pod at once, if it is still this one."""

    namespace: str
    name: str
    uid: str
    why: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AnnotatePod:
    """Note on an owner which Reservation it took."""

    namespace: str
    name: str
    uid: str
    annotations: Mapping[str, str]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Annotate:
    """Change annotations of the Reservation; None removes one."""

    annotations: Mapping[str, str | None]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WriteStatus:
    """Change the Reservation's status."""

    before: ReservationStatus
    after: ReservationStatus


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DeleteReservation:
    """Its time to be kept is over."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Say:
    """An Event of the Reservation, and a line of the log."""

    reason: str
    note: str
    is_warning: bool = False


Action = (
    CreatePlaceholder | Nominate | DeletePlaceholder | AnnotatePod | Annotate | WriteStatus | DeleteReservation | Say
)


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """What is done about one Reservation, in this order; the first that fails ends it for this round."""

    name: str
    """Empty: about placeholders of none."""
    uid: str
    actions: tuple[Action, ...]
