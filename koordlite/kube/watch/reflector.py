"""List and watch as a state machine: what happened goes in, what to ask next and when comes out. No I/O, no clock.

Source of the rules: the API conventions of Kubernetes on resource versions, bookmarks and 410, and what an API server
did when it was watched: a watch that is too old is HTTP 200 with one ERROR line, a list from the cache ignores
`limit`, bookmarks come about once a minute.

The list itself comes as a stream (WatchList) from a server that does that: the server then holds one object at a time
in memory instead of all of them, and so do we. One that refuses, or does not end such a list, is asked for lists.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Generic, Literal, TypeVar

import msgspec

from koordlite.kube.client import backoff
from koordlite.kube.client.answers import NO_STREAMS, STREAM_QUERY, ApiError, bookmark, watch_event
from koordlite.kube.client.backoff import LONGEST_SECONDS, Uniform
from koordlite.kube.watch.store import Store
from koordlite.model.errors import Problem
from koordlite.model.status import WatchState

T = TypeVar("T")

WATCH_SECONDS = (240.0, 480.0)
"""Length of a watch, at random between these, so that the agents of a cluster do not come back together."""
UNMARKED_WATCH_SECONDS = (50.0, 60.0)
"""The same with a server that sends no bookmarks: then only the end of a watch says that nothing was missed."""
SILENCE_SECONDS = 15.0
"""A watch that did not end so long after its time is dead."""
VOUCH_SECONDS = 75.0
"""An open watch vouches for what is held so long after its last line; bookmarks come about each 60 s."""
SPACING_SECONDS = 1.0
"""Least time between the starts of two watches, whatever ends them."""
LIVED_SECONDS = 5.0
"""A watch that lived so long, or brought an event, worked: failures before it are forgotten."""
FAILURES_TO_RELIST = 5
"""Number of failed watches in a row after which the list is read again."""
REFUSED_SECONDS = 60.0
"""Longest pause after 401 and 403: permissions have to change first."""
VERSION_CHARACTERS = 128
"""Longest resource version; those of etcd are numbers of 64 bits."""
ABSENT_SECONDS = 300.0
"""Longest pause while the server does not know the kind: it has to be installed first."""

_PATIENT = frozenset({401, 403, 429, 500, 502, 503, 504})
"""Answers to a watch that say nothing about its resource version."""
_NOT_THAT_VERSION = frozenset({400, 410, 422, 504})
"""Answers to a list that cannot be shown as of the version asked for."""


class Source(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """A list that is watched."""

    name: str
    kind: str
    shape: type[T]
    paths: tuple[str, ...]
    """Paths, the best first: versions of an API group that not every server has."""
    query: tuple[tuple[str, str], ...] = ()
    """Selectors."""
    optional: bool = False
    """True where a server without this kind is in order. Objects of any other kind stay when it is denied."""


class Ask(msgspec.Struct, frozen=True):
    """The next request: not before the moment `at`."""

    verb: Literal["list", "watch"]
    at: float
    path: str
    query: tuple[tuple[str, str], ...]
    paged: bool
    """True where the list is read in parts."""
    silence_seconds: float
    """Longest time without a line."""
    streams: bool = False
    """True where the watch begins with the list; no line of that may take longer than `SILENCE_SECONDS`."""


class View(msgspec.Struct, Generic[T], frozen=True):
    """The objects at one moment."""

    objects: Mapping[str, T]
    """Objects by `namespace/name`, or by name."""
    state: WatchState
    problems: tuple[Problem, ...]
    listed: bool
    """True once a whole list has been read; before that, a missing object says nothing."""


class Reflector(Generic[T]):
    """Keeps a `Store` like the server's. Call `ask`, do what it says, tell what came of it, and again."""

    def __init__(
        self, source: Source[T], *, uniform: Uniform, store: Store[T] | None = None, streams: bool = True
    ) -> None:
        """`store` keeps the objects; one of its own without. `streams`: lists may come as streams."""
        self.source, self._uniform = source, uniform
        self.store = Store(source.kind, source.shape) if store is None else store
        self._version, self._listed = "", False
        self._streams, self._broken_streams = streams, 0
        self._requested_stream = self.is_listing = False
        """`is_listing`: a list is coming as a stream."""
        # A first state may come from the server's cache: with the agents of a whole cluster starting, that matters.
        self._list_from = "0"
        self._failures, self._pause_until = 0, 0.0
        self._path_index, self._unknown = 0, 0
        self._watch_started: float | None = None
        self._last_watch_at = float("-inf")
        self._had_event = self._bookmarked = False
        self._bookmarks, self._ever_bookmarked = True, False
        self._expired = False
        """True where the version was too old, and no watch has worked since."""
        self._denied = False
        self._last_line_at = 0.0
        self._confirmed_at: float | None = None
        self._lists = self._requests = 0
        self._error = ""

    @property
    def path(self) -> str:
        """Path of the objects at present."""
        return self.source.paths[self._path_index]

    def ask(self, now: float) -> Ask:
        """The next request."""
        self._requests += 1
        self._requested_stream = False
        if not self._version:
            from_cache = (("resourceVersion", self._list_from),) if self._list_from else ()
            at, paged = max(now, self._pause_until), not self._list_from
            if self._streams and self._list_from in ("", "0"):
                self._requested_stream = True
                seconds = int(self._uniform(*WATCH_SECONDS))
                query = (*self.source.query, *STREAM_QUERY, *from_cache, *self._watch_options(seconds))
                return Ask("watch", at, self.path, query, False, seconds + SILENCE_SECONDS, streams=True)
            return Ask("list", at, self.path, self.source.query + from_cache, paged, SILENCE_SECONDS)
        seconds = int(self._uniform(*(WATCH_SECONDS if self._bookmarks else UNMARKED_WATCH_SECONDS)))
        query = (
            *self.source.query,
            ("watch", "true"),
            ("resourceVersion", self._version),
            *self._watch_options(seconds),
        )
        at = max(now, self._pause_until, self._last_watch_at + SPACING_SECONDS)
        return Ask("watch", at, self.path, query, False, seconds + SILENCE_SECONDS)

    def on_list(self, version: str, items: Iterable[msgspec.Raw], now: float) -> None:
        """A whole list at `version`. ApiError when it has none, and so nothing to watch from: as with `on_line`."""
        if not version:
            raise ApiError(0, "", "the list has no resource version: what answered is no API server")
        _check_length(version)
        self.store.replace(items)
        self._has_list(version, now)

    def on_watch(self, now: float) -> None:
        """The server began to answer a watch."""
        self._watch_started = self._last_watch_at = self._last_line_at = now
        self.is_listing = not self._version
        if self.is_listing:
            self.store.begin()
        self._had_event = self._bookmarked = self._denied = False
        self._error = ""

    def on_line(self, line: bytes, now: float) -> None:
        """One line of the watch, or of the list it begins with. ApiError when it is the server's refusal: pass it on to
        `on_error`."""
        self._last_line_at = now
        event, version, ends = watch_event(line), "", False
        match event.type:
            case "ADDED" | "MODIFIED" if self.is_listing:
                self.store.arrive(event.object)
            case "ADDED" | "MODIFIED":
                version = self.store.put(event.object)
            case "DELETED":
                version = self.store.remove(event.object)
            case "BOOKMARK":
                version, ends = bookmark(event.object)
        # A later server may have other types; what they mean is not known.
        _check_length(version)
        if self.is_listing and not ends:
            return
        if self.is_listing:
            if not version:
                raise ApiError(0, "", "the list has no resource version: what answered is no API server")
            self.store.complete()
            self.is_listing, self._broken_streams = False, 0
            self._has_list(version, now)
        if event.type == "BOOKMARK":
            self._bookmarked = self._ever_bookmarked = True
        self._version = version or self._version
        self._had_event, self._expired, self._failures = True, False, 0

    def on_end(self, now: float) -> None:
        """The watch ended in order."""
        if self.is_listing:
            self._broke_stream(now, "the server ended a watch before the list that it was to begin with")
            return
        lived = now - (self._watch_started if self._watch_started is not None else now)
        # Shortly before the end of each watch comes a bookmark, from a server that sends them. Silence to the end is
        # the answer to a version of the future: of a server that was restored from a backup.
        silent = self._ever_bookmarked and not self._had_event and lived >= LIVED_SECONDS
        self._close(now, vouched=not silent)
        if silent:
            self._list_from, self._version = self._version, ""
        if self._had_event or lived >= LIVED_SECONDS:
            self._failures, self._expired = 0, False
        else:
            self._fail(now, "the server ends watches at once")
        if lived >= VOUCH_SECONDS:
            self._bookmarks = self._bookmarked

    def on_error(self, error: ApiError | OSError, now: float) -> None:
        """A request failed, or a watch was refused or cut."""
        watching = bool(self._version)
        if self.is_listing and (not isinstance(error, ApiError) or not error.status):
            self._broke_stream(now, str(error))
            return
        self._close(now, vouched=False)
        self._denied = False
        if not watching and self._requested_stream and isinstance(error, ApiError) and error.status in NO_STREAMS:
            # Whatever is wrong with it, the list says it better.
            self._streams, self._pause_until = False, now
        elif not isinstance(error, ApiError):
            self._fail(now, str(error), last=LONGEST_SECONDS)
        elif error.unknown_resource and self.source.optional:
            self._unserved(error, now)
        elif watching and error.status == HTTPStatus.GONE and not self._expired:
            # The server is there, and only the version is too old: the newest list, at once. A second time in a row
            # is a failure like others.
            self._expired, self._failures, self._pause_until, self._error = True, 0, now, ""
            self._version = self._list_from = ""
        else:
            self._denied = error.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
            away = LONGEST_SECONDS if error.status in _PATIENT else backoff.LAST_SECONDS
            last = REFUSED_SECONDS if self._denied else away
            self._fail(now, str(error), retry_after=error.retry_after_seconds, last=last)
            if watching and error.status not in _PATIENT:
                # Too old, or not a version of this server, restored from a backup: the newest list, not a cache's.
                self._version = self._list_from = ""
            elif not watching and error.status in _NOT_THAT_VERSION:
                self._list_from = ""
        if self._failures >= FAILURES_TO_RELIST and self._version:
            self._version = ""

    def on_written(self, raw: bytes) -> None:
        """The server's answer to our own write, taken over before the watch tells of it."""
        if self._listed:
            self.store.put(raw)

    def view(self, now: float) -> View[T]:
        """The objects now, and how far they can be trusted."""
        confirmed = self._vouched(now)
        state = WatchState(
            name=self.source.name,
            age_seconds=None if confirmed is None else max(0.0, now - confirmed),
            resource_version=self._version,
            objects=len(self.store),
            relists=max(0, self._lists - 1),
            requests=self._requests,
            error=self._error,
            absent=self._unknown > 0,
            denied=self._denied,
        )
        return View(self.store.objects, state, self.store.problems, self._listed)

    def _has_list(self, version: str, now: float) -> None:
        self._version = self._list_from = version
        self._listed, self._confirmed_at = True, now
        self._lists += 1
        self._unknown, self._error, self._denied = 0, "", False

    def _broke_stream(self, now: float, why: str) -> None:
        """A streamed list had no end; a second time in a row it is taken for what the server cannot do."""
        self._close(now, vouched=False)
        self._broken_streams += 1
        if self._broken_streams > 1:
            self._streams = False
        self._fail(now, why, last=LONGEST_SECONDS)

    @staticmethod
    def _watch_options(seconds: int) -> tuple[tuple[str, str], ...]:
        return (("allowWatchBookmarks", "true"), ("timeoutSeconds", str(seconds)))

    def _unserved(self, error: ApiError, now: float) -> None:
        """The server does not have this kind at this path: the next path, and a pause after the last."""
        self._version, self._list_from, self._unknown = "", "0", self._unknown + 1
        self._path_index = self._unknown % len(self.source.paths)
        self.store.replace(())
        self._listed = True
        self._error = str(error)
        if self._path_index == 0:
            self._fail(now, str(error), last=ABSENT_SECONDS)

    def _fail(
        self, now: float, why: str, *, retry_after: float | None = None, last: float = backoff.LAST_SECONDS
    ) -> None:
        self._failures, self._error = self._failures + 1, why
        self._pause_until = now + backoff.pause(self._failures, self._uniform, retry_after=retry_after, last=last)

    def _vouched(self, now: float) -> float | None:
        """Time when the server last vouched for the objects."""
        if self._watch_started is None or self.is_listing:
            return self._confirmed_at
        return now if now - self._last_line_at <= VOUCH_SECONDS else self._last_line_at

    def _close(self, now: float, *, vouched: bool) -> None:
        if self._watch_started is not None:
            self._confirmed_at = now if vouched else self._vouched(now)
        self._watch_started, self.is_listing = None, False


def _check_length(version: str) -> None:
    """A version goes back to the server in the next request."""
    if len(version) > VERSION_CHARACTERS:
        raise ApiError(0, "", f"a resource version of {len(version)} characters: what answered is no API server")
