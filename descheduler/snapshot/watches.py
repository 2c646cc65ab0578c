"""The changes between two cycles: a watch for each kind, from the list that a cycle has read to the next cycle.

A watch keeps the newest state of each object that changed, in JSON, and makes it small when the next cycle asks, or
when many wait. Each watch goes on from a list. Where it lost its place, is refused, brought an object that cannot be
read, or brought so much that the list is cheaper, the next cycle reads the list again, and the log has the reason.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from descheduler.snapshot import files
from descheduler.snapshot.pack import Packer
from koordlite.kube.client import backoff
from koordlite.kube.client.access import Api
from koordlite.kube.watch.reflector import ABSENT_SECONDS, Reflector, Source
from koordlite.kube.watch.store import Store
from koordlite.kube.watch.watcher import Watching
from koordlite.model.errors import UNREADABLE

LOG = logging.getLogger(__name__)
Place = tuple[str, str]
"""Namespace and name."""
WORTH_EVENTS = 0.33
"""A watch is given up at so many events for each object of the list. Measured: 19 µs for an object that is listed and
has not changed, 56 µs for an event (docs/performance.md)."""
FREE_EVENTS = 200
"""So many events are never too many."""
LONGEST_REST = 32
"""Most cycles for which a kind is listed before a watch of it is tried again."""
WAITING_BYTES = 4 << 20
"""When so much JSON waits, it is made small at once."""


class Changes(msgspec.Struct, frozen=True):
    """The objects that changed since the last time."""

    version: str
    """Resource version up to which nothing is missing."""
    objects: Mapping[Place, Any]
    """The newest state; None of an object that is gone."""


class Lost(msgspec.Struct, frozen=True):
    """Changes that are not known."""

    why: str
    rest: bool = False
    """Another watch at once would most likely end the same way."""


class Pending(Store[Any]):
    """The newest state of each object that changed. Used by the thread of a watch, under its lock."""

    def __init__(self, kind: str, packer: Packer, most_events: int) -> None:
        super().__init__(kind, msgspec.Raw)
        self._packer, self._most = packer, most_events
        self._raw: dict[Place, bytes] = {}
        self._small: dict[Place, Any] = {}
        self._bytes = self._events = 0
        self.refused = ""
        """Why a list has to be read instead; empty while it has not."""

    def __len__(self) -> int:
        return len(self._raw) + len(self._small)

    def replace(self, items: Iterable[msgspec.Raw]) -> None:
        """The list was read by the cycle; what changes from now on counts."""
        del items

    def put(self, raw: msgspec.Raw | bytes) -> str:
        """An object is new, or changed."""
        meta = self._meta(raw)
        if meta is None:
            self.refused = "an object without a name came"
            return ""
        place = meta.namespace, meta.name
        self._bytes += len(raw) - len(self._raw.get(place, b""))
        self._raw[place] = bytes(raw)
        self._counted()
        if self._bytes > WAITING_BYTES:
            self._settle()
        return meta.resource_version

    def remove(self, raw: msgspec.Raw | bytes) -> str:
        """An object is gone."""
        meta = self._meta(raw)
        if meta is None:
            return ""
        place = meta.namespace, meta.name
        self._bytes -= len(self._raw.pop(place, b""))
        self._small[place] = None
        self._counted()
        return meta.resource_version

    def taken(self) -> Mapping[Place, Any]:
        """Take the changes since the last time; see `refused` before they are believed."""
        self._settle()
        changed, self._small, self._events = self._small, {}, 0
        return changed

    def _counted(self) -> None:
        self._events += 1
        if self._events > self._most and not self.refused:
            self.refused = f"{self._events} events came since the last cycle, and to read the list costs less"

    def _settle(self) -> None:
        for place, raw in self._raw.items():
            try:
                self._small[place] = files.made(raw, self._kind, self._packer)
            except (*UNREADABLE, OverflowError) as error:
                self.refused = f"{'/'.join(filter(None, place))} cannot be read: {error}"
        self._raw, self._bytes = {}, 0


class Tail(Watching[Any]):
    """A watch from one list on. It ends when it lost its place: then a list has to be read."""

    def __init__(self, api: Api, path: str, version: str, pending: Pending, monotonic: Callable[[], float]) -> None:
        name = path.rpartition("/")[2]
        source: Source[Any] = Source(name=name, kind=name, shape=object, paths=(path,))
        reflector: Reflector[Any] = Reflector(source, uniform=backoff.uniform, store=pending, streams=False)
        reflector.on_list(version, (), monotonic())
        super().__init__(api, reflector, monotonic=monotonic)
        self._pending = pending

    def changes(self) -> Changes | Lost:
        """The changes since the last time, or why they are not known."""
        with self._lock:
            state = self._reflector.view(self._monotonic()).state
            changed = self._pending.taken()
            refused, is_open = self._pending.refused, self._stream is not None
        if refused:
            return Lost(refused, rest=True)
        if not state.resource_version:
            return Lost(state.error or "the server no longer knows the version from which on to watch", state.denied)
        if not is_open or state.age_seconds:
            return Lost(state.error or f"the server was silent for {state.age_seconds or 0.0:.0f} s", state.denied)
        return Changes(state.resource_version, changed)

    def _list(self, ask: object) -> None:
        del ask
        self._stop.set()

    def _line(self, line: bytes) -> None:
        super()._line(line)
        if self._pending.refused:
            self._stop.set()
            if self._stream:
                self._stream.cancel()


class Watches:
    """The watches of one process, one for each kind whose list was read without fault."""

    def __init__(self, api: Api, *, monotonic: Callable[[], float]) -> None:
        self._api, self._monotonic = api, monotonic
        self._tails: dict[str, Tail] = {}
        self._rests: dict[str, int] = {}
        """By kind, for how many more cycles it is listed."""
        self._next_rest: dict[str, int] = {}
        self._absent_until: dict[str, float] = {}
        """By kind that the server does not have, when it is asked for again."""
        self.reasons: dict[str, str] = {}
        """By kind, why its list was read the last time a watch could not be used; empty where one is in use."""

    @property
    def watched(self) -> tuple[str, ...]:
        """The kinds of which there is a watch."""
        return tuple(self._tails)

    def changes(self, kind: str) -> Changes | None:
        """The changes since the last cycle; None when the list has to be read."""
        tail = self._tails.get(kind)
        if tail is None:
            return None
        found = tail.changes()
        if isinstance(found, Changes):
            self.reasons[kind] = ""
            self._next_rest.pop(kind, None)
            return found
        # The list is read now; after a watch that would most likely end the same way also in the cycles to come.
        self._tails.pop(kind).stop()
        if found.rest:
            rest = self._rests[kind] = self._next_rest.get(kind, 1)
            self._next_rest[kind] = min(LONGEST_REST, rest * 2)
        if self.reasons.get(kind) != found.why:
            LOG.info("%s: the list is read, not the watch: %s", kind, found.why)
        self.reasons[kind] = found.why
        return None

    def follow(self, kind: str, path: str, objects: files.Objects) -> None:
        """The list of a kind was read, as `objects` have it: watch it from there on, unless it is given a rest."""
        if self._rests.get(kind):
            self._rests[kind] -= 1
            return
        pending = Pending(kind, objects.packer, max(FREE_EVENTS, int(len(objects.by_kind[kind]) * WORTH_EVENTS)))
        self._tails[kind] = Tail(self._api, path, objects.versions[kind], pending, self._monotonic)
        self._tails[kind].start()

    def lacks(self, kind: str) -> None:
        """Note that the server does not have the kind."""
        self._absent_until[kind] = self._monotonic() + ABSENT_SECONDS

    def is_absent(self, kind: str) -> bool:
        """Tell whether the server did not have the kind when it was last asked, not long ago."""
        return self._monotonic() < self._absent_until.get(kind, float("-inf"))

    def stop(self) -> None:
        """End all of them."""
        for tail in self._tails.values():
            tail.stop()
        self._tails.clear()
