"""How long requests take: counted in buckets, by verb, path and status code, for a histogram."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections.abc import Callable, Iterator, Mapping

from koordlite.kube.client.answers import ApiError, ApiUnreachable

BUCKETS_SECONDS = tuple(0.001 * 4**k for k in range(7))
"""Koordinator's of kubelet_request_duration_seconds."""
NO_ANSWER = "none"
"""In place of a status code."""
Question = tuple[str, str, str]
"""Verb, path, code."""


@dataclasses.dataclass(frozen=True, slots=True)
class Times:
    """Requests of one kind: how many took at most so long, bucket by bucket and all, and their sum in seconds."""

    counts: tuple[int, ...] = (0,) * (len(BUCKETS_SECONDS) + 1)
    seconds: float = 0.0

    def plus(self, seconds: float) -> Times:
        """With one more."""
        bounds = (*BUCKETS_SECONDS, float("inf"))
        return Times(
            tuple(n + (seconds <= b) for n, b in zip(self.counts, bounds, strict=True)), self.seconds + seconds
        )


class RequestTimes:
    """Measures; read from other threads."""

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self._now, self._lock = now, threading.Lock()
        self._held: dict[Question, Times] = {}

    @contextlib.contextmanager
    def measured(self, verb: str, path: str) -> Iterator[None]:
        """Around one request that raises as `Api.request` does; every success counts as 200."""
        began, code = self._now(), "200"
        try:
            yield
        except ApiError as error:
            code = str(error.status)
            raise
        except ApiUnreachable:
            code = NO_ANSWER
            raise
        finally:
            with self._lock:
                held = self._held.get((verb, path, code), Times())
                self._held[verb, path, code] = held.plus(self._now() - began)

    def all(self) -> Mapping[Question, Times]:
        """Counted so far."""
        with self._lock:
            return dict(self._held)
