"""A reflector in a thread: the requests it asks for, made; what it holds, for others to read."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from koordlite.kube.client.access import Api, ApiError, Stream
from koordlite.kube.client.answers import ApiUnreachable
from koordlite.kube.watch.reflector import Ask, Reflector, View
from koordlite.model.status.watch import WatchState

LOG = logging.getLogger(__name__)
T = TypeVar("T")
CONNECT_SECONDS = 3.0
_JOIN_SECONDS = 5.0


class Watching(Generic[T]):
    """Keeps one `Reflector` up to date from `start` to `stop`."""

    def __init__(self, api: Api, reflector: Reflector[T], *, monotonic: Callable[[], float]) -> None:
        self._api, self._reflector, self._monotonic = api, reflector, monotonic
        self._lock, self._stop, self._listed = threading.Lock(), threading.Event(), threading.Event()
        self._stream: Stream | None = None
        self._said = ""
        self._thread = threading.Thread(target=self._run, name=f"watch-{reflector.source.name}", daemon=True)

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
        if self._thread.is_alive():
            self._thread.join(_JOIN_SECONDS)

    def wait(self, seconds: float) -> bool:
        """Wait until the first answer, good or bad; False when none came in time."""
        return self._listed.wait(seconds)

    def view(self) -> View[T]:
        """What is held now; never waits for the network."""
        with self._lock:
            return self._reflector.view(self._monotonic())

    def state(self) -> WatchState:
        """How far what is held can be trusted."""
        with self._lock:
            return self._reflector.view(self._monotonic()).state

    @property
    def path(self) -> str:
        """Where the objects are found."""
        return self._reflector.path

    def written(self, raw: bytes) -> None:
        """The server's answer to our own write of such an object."""
        with self._lock:
            self._reflector.on_written(raw)

    def _run(self) -> None:
        while not self._stop.is_set():
            with self._lock:
                ask = self._reflector.ask(self._monotonic())
            if self._stop.wait(max(0.0, ask.at - self._monotonic())):
                return
            try:
                self._list(ask) if ask.verb == "list" else self._watch(ask)
            except (ApiError, ApiUnreachable) as error:
                if not self._stop.is_set():
                    self._failed(error)
            self._listed.set()

    def _failed(self, error: ApiError | ApiUnreachable) -> None:
        """Logged when it comes up or changes, not at each try."""
        with self._lock:
            self._reflector.on_error(error, self._monotonic())
            failed = bool(self._reflector.view(self._monotonic()).state.error)
        if not failed:
            LOG.info("watch of %s: the list is read again: %s", self._reflector.source.name, error)
        elif str(error) != self._said:
            LOG.warning("watch of %s: %s", self._reflector.source.name, error)
        self._said = str(error)

    def _list(self, ask: Ask) -> None:
        page = self._api.collect(ask.path, ask.query, *(() if ask.paged else (0,)))
        with self._lock:
            self._reflector.on_list(page.resource_version, page.items, self._monotonic())
        self._said = ""

    def _watch(self, ask: Ask) -> None:
        timeout = (CONNECT_SECONDS, ask.silence_seconds)
        with self._api.stream(ask.path, query=ask.query, timeout=timeout) as lines:
            self._began(lines)
            try:
                for line in lines:
                    self._line(line)
            finally:
                self._began(None)
        with self._lock:
            self._reflector.on_end(self._monotonic())

    def _line(self, line: bytes) -> None:
        with self._lock:
            self._reflector.on_line(line, self._monotonic())

    def _began(self, lines: Stream | None) -> None:
        with self._lock:
            self._stream = lines
            if lines:
                self._reflector.on_watch(self._monotonic())
        if lines and self._stop.is_set():
            lines.cancel()
