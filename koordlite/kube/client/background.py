"""Slow requests on behalf of a loop that must not wait: they go on in a thread, and the answer is fetched later."""

from __future__ import annotations

import errno
import math
import queue
import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Any, TypeVar

import msgspec

from koordlite.kube.client.answers import ApiUnreachable
from koordlite.threads import Worker

T = TypeVar("T")
FORGET_SECONDS = 600.0
"""An answer nobody fetched is thrown away after this."""


class _Request(msgspec.Struct):
    question: Hashable
    work: Callable[[], Any]
    start: float
    future: Future[Any] = msgspec.field(default_factory=Future)


class BackgroundRequests:
    """Runs one piece of work at a time. The same question asked again gets the answer of the first time."""

    def __init__(self, name: str) -> None:
        self._requests: dict[Hashable, _Request] = {}
        self._queue: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()
        self._thread = Worker(name, self._run)
        self._thread.start()

    def send(self, to: Hashable, question: Hashable, work: Callable[[], T], *, patience_seconds: float) -> T:
        """Have `work` done for `to` and return what it returns, or raise what it raises.
        ApiUnreachable (EINPROGRESS) when it is not done in time: it goes on, and the same `question` asked again gets
        its answer. Another one for the same `to` waits for the first, whose answer is then of no interest. Patience
        counts from the first time: who asks again does not wait again."""
        now = time.monotonic()
        old = [to for to, e in self._requests.items() if e.future.done() and now - e.start > FORGET_SECONDS]
        for name in old:
            del self._requests[name]
        request = self._requests.get(to)
        if request is not None and request.question != question:
            self._fetch(to, request, patience_seconds)
            request = None
        if request is None:
            request = self._requests[to] = _Request(question, work, time.monotonic())
            self._queue.put(request)
        return self._fetch(to, request, patience_seconds).result()  # type: ignore[no-any-return]

    def stop(self, seconds: float = 1.0) -> None:
        """Begin nothing more; wait that long for what is under way."""
        self._queue.put(None)
        self._thread.join(seconds)

    def _fetch(self, to: Hashable, request: _Request, patience_seconds: float) -> Future[Any]:
        try:
            request.future.exception(timeout=max(0.0, request.start + patience_seconds - time.monotonic()))
        except TimeoutError as late:
            if not request.future.done():
                # Without the seconds so far: what stays the same is reported once.
                raise ApiUnreachable(errno.EINPROGRESS, "no answer yet, still asking", str(to)) from late
        del self._requests[to]
        return request.future

    def _run(self) -> None:
        while True:
            self._thread.beat(math.inf)
            request = self._queue.get()
            self._thread.beat(FORGET_SECONDS)
            if request is None:
                return
            try:
                request.future.set_result(request.work())
            except BaseException as error:  # noqa: BLE001 - whatever it is, it belongs to who asked
                request.future.set_exception(error)
