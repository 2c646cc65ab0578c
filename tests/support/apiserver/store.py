"""Objects with their history: one revision counter, events by kind, and the state at an earlier revision."""

from __future__ import annotations

import bisect
import dataclasses
import threading
from typing import Any

FIRST_REVISION = 100
"""Revision of an empty server; a real one has written its own objects before anybody asks."""

Key = tuple[str, str]
"""(group, plural)."""
Name = tuple[str, str]
"""(namespace, name); the namespace of cluster-wide objects is empty."""
Object = dict[str, Any]


class Compacted(Exception):
    """The state at that revision has been forgotten."""


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """One write."""

    revision: int
    name: Name
    before: Object | None
    after: Object | None
    """None for a deletion."""

    @property
    def last(self) -> Object:
        """The new state, or the last one with the revision of its deletion."""
        if self.after is not None:
            return self.after
        assert self.before is not None, "a change has a state before or after"
        return stamped(self.before, self.revision)


class Store:
    """Everything the server knows. Hold `lock` for a step that must be one; stored objects are never modified."""

    def __init__(self, *, history: int = 4000) -> None:
        self.lock = threading.Condition(threading.RLock())
        self.revision = FIRST_REVISION
        self._history = history
        self._objects: dict[Key, dict[Name, Object]] = {}
        self._changes: dict[Key, list[Change]] = {}
        self._window: dict[Key, int] = {}
        self._dropped: dict[Key, int] = {}
        self._compacted = 0

    def get(self, key: Key, name: Name) -> Object | None:
        """The object, or None."""
        return self._objects.get(key, {}).get(name)

    def listed(self, key: Key) -> list[Object]:
        """All objects of a kind, by namespace and name."""
        found = self._objects.get(key, {})
        return [found[name] for name in sorted(found)]

    def write(self, key: Key, name: Name, after: Object | None) -> Object:
        """Create, replace or (None) remove; the object as watches will show it."""
        with self.lock:
            self.revision += 1
            objects = self._objects.setdefault(key, {})
            before = objects.pop(name, None)
            if after is not None:
                after = objects[name] = stamped(after, self.revision)
            change = Change(self.revision, name, before, after)
            self._remember(key, change)
            self.lock.notify_all()
            return change.last

    def at(self, key: Key, revision: int) -> list[Object]:
        """The objects of a kind as they were; Compacted when that is forgotten."""
        if revision < max(FIRST_REVISION, self._compacted, self._window.get(key, 0)):
            raise Compacted
        state = dict(self._objects.get(key, {}))
        for change in reversed(self.changes(key, revision)):
            if change.before is None:
                state.pop(change.name, None)
            else:
                state[change.name] = change.before
        return [state[name] for name in sorted(state)]

    def changes(self, key: Key, revision: int) -> list[Change]:
        """What happened to a kind after `revision`."""
        known = self._changes.get(key, [])
        return known[bisect.bisect_right(known, revision, key=_revision) :]

    def seen(self, key: Key) -> int:
        """Revision of the last event of a kind: what a cache of it knows."""
        known = self._changes.get(key)
        return known[-1].revision if known else max(FIRST_REVISION, self._window.get(key, 0))

    def window(self, key: Key) -> int:
        """A watch from before this revision has missed events."""
        return self._window.get(key, FIRST_REVISION)

    def has_dropped(self, key: Key, revision: int) -> bool:
        """Whether events after `revision` are no longer known: a watch that has not sent them yet cannot go on."""
        return revision < self._dropped.get(key, 0)

    @property
    def compacted(self) -> int:
        """Before this revision only the newest state of each object is known."""
        return self._compacted

    def compact(self) -> None:
        """Forget earlier states, as etcd does every few minutes; caches of recent events keep theirs."""
        with self.lock:
            self._compacted = self.revision

    def begin(self, key: Key) -> None:
        """A kind is served from now on: a watch from before has missed what went before."""
        self._window.setdefault(key, self.revision)

    def forget_events(self) -> None:
        """Empty the caches of recent events: every watch from an earlier revision gets 410."""
        with self.lock:
            for key in self._objects:
                self._dropped[key] = self.seen(key)
                self._changes[key] = []
                self._window[key] = self.revision
            self.lock.notify_all()

    def _remember(self, key: Key, change: Change) -> None:
        known = self._changes.setdefault(key, [])
        known.append(change)
        if len(known) > 2 * self._history:
            self._dropped[key] = known[-self._history - 1].revision
            del known[: -self._history]
            self._window[key] = known[0].revision - 1


def stamped(item: Object, revision: int) -> Object:
    """The object at a revision."""
    return item | {"metadata": item["metadata"] | {"resourceVersion": str(revision)}}


def _revision(change: Change) -> int:
    return change.revision
