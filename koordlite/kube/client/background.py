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


class _Errand(msgspec.Struct):
    what: Hashable
    work: Callable[[], Any]
    begun: float
    future: Future[Any] = msgspec.field(default_factory=Future)


class BackgroundRequests:
    """Runs one piece of work at a time. Who asks again with the same words gets the answer of the first time."""

    def __init__(self, name: str) -> None:
        self._errands: dict[Hashable, _Errand] = {}
        self._queue: queue.SimpleQueue[_Errand | None] = queue.SimpleQueue()
        self._thread = Worker(name, self._run)
        self._thread.start()

    def send(self, to: Hashable, what: Hashable, work: Callable[[], T], *, patience_seconds: float) -> T:
        """Have `work` done for `to` and return what it returns, or raise what it raises.
        ApiUnreachable (EINPROGRESS) when it is not done in time: it goes on, and the same `what` asked again gets its
        answer. Another `what` for the same `to` waits for the first, whose answer is then of no interest. Patience
        counts from the first time: who asks again does not wait again."""
        now = time.monotonic()
        old = [to for to, e in self._errands.items() if e.future.done() and now - e.begun > FORGET_SECONDS]
        for name in old:
            del self._errands[name]
        errand = self._errands.get(to)
        if errand is not None and errand.what != what:
            self._fetch(to, errand, patience_seconds)
            errand = None
        if errand is None:
            errand = self._errands[to] = _Errand(what, work, time.monotonic())
            self._queue.put(errand)
        return self._fetch(to, errand, patience_seconds).result()  # type: ignore[no-any-return]

    def stop(self, seconds: float = 1.0) -> None:
        """Begin nothing more; wait that long for what is under way."""
        self._queue.put(None)
        self._thread.join(seconds)

    def _fetch(self, to: Hashable, errand: _Errand, patience_seconds: float) -> Future[Any]:
        try:
            errand.future.exception(timeout=max(0.0, errand.begun + patience_seconds - time.monotonic()))
        except TimeoutError as late:
            if not errand.future.done():
                # Without the seconds so far: what stays the same is reported once.
                raise ApiUnreachable(errno.EINPROGRESS, "no answer yet, still asking", str(to)) from late
        del self._errands[to]
        return errand.future

    def _run(self) -> None:
        while True:
            self._thread.beat(math.inf)
            errand = self._queue.get()
            self._thread.beat(FORGET_SECONDS)
            if errand is None:
                return
            try:
                errand.future.set_result(errand.work())
            except BaseException as error:  # noqa: BLE001 - whatever it is, it belongs to who asked
                errand.future.set_exception(error)
