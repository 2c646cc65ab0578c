"""Actions at moments of the wall clock."""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

LOG = logging.getLogger(__name__)


class Timeline:
    """`topocluster.Events` on the wall clock: one thread does what is due."""

    def __init__(self, name: str) -> None:
        self._start, self._ready = time.monotonic(), threading.Condition()
        self._queue: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count, self._over = itertools.count(), False
        self.failures: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def now(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self._start

    def after(self, seconds: float, action: Callable[..., None], *arguments: Any) -> None:
        """Do it in so many seconds."""
        self.at(self.now + seconds, action, *arguments)

    def at(self, when: float, action: Callable[..., None], *arguments: Any) -> None:
        """Do it then; among things due at one moment, in the order in which they were asked for."""
        with self._ready:
            heapq.heappush(self._queue, (when, next(self._count), action, arguments))
            self._ready.notify()

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End; what is not due yet is not done."""
        with self._ready:
            self._over = True
            self._ready.notify()
        self._thread.join(10.0)

    def _run(self) -> None:
        while True:
            with self._ready:
                while not self._over and not (self._queue and self._queue[0][0] <= self.now):
                    self._ready.wait(self._queue[0][0] - self.now if self._queue else None)
                if self._over:
                    return
                _, _, action, arguments = heapq.heappop(self._queue)
            try:
                action(*arguments)
            except Exception as error:  # The next action has its turn all the same; the test fails by `failures`.
                LOG.exception("an action of the timeline failed")
                self.failures.append(error)
