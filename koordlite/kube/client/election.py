"""Keeps the lease in a thread of its own, and notifies the work at once when it is lost."""

from __future__ import annotations

import threading
from collections.abc import Callable

from koordlite.kube.client.lease import Candidate

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
        self._asks = threading.Thread(target=self._ask, name="lease", daemon=True)
        self._tells = threading.Thread(target=self._tell, name="lease-deadline", daemon=True)

    def start(self) -> None:
        """Begin to ask for the lease."""
        self._asks.start()
        self._tells.start()

    def stop(self) -> None:
        """End: `lost` is called if it was held, and then the lease is given back."""
        self._stop.set()
        self._stepped.set()
        for thread in (self._tells, self._asks):
            if thread.is_alive():
                thread.join(_JOIN_SECONDS)
        if not self._asks.is_alive():
            self.candidate.release()

    def _ask(self) -> None:
        while not self._stop.is_set():
            pause = self.candidate.step()
            self._stepped.set()
            self._stop.wait(pause)

    def _tell(self) -> None:
        leading = False
        while not self._stop.is_set():
            # Woken by each attempt, and by the deadline of the last one that was granted.
            self._stepped.wait(self.candidate.remaining_seconds() if leading else None)
            self._stepped.clear()
            if self.candidate.is_leader() != leading and not self._stop.is_set():
                leading = not leading
                (self._gained if leading else self._lost)()
        if leading:
            self._lost()


def _nothing() -> None:
    """Nothing listens."""
