"""Watch: events after a resourceVersion, filtered, with bookmarks, until the time is over."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator

from apiserver import conversion, reads, selectors, status
from apiserver.cluster import Cluster
from apiserver.requests import Request, Target
from apiserver.resources import Resource
from apiserver.store import Change, Object, stamped

DEFAULT_SECONDS = 3600.0
"""How long a watch lasts when the client does not say."""
_BOOKMARK_SECONDS = 60.0
_LAST_SECONDS = 2.0
_LAST_STEP = 0.99
_WAIT_SECONDS = 0.5
"""The longest wait for events before the stop of the server is noticed."""

Event = tuple[str, Object]


@dataclasses.dataclass(frozen=True, slots=True)
class Watch:
    """What to watch, and from where."""

    resource: Resource
    version: str
    matches: selectors.Matches
    since: int | None
    """None: begin with the present state."""
    seconds: float
    bookmarks: bool
    initial: bool = False
    """Begin with the present state, and say where it ends."""


def asked(cluster: Cluster, resource: Resource, at: Target, request: Request) -> Watch:
    """The watch a request asks for; Refused when the query cannot be."""
    reads.check_match({**request.query, "watch": "true"}, streams=cluster.streams)
    seconds = reads.number(request.query.get("timeoutSeconds", ""))
    version = request.query.get("resourceVersion", "")
    since = reads.watched_revision_of(version) if version else 0
    matches = reads.chosen(cluster, resource, at, request)
    return Watch(
        resource,
        at.version,
        matches,
        since or None,
        float(seconds) if seconds > 0 else DEFAULT_SECONDS,
        request.query.get("allowWatchBookmarks") in ("true", "1"),
        request.query.get("sendInitialEvents") in ("true", "1"),
    )


def too_old(cluster: Cluster, watch: Watch) -> Object | None:
    """The ERROR object of a watch that would miss events."""
    since, store = watch.since, cluster.store
    if since is None or watch.initial:
        return None
    if watch.resource.cached:
        window = store.window(watch.resource.key)
        return status.expired(f"too old resource version: {since} ({window})").body if since < window else None
    gone = since < max(store.compacted, store.window(watch.resource.key))
    return status.expired("The resourceVersion for the provided watch is too old.").body if gone else None


def events(cluster: Cluster, watch: Watch, stopped: Callable[[], bool]) -> Iterator[Event | None]:
    """Events in order until the time is over; None now and then while there is none.

    A watch sees the state of the moment of this call, however late somebody asks for the first event.
    """
    store = cluster.store
    with store.lock:
        old = too_old(cluster, watch)
        begins = watch.since is None or watch.initial
        present = store.listed(watch.resource.key) if begins else []
        reached = watch.since if watch.since is not None and not watch.initial else store.revision
    if old is not None:
        return iter([("ERROR", old)])
    first = [each for each in present if watch.matches(each)]
    first = first if watch.initial else cluster.shuffled(first)
    bookmarks = _Bookmarks(cluster, watch, cluster.clock.monotonic() + watch.seconds)
    added: Iterator[Event] = (("ADDED", conversion.shown(item, watch.resource, watch.version)) for item in first)
    end = [bookmarks.mark(reached, ends=True)] if watch.initial and watch.bookmarks else []
    return itertools.chain(added, end, _later(bookmarks, reached, stopped))


def _later(bookmarks: _Bookmarks, reached: int, stopped: Callable[[], bool]) -> Iterator[Event | None]:
    """Events after a revision."""
    cluster, watch, ends = bookmarks.cluster, bookmarks.watch, bookmarks.ends
    while not stopped() and cluster.clock.monotonic() < ends:
        changes = _next(cluster, watch, reached, min(ends, bookmarks.due))
        if changes is None:
            return
        for change in changes:
            reached = change.revision
            event = _filtered(change, watch)
            if event is not None:
                yield event[0], conversion.shown(event[1], watch.resource, watch.version)
        if not changes:
            yield bookmarks.event()


def _next(cluster: Cluster, watch: Watch, reached: int, until: float) -> list[Change] | None:
    """Changes after `reached`, empty when none came in time; None for a watch so slow that some are forgotten."""
    store, key = cluster.store, watch.resource.key
    with store.lock:
        if not store.changes(key, reached):
            left = until - cluster.clock.monotonic()
            cluster.clock.wait(store.lock, max(0.0, min(left, _WAIT_SECONDS)))
        return None if store.has_dropped(key, reached) else store.changes(key, reached)


def _filtered(change: Change, watch: Watch) -> Event | None:
    """The event a selector makes of a change: leaving is DELETED with the old state, entering is ADDED."""
    was = change.before is not None and watch.matches(change.before)
    is_now = change.after is not None and watch.matches(change.after)
    if is_now and change.after is not None:
        return ("MODIFIED" if was else "ADDED"), change.after
    if was and change.before is not None:
        return "DELETED", stamped(change.before, change.revision)
    return None


class _Bookmarks:
    """One a minute, and one a second in the last two, as the watch cache sends them."""

    def __init__(self, cluster: Cluster, watch: Watch, ends: float) -> None:
        self.cluster, self.watch, self.ends = cluster, watch, ends
        self._begun = cluster.clock.monotonic()
        self.due = self._following(self._begun)

    def event(self) -> Event | None:
        """The bookmark that is due, if one is."""
        now = self.cluster.clock.monotonic()
        if not self.watch.bookmarks or now < self.due or now >= self.ends:
            return None
        self.due = self._following(now)
        return self.mark(self.cluster.store.seen(self.watch.resource.key))

    def mark(self, revision: int, *, ends: bool = False) -> Event:
        """A bookmark at a revision; `ends`: the list is whole up to here."""
        resource = self.watch.resource
        head = {"kind": resource.kind, "apiVersion": resource.api_version(self.watch.version)}
        notes = {"annotations": {"k8s.io/initial-events-end": "true"}} if ends else {}
        return "BOOKMARK", head | {"metadata": {"resourceVersion": str(revision), "creationTimestamp": None, **notes}}

    def _following(self, now: float) -> float:
        last = self.ends - _LAST_SECONDS
        if self.ends - self._begun <= _LAST_SECONDS:
            return float("inf")
        return min(now + _BOOKMARK_SECONDS, last) if now < last else now + _LAST_STEP
