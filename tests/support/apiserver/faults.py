"""Trouble on purpose: what a client must survive. Each fault says which requests it hits and how often."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Sequence
from typing import Any

from apiserver.requests import Target


@dataclasses.dataclass(frozen=True, slots=True)
class Fault:
    """One kind of trouble. Empty selectors match everything; `times` None means until it is taken away."""

    verb: str = ""
    resource: str = ""
    """Plural, or plural/subresource."""
    namespace: str = ""
    name: str = ""
    times: int | None = 1
    skip: int = 0
    """How many matching requests pass unharmed first."""
    status: int = 0
    """Answer with this code instead: 429, 500, 503, 410, ..."""
    retry_after_seconds: int | None = None
    delay_seconds: float = 0.0
    """Wait this long before anything else; the answer then follows."""
    hang: bool = False
    """Accept the request and never answer."""
    drop: bool = False
    """Do the work, then close the connection without an answer."""
    cut_after_lines: int | None = None
    """Watches: close the connection after so many lines, in the middle of the next one if `half_line`."""
    half_line: bool = False
    poison: bool = False
    """Lists and watches: add an object that no client can decode."""
    gone: bool = False
    """Watches: answer with the ERROR line of an expired resourceVersion."""

    def hits(self, target: Target) -> bool:
        """Whether the request is one of those."""
        pairs = (
            (self.verb, target.verb),
            (self.resource, target.full),
            (self.namespace, target.namespace),
            (self.name, target.name),
        )
        return bool(target.resource) and all(wanted in ("", found) for wanted, found in pairs)


class Faults:
    """The faults that are in force; add and clear them from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._faults: list[tuple[Fault, int, int | None]] = []

    def add(self, *faults: Fault) -> None:
        """Put faults in force."""
        with self._lock:
            self._faults += [(fault, fault.skip, fault.times) for fault in faults]

    def clear(self) -> None:
        """Be a good server again."""
        with self._lock:
            self._faults.clear()

    @property
    def waiting(self) -> Sequence[Fault]:
        """Faults that have not been used up."""
        with self._lock:
            return [fault for fault, _, _ in self._faults]

    def strike(self, target: Target) -> Fault | None:
        """The fault that hits a request, counted as used."""
        with self._lock:
            for place, (fault, skip, left) in enumerate(self._faults):
                if fault.hits(target):
                    return self._use(place, fault, skip, left)
        return None

    def _use(self, place: int, fault: Fault, skip: int, left: int | None) -> Fault | None:
        if skip:
            self._faults[place] = (fault, skip - 1, left)
            return None
        if left == 1:
            del self._faults[place]
        else:
            self._faults[place] = (fault, 0, None if left is None else left - 1)
        return fault


REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    422: "Invalid",
    429: "TooManyRequests",
    503: "ServiceUnavailable",
    504: "Timeout",
}


def poisoned(kind: str, api_version: str) -> dict[str, Any]:
    """An object whose fields have the wrong types."""
    meta = {"name": "poison", "namespace": "default", "uid": "poison", "resourceVersion": "1", "labels": ["no", "map"]}
    return {"kind": kind, "apiVersion": api_version, "metadata": meta, "spec": 7, "status": "none"}
