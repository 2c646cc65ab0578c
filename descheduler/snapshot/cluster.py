"""Objects from an API server: every list in parts, each object made small before the next part is asked for.

Nodes and pods have to be readable. Of the rest, what may not be read or does not exist is reported, and the rules that
would ask for it know that it is missing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Any

import msgspec

from descheduler.snapshot import files
from descheduler.snapshot.files import Objects
from descheduler.snapshot.pack import Packer
from koordlite.kube.client import backoff
from koordlite.kube.client.access import Api
from koordlite.kube.client.answers import ApiError
from koordlite.kube.watch import sources
from koordlite.kube.watch.reflector import ABSENT_SECONDS, Reflector, Source
from koordlite.kube.watch.store import Store, is_older
from koordlite.kube.watch.watcher import Watching
from koordlite.model.errors import UNREADABLE, Problem
from koordlite.model.wire import crane, metrics, numatopology

LOG = logging.getLogger(__name__)
Place = tuple[str, str]
"""Namespace and name."""
WORTH_EVENTS = 0.33
"""A watch is given up at so many events for each object of the list. Measured: 19 µs for an object that is listed and
has not changed, 56 µs for an event (docs/performance.md)."""
FREE_EVENTS = 200
"""Events that are never too many, however short the list."""
LONGEST_REST = 32
"""Maximum number of cycles for which a kind is listed before a watch of it is tried again."""
WAITING_BYTES = 4 << 20
"""Size of waiting JSON from which on it is made small at once."""


class Changes(msgspec.Struct, frozen=True):
    """The objects that changed since the last time, or why they are not known."""

    version: str = ""
    """Resource version up to which nothing is missing."""
    objects: Mapping[Place, Any] = {}
    """The newest state; None of an object that is gone."""
    why_not: str = ""
    """Reason why they are not known; empty when they are."""
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
        """Reason why a list has to be read instead; empty while it has not."""

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
        self._count_event()
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
        self._count_event()
        return meta.resource_version

    def drain(self) -> Mapping[Place, Any]:
        """Take the changes since the last time; see `refused` before they are believed."""
        self._settle()
        changed, self._small, self._events = self._small, {}, 0
        return changed

    def _count_event(self) -> None:
        self._events += 1
        if self._events > self._most and not self.refused:
            self.refused = f"{self._events} events came since the last cycle, and to read the list costs less"

    def _settle(self) -> None:
        for place, raw in self._raw.items():
            try:
                self._small[place] = files.decode(raw, self._kind, self._packer)
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

    def changes(self) -> Changes:
        """The changes since the last time, or why they are not known."""
        with self._lock:
            state = self._reflector.view(self._monotonic()).state
            changed = self._pending.drain()
            refused, is_open = self._pending.refused, self._stream is not None
        if refused:
            return Changes(why_not=refused, rest=True)
        if not state.resource_version:
            why = state.error or "the server no longer knows the version from which on to watch"
            return Changes(why_not=why, rest=state.denied)
        if not is_open or state.age_seconds:
            silent = f"the server was silent for {state.age_seconds:.0f} s" if is_open else "the watch is not open yet"
            return Changes(why_not=state.error or silent, rest=state.denied)
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
        """Number of further cycles in which a kind is listed, by kind."""
        self._next_rest: dict[str, int] = {}
        self._absent_until: dict[str, float] = {}
        """Time of the next request for a kind that the server does not have, by kind."""
        self.reasons: dict[str, str] = {}
        """Reason why a list was read the last time a watch could not be used, by kind; empty where one is in use."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of which there is a watch."""
        return tuple(self._tails)

    def changes(self, kind: str) -> Changes | None:
        """The changes since the last cycle; None when the list has to be read."""
        tail = self._tails.get(kind)
        if tail is None:
            return None
        latest = tail.changes()
        if not latest.why_not:
            self.reasons[kind] = ""
            self._next_rest.pop(kind, None)
            return latest
        # The list is read now; after a watch that would most likely end the same way also in the cycles to come.
        self._tails.pop(kind).stop()
        if latest.rest:
            cycles = self._rests[kind] = self._next_rest.get(kind, 1)
            self._next_rest[kind] = min(LONGEST_REST, cycles * 2)
        if self.reasons.get(kind) != latest.why_not:
            LOG.info("%s: the list is read, not the watch: %s", kind, latest.why_not)
        self.reasons[kind] = latest.why_not
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


