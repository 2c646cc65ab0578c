"""Simulated time: actions in the order in which they are due."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from typing import Any


class Events:
    """A queue of actions. `now` is in seconds from the beginning."""

    def __init__(self) -> None:
        self.now = 0.0
        self._queue: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = itertools.count()

    def after(self, seconds: float, action: Callable[..., None], *arguments: Any) -> None:
        """Do it in so many seconds."""
        self.at(self.now + seconds, action, *arguments)

    def at(self, when: float, action: Callable[..., None], *arguments: Any) -> None:
        """Do it then, in the order in which it was asked for among things due at one moment."""
        heapq.heappush(self._queue, (when, next(self._count), action, arguments))

    def run(self, until: float) -> None:
        """Do all that is due until then."""
        while self._queue and self._queue[0][0] <= until:
            self.now, _, action, arguments = heapq.heappop(self._queue)
            action(*arguments)
        self.now = until
