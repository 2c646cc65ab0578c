"""Durations of requests: counted in buckets, by verb, path and status code, for a histogram."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping

from koordlite.kube.client.answers import ApiError, ApiUnreachable
from koordlite.model.status import RequestHistogram, RequestKind

NO_ANSWER = "none"
"""In place of a status code."""


class RequestTimes:
    """Measures; read from other threads."""

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self._now, self._lock = now, threading.Lock()
        self._held: dict[RequestKind, RequestHistogram] = {}

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
                held = self._held.get((verb, path, code), RequestHistogram())
                self._held[verb, path, code] = held.plus(self._now() - began)

    def all(self) -> Mapping[RequestKind, RequestHistogram]:
        """Counted so far."""
        with self._lock:
            return dict(self._held)
