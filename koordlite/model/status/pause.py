"""A pause: for a while an agent only observes."""

from __future__ import annotations

from typing import Literal

import msgspec

ANNOTATION = "agent.koordlite.io/pause"
"""On the Node: a JSON object with `until` (RFC 3339), `because`, and `inForce`: keep or release."""

By = Literal["command", "annotation"]


class Pause(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing is written until it ends: decisions are made and reported as in mode observe."""

    until: float
    """When it ends by itself, in seconds since the epoch."""
    because: str
    """The reason given with the request."""
    release: bool = False
    """Whether what is in force is given back. Otherwise it stays as it stands."""
    by: By = "command"
    """Who asked: `koordlite pause` on this machine, or the annotation of the Node."""

    def holds(self, wall: float) -> bool:
        """Whether it has not ended at `wall`, in seconds since the epoch."""
        return wall < self.until


def together(*asked: Pause | None) -> Pause | None:
    """What holds when several were asked for: the one that ends last, and a release where any of them says so."""
    found = [pause for pause in asked if pause is not None]
    if not found:
        return None
    last = max(found, key=lambda pause: pause.until)
    return msgspec.structs.replace(last, release=any(pause.release for pause in found))
