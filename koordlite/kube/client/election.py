"""Keeps the lease in a thread of its own, and notifies the work at once when it is lost."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

from koordlite.kube.client.lease import Candidate
from koordlite.threads import WITHIN_SECONDS, Worker

_JOIN_SECONDS = 10.0


class Election:
    """Runs a `Candidate`. `gained` and `lost` are called one after the other, never both at once.

    A second thread watches the deadline, since the first may hang in a request: `lost` comes on time all the same.
    """

    def __init__(
        self, candidate: Candidate, *, gained: Callable[[], None] | None = None, lost: Callable[[], None] | None = None
    ) -> None:
        self.candidate = candidate
        self._gained, self._lost = gained or _nothing, lost or _nothing
        self._stop, self._stepped = threading.Event(), threading.Event()
        self._asks = Worker("lease", self._ask)
        self._tells = Worker("lease-deadline", self._tell)

    def start(self) -> None:
        """Begin to ask for the lease."""
        self._asks.start()
        self._tells.start()

    def stop(self) -> None:
        """End: `lost` is called if it was held, and then the lease is given back."""
        self._stop.set()
        self._stepped.set()
        for thread in (self._tells, self._asks):
            thread.join(_JOIN_SECONDS)
        if not self._asks.is_alive():
            self.candidate.release()

    def _ask(self) -> None:
        while not self._stop.is_set():
            pause = self.candidate.step()
            self._stepped.set()
            self._asks.beat(pause + WITHIN_SECONDS)
            self._stop.wait(pause)

    def _tell(self) -> None:
        leading = False
        while not self._stop.is_set():
            # Woken by each attempt, and by the deadline of the last one that was granted.
            pause = self.candidate.remaining_seconds() if leading else math.inf
            self._tells.beat(pause + WITHIN_SECONDS)
            self._stepped.wait(pause if leading else None)
            self._stepped.clear()
            self._tells.beat()
            if self.candidate.is_leader() != leading and not self._stop.is_set():
                leading = not leading
                (self._gained if leading else self._lost)()
        if leading:
            self._lost()


def _nothing() -> None:
    """Nothing listens."""
