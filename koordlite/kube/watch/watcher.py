"""A reflector in a thread: the requests it asks for, made; what it holds, for others to read."""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from koordlite.kube.client import backoff
from koordlite.kube.client.access import Api, ApiError, Stream
from koordlite.kube.client.answers import ApiUnreachable
from koordlite.kube.client.backoff import LINE_SECONDS
from koordlite.kube.watch.reflector import SILENCE_SECONDS, Ask, Reflector, Source, View
from koordlite.kube.watch.store import Feed
from koordlite.model.status import WatchState
from koordlite.threads import Worker

LOG = logging.getLogger(__name__)
T = TypeVar("T")
CONNECT_SECONDS = 3.0
LIST_SECONDS = 600.0
"""A list of a whole cluster may take so long, page by page."""
WORK_SECONDS = 60.0
"""Upper bound of the work after one event."""
_JOIN_SECONDS = 5.0


class Watching(Generic[T]):
    """Keeps one `Reflector` up to date from `start` to `stop`."""

    def __init__(self, api: Api, reflector: Reflector[T], *, monotonic: Callable[[], float]) -> None:
        self._api, self._reflector, self._monotonic = api, reflector, monotonic
        self._lock, self._stop, self._listed = threading.Lock(), threading.Event(), threading.Event()
        self._stream: Stream | None = None
        self._logged, self._logged_at, self._unreachable = "", 0.0, False
        self._thread = Worker(f"watch-{reflector.source.name}", self._run)

    def start(self) -> None:
        """Begin to list and watch."""
        self._thread.start()

    def stop(self) -> None:
        """End, also in the middle of a watch."""
        self._stop.set()
        with self._lock:
            stream = self._stream
        if stream:
            stream.cancel()
        self._thread.join(_JOIN_SECONDS)

    def wait(self, seconds: float) -> bool:
        """Wait until the first answer, good or bad; False when none came in time."""
        return self._listed.wait(seconds)

    def view(self) -> View[T]:
        """The objects now; never waits for the network."""
        with self._lock:
            return self._reflector.view(self._monotonic())

    def state(self) -> WatchState:
        """Trust in the objects: age, errors, refusals."""
        return self.view().state

    @property
    def path(self) -> str:
        """Path of the objects."""
        return self._reflector.path

    def written(self, raw: bytes) -> None:
        """The server's answer to our own write of such an object."""
        with self._lock:
            self._reflector.on_written(raw)

    def _run(self) -> None:
        while not self._stop.is_set():
            with self._lock:
                ask = self._reflector.ask(self._monotonic())
            pause = 0.0 if self._unreachable else max(0.0, ask.at - self._monotonic())
            if self._stop.wait(self._idle(pause, ask)):
                return
            self._api.outage.wait(self, functools.partial(self._is_stopped, ask))
            if self._stop.is_set():
                return
            self._unreachable = False
            try:
                self._list(ask) if ask.verb == "list" else self._watch(ask)
            except (ApiError, ApiUnreachable) as error:
                if not self._stop.is_set() and not self._failed(error) and ask.streams:
                    continue  # The server does not stream this list; what it says to the list is its answer.
            self._listed.set()
        self._api.outage.leave(self)

    def _idle(self, pause: float, ask: Ask) -> float:
        """`pause`, and a sign of life that covers it and the request after it."""
        is_list = ask.verb == "list" or ask.streams
        self._thread.beat(pause + (LIST_SECONDS if is_list else CONNECT_SECONDS + WORK_SECONDS))
        return pause

    def _is_stopped(self, ask: Ask) -> bool:
        """Tell whether it is to end; a sign of life while the server cannot be reached and another watch tries."""
        self._idle(0.0, ask)
        return self._stop.is_set()

    def _failed(self, error: ApiError | ApiUnreachable) -> bool:
        """Logged when it comes up, and when it changes at most once a minute. False for what is no failure."""
        now = self._monotonic()
        with self._lock:
            self._reflector.on_error(error, now)
            failed = bool(self._reflector.view(now).state.error)
        if isinstance(error, ApiUnreachable):
            self._unreachable = True
            self._api.outage.failed(self, str(error))
            return True
        self._api.outage.answered()
        if not failed:
            LOG.info("watch of %s: the list is read again: %s", self._reflector.source.name, error)
        elif str(error) != self._logged and (not self._logged or now - self._logged_at >= LINE_SECONDS):
            LOG.warning("watch of %s: %s", self._reflector.source.name, error)
            self._logged_at = now
        self._logged = str(error)
        return failed

    def _list(self, ask: Ask) -> None:
        page = self._api.collect(ask.path, ask.query, *(() if ask.paged else (0,)))
        self._api.outage.answered()
        with self._lock:
            self._reflector.on_list(page.resource_version, page.items, self._monotonic())
        self._logged = ""

    def _watch(self, ask: Ask) -> None:
        timeout = (CONNECT_SECONDS, SILENCE_SECONDS if ask.streams else ask.silence_seconds)
        with self._api.stream(ask.path, query=ask.query, timeout=timeout) as lines:
            self._began(lines)
            try:
                self._thread.beat(ask.silence_seconds + WORK_SECONDS)
                listing = ask.streams
                for line in lines:
                    self._thread.beat(WORK_SECONDS)
                    self._line(line)
                    self._thread.beat(ask.silence_seconds + WORK_SECONDS)
                    if listing and not self._reflector.is_listing:
                        # From here on it is a watch like others.
                        listing, self._logged = False, ""
                        self._listed.set()
                        if not lines.extend(ask.silence_seconds):
                            break
            finally:
                self._began(None)
        with self._lock:
            self._reflector.on_end(self._monotonic())

    def _line(self, line: bytes) -> None:
        with self._lock:
            self._reflector.on_line(line, self._monotonic())

    def _began(self, lines: Stream | None) -> None:
        if lines:
            self._api.outage.answered()
        with self._lock:
            self._stream = lines
            if lines:
                self._reflector.on_watch(self._monotonic())
        if lines and self._stop.is_set():
            lines.cancel()


def fed(
    api: Api,
    source: Source[T],
    put: Callable[[T], object],
    removed: Callable[[str], object],
    *,
    monotonic: Callable[[], float],
) -> Watching[T]:
    """A watch that hands objects on, and the keys of those that went, and keeps none."""
    feed = Feed(source.kind, source.shape, put=put, removed=removed)
    return Watching(api, Reflector(source, uniform=backoff.uniform, store=feed), monotonic=monotonic)
