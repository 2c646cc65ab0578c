"""Pauses after failures, and an API server that cannot be reached: one watch tries again, the others wait for it."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable

FIRST_SECONDS = 1.0
LAST_SECONDS = 30.0
LONGEST_ASKED_SECONDS = 600.0
"""A server that asks for more patience than this is asked again all the same."""

Uniform = Callable[[float, float], float]
"""A random number between two, as `random.uniform`."""
uniform: Uniform = random.Random().uniform
"""Pauses have a generator of their own: drawing from the global one would change what its seeded users get."""


def pause(failures: int, uniform: Uniform, *, retry_after: float | None = None, last: float = LAST_SECONDS) -> float:
    """Seconds until the next try after `failures` in a row: 1, 2, 4 … `last`, up to half as much more at random.
    `retry_after` is the header of the answer."""
    own = min(FIRST_SECONDS * 2.0 ** min(max(failures, 1) - 1, 16), last)
    jittered = own * uniform(1.0, 1.5)
    return max(jittered, min(retry_after or 0.0, LONGEST_ASKED_SECONDS))


LOG = logging.getLogger(__name__)
LONGEST_SECONDS = 10 / 3
"""Longest pause between two tries; with what is added at random 5 s."""
LINE_SECONDS = 60.0
"""One log line in so long while it lasts."""
_SLICE_SECONDS = 0.5
"""Longest time for which a stop may go unnoticed."""


class Outage:
    """Shared by the watches of one API server; safe to use from several threads."""

    def __init__(self, *, monotonic: Callable[[], float] = time.monotonic, uniform: Uniform = uniform) -> None:
        self._monotonic, self._uniform = monotonic, uniform
        self._changed = threading.Condition()
        self._since: float | None = None
        self._failures = 0
        self._next = 0.0
        self._prober: object = None
        self._line_at = float("-inf")

    def wait(self, who: object, is_over: Callable[[], bool]) -> None:
        """Return when `who` may send a request: after an answer, in its turn to try, or when `is_over`."""
        with self._changed:
            while self._since is not None and not is_over():
                remaining = self._next - self._monotonic()
                if self._prober is None and remaining <= 0:
                    self._prober = who
                    return
                self._changed.wait(
                    min(max(remaining, 0.01), _SLICE_SECONDS) if self._prober is None else _SLICE_SECONDS
                )

    def failed(self, who: object, why: str) -> None:
        """The request of `who` had no answer. That others fail meanwhile makes no pause longer."""
        with self._changed:
            now = self._monotonic()
            if self._since is None or self._prober is who:
                self._since = now if self._since is None else self._since
                self._failures += 1
                self._next = now + pause(self._failures, self._uniform, last=LONGEST_SECONDS)
                self._prober = None
            if now - self._line_at >= LINE_SECONDS:
                self._line_at = now
                LOG.warning("the API server cannot be reached for %.0f s: %s", now - self._since, why)

    def answered(self) -> None:
        """There was an answer, good or bad: all may ask."""
        with self._changed:
            if self._since is None:
                return
            LOG.info("the API server answers again, after %.0f s", self._monotonic() - self._since)
            self._since, self._failures, self._prober = None, 0, None
            self._changed.notify_all()

    def leave(self, who: object) -> None:
        """`who` asks no more: another one tries."""
        with self._changed:
            if self._prober is who:
                self._prober = None
                self._changed.notify_all()
