"""A place on its way to a pod: what is noted on the Reservation, and how long an attempt lasts and the next one waits.

It is in the API so that another process can go on, and so that an extender elsewhere keeps other pods off.
"""

from __future__ import annotations

import msgspec

from koordlite.model import keys, times
from koordlite.model.errors import InputError
from koordlite.model.wire.reservation import HandOverText, ReservationObject
from koordlite.reservation.matching import read as read_annotation

PATIENCE_SECONDS = 30.0
"""A pod that is not bound so long after its place was freed for it gives the place back."""
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 10.0, 300.0
"""Pauses before the next attempt with the same pod; doubled after each."""


def read_or_raise(reservation: ReservationObject) -> HandOverText | None:
    """Contents of the annotation; InputError when it cannot be read."""
    owner = f"reservation/{reservation.metadata.name}"
    return read_annotation(HandOverText, reservation.metadata.annotations, keys.HAND_OVER, owner)


def read(reservation: ReservationObject) -> HandOverText | None:
    """The same; None when it cannot be read: `validity.problems` reports that."""
    try:
        return read_or_raise(reservation)
    except InputError:
        return None


def under_way(reservation: ReservationObject) -> HandOverText | None:
    """The hand-over that is not over yet."""
    text = read(reservation)
    return text if text is not None and text.uid and not text.ended else None


def begin(namespace: str, name: str, uid: str, *, before: HandOverText | None, now: float, remainder: str) -> str:
    """The annotation of a new attempt; `before` is what it says until now."""
    tries = before.tries if before is not None and before.uid == uid else 0
    text = HandOverText(namespace=namespace, name=name, uid=uid, since=times.show(now), tries=tries, rest=remainder)
    return msgspec.json.encode(text).decode()


def give_up(attempt: HandOverText, now: float, remainder: str) -> str:
    """The annotation after the pod did not come; `remainder` holds the place from now on."""
    text = msgspec.structs.replace(attempt, ended=times.show(now), tries=attempt.tries + 1, rest=remainder)
    return msgspec.json.encode(text).decode()


def with_rest(reservation: ReservationObject, remainder: str) -> str:
    """The annotation when a placeholder is made without a hand-over."""
    return msgspec.json.encode(msgspec.structs.replace(read(reservation) or HandOverText(), rest=remainder)).decode()


def is_late(attempt: HandOverText, now: float) -> bool:
    """The pod had time enough. Without a readable beginning it had none."""
    since = times.parse_or_none(attempt.since)
    return since is None or now - since > PATIENCE_SECONDS


def may_try(reservation: ReservationObject, uid: str, now: float) -> bool:
    """Tell whether the pause after the last attempt with this pod is over."""
    last = read(reservation)
    if last is None or last.uid != uid:
        return True
    ended = times.parse_or_none(last.ended)
    pause = min(FIRST_PAUSE_SECONDS * 2 ** max(min(last.tries, 10) - 1, 0), LONGEST_PAUSE_SECONDS)
    return ended is None or now - ended >= pause