PATHS: Mapping[str, str] = {
    "Node": "/api/v1/nodes",
    "Pod": "/api/v1/pods",
    "Namespace": "/api/v1/namespaces",
    "PersistentVolumeClaim": "/api/v1/persistentvolumeclaims",
    "PersistentVolume": "/api/v1/persistentvolumes",
    "StorageClass": "/apis/storage.k8s.io/v1/storageclasses",
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "PodDisruptionBudget": "/apis/policy/v1/poddisruptionbudgets",
    "NodeResourceTopology": sources.TOPOLOGY_PATHS[0],
    files.CRANE_KIND: crane.PATH,
    numatopology.KIND: numatopology.PATH,
    "NodeMetric": metrics.NODE_METRICS,
}
"""Path of the list of each kind."""
OLDER: Mapping[str, str] = {
    "NodeResourceTopology": sources.TOPOLOGY_PATHS[1],
}
"""Path on a server that has no newer version: Koordinator's CRD, without attributes."""
NEEDED = ("Node", "Pod")
"""Kinds without which there is no picture."""
_CUSTOM = ("NodeResourceTopology", files.CRANE_KIND, numatopology.KIND, "NodeMetric")
"""Kinds that not every cluster has: their absence is no problem."""


TRIES = 3
"""Times that a list is asked for that a busy server refuses: a cycle is too dear to end at the first 429."""


def read(
    api: Api,
    wait: Callable[[float], object] = time.sleep,
    before: Objects | None = None,
    watches: Watches | None = None,
) -> Objects:
    """All objects that rules ask for. ApiError or ApiUnreachable when nodes or pods cannot be listed.

    A list that is refused with 429 or a fault of the server is asked for again, no sooner than the server wants;
    `wait` passes the seconds. `before`: what was read in the last cycle of this process, or `nothing_yet()`; objects
    that have not changed since stay the same objects, which takes a fraction of the time and no further memory.
    `watches` know what changed since `before`: then only what they do not know is listed. A kind that the server does
    not have is asked for again after five minutes.
    """
    objects = before.successor() if before else Objects()
    listed: dict[str, str] = {}
    for kind in files.SHAPES:
        if kind in PATHS and not (watches and watches.is_absent(kind)):
            changes = watches.changes(kind) if watches and before else None
            if changes and before:
                objects.change(kind, before, changes.objects)
                objects.versions[kind] = before.versions[kind] = changes.version
            else:
                listed[kind] = _read_kind(api, objects, kind, wait, absent=watches.lacks if watches else None)
    if watches:  # Not earlier: had one of the lists failed, the watches of the others would go on from what was lost.
        for kind, path in listed.items():
            if path:
                watches.follow(kind, path, objects)
    objects.known.clear()
    return objects


def nothing_yet() -> Objects:
    """Empty objects for a process that will make one picture after the other."""
    return Objects(packer=Packer(lasting=True))


def _list_patiently(api: Api, objects: Objects, kind: str, path: str, wait: Callable[[float], object]) -> None:
    for failures in range(1, TRIES):
        try:
            return _list(api, objects, kind, path)
        except ApiError as error:
            if error.status != HTTPStatus.TOO_MANY_REQUESTS and error.status < HTTPStatus.INTERNAL_SERVER_ERROR:
                raise
            _forget(objects, kind, path)
            wait(backoff.pause(failures, backoff.uniform, retry_after=error.retry_after_seconds))
    return _list(api, objects, kind, path)


def _read_kind(
    api: Api,
    objects: Objects,
    kind: str,
    wait: Callable[[float], object],
    *,
    paths: Mapping[str, str] = PATHS,
    absent: Callable[[str], object] | None = None,
) -> str:
    """Read a list; returns its path when all of it could be read, and may be watched from there on. `absent` is told
    of a kind that the server does not have."""
    path, problems = paths[kind], len(objects.problems)
    try:
        _list_patiently(api, objects, kind, path, wait)
        return path if len(objects.problems) == problems else ""
    except ApiError as error:
        unserved = error.status == HTTPStatus.NOT_FOUND and kind in _CUSTOM
        if unserved and paths is PATHS and kind in OLDER:
            return _read_kind(api, objects, kind, wait, paths=OLDER, absent=absent)
        if kind in NEEDED:
            raise
        objects.by_kind[kind].clear()
        if unserved and absent:
            absent(kind)
        if not unserved:
            where = f"{api.url}{path}"
            do = f"let the service account list {kind} objects; rules that need them say so"
            objects.problems.append(Problem(where, kind, "", str(error), do))
        return ""


def _list(api: Api, objects: Objects, kind: str, path: str) -> None:
    version, where = "", f"{api.url}{path}"
    for page in api.listed(path):
        if page.restarted:
            _forget(objects, kind, path)
        version = page.resource_version
        if objects.known.get(kind) and is_older(version, objects.versions.get(kind, "")):
            # A server that was restored from a backup gives versions a second time: nothing known may be kept.
            objects.known[kind] = {}
            if objects.by_kind[kind]:
                _forget(objects, kind, path)
                _list(api, objects, kind, path)
                return
        for item in page.items:
            if not objects.reuse(kind, item):
                files.keep(objects, item, kind, where)
    objects.versions[kind] = version


def _forget(objects: Objects, kind: str, path: str) -> None:
    """The list began again: what came before is of an older state."""
    objects.by_kind[kind].clear()
    del objects.repeated[kind]
    objects.problems[:] = [p for p in objects.problems if path not in p.object]
