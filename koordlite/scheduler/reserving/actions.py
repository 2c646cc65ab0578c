"""Actions of a round on the cluster, as values. Each is one request; between any two of them the process may end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from koordlite.formulas.reservation import lifecycle
from koordlite.model import keys
from koordlite.model.wire.reservation import ReservationStatus


class CreatePlaceholder(msgspec.Struct, frozen=True, kw_only=True):
    """Make a pod; when there is one of its name, nothing."""

    namespace: str
    body: Mapping[str, Any]
    node: str = ""
    """Where room is to be kept for it."""


class Nominate(msgspec.Struct, frozen=True, kw_only=True):
    """Have the scheduler keep room for a pod on a node; empty: no longer."""

    namespace: str
    name: str
    uid: str
    node: str


class DeletePlaceholder(msgspec.Struct, frozen=True, kw_only=True):
    """Delete a pod at once, if it is still this one."""

    namespace: str
    name: str
    uid: str
    why: str


class AnnotatePod(msgspec.Struct, frozen=True, kw_only=True):
    """Note on an owner which Reservation it took."""

    namespace: str
    name: str
    uid: str
    annotations: Mapping[str, str]


class Annotate(msgspec.Struct, frozen=True, kw_only=True):
    """Change annotations of the Reservation; None removes one."""

    annotations: Mapping[str, str | None]


class WriteStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Change the Reservation's status."""

    before: ReservationStatus
    after: ReservationStatus


class DeleteReservation(msgspec.Struct, frozen=True, kw_only=True):
    """Its time to be kept is over."""


class Say(msgspec.Struct, frozen=True, kw_only=True):
    """An Event of the Reservation, and a line of the log."""

    reason: str
    note: str
    is_warning: bool = False


Action = (
    CreatePlaceholder | Nominate | DeletePlaceholder | AnnotatePod | Annotate | WriteStatus | DeleteReservation | Say
)


class Step(msgspec.Struct, frozen=True):
    """Actions about one Reservation, in this order; the first that fails ends it for this round."""

    name: str
    """Empty: about placeholders of none."""
    uid: str
    actions: tuple[Action, ...]

    @property
    def is_independent(self) -> bool:
        """Tell whether it takes no room that another Reservation's plan counts on: the scheduler finds the place of its
        placeholder, or what is written about it says where it is already."""
        return all(_takes_no_room(action) for action in self.actions)


def _takes_no_room(action: Action) -> bool:
    match action:
        case Say():
            return True
        case CreatePlaceholder():
            return not action.node
        case Annotate():
            return action.annotations.keys() <= {keys.RESOURCE_STATUS}
        case WriteStatus():
            before, after = action.before, action.after
            return not lifecycle.has_ended(after) and before.current_owners == after.current_owners
    return False
