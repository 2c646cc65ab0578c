"""Nodes compiled and shapes judged as events come, so that no question waits for what could be known before.

A question brings its board up to date with what has changed since the last one. After a start, or a minute without
pods, that is every node of the cluster. And the first pod of a template would have all nodes judged for it.
"""

from __future__ import annotations

import threading

from koordlite.scheduler.extender import Extender
from koordlite.threads import Worker

LOOK_SECONDS = 0.05
MOST_SHAPES = 4
"""Boards that are brought up to date in one look: the lock is free in between."""


class Warmth:
    """Looks for changes in a thread of its own."""

    def __init__(self, extender: Extender) -> None:
        self._extender, self._stop = extender, threading.Event()
        self._worker = Worker("warmth", self._run)

    def start(self) -> None:
        """Begin."""
        self._worker.start()

    def stop(self) -> None:
        """End."""
        self._stop.set()
        if self._worker.is_alive():
            self._worker.join()

    def _run(self) -> None:
        while not self._stop.wait(LOOK_SECONDS):
            self._worker.beat()
            self._extender.warm(MOST_SHAPES)
