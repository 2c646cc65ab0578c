"""Cookies of core scheduling of the processes in containers: in turns, and at once where a container is new, or where
we wrote."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from koordlite.host.core_cookies import Cookies
from koordlite.model.picture.groups import CoreSched, PodGroups, TaskCookie
from koordlite.observe.rotation import Rotation

READS = "core_sched"
"""What a strategy names to see them (`Strategy.reads`)."""
SECONDS = 30.0
"""Within which a process without a cookie is found in a container: its children inherit one, so that only processes
that enter from outside have none."""
AT_LEAST = 16
_NOT_READ = CoreSched()


class CoreCookieReader:
    """Remembers what was read from one turn to the next."""

    def __init__(self, cookies: Cookies) -> None:
        self._cookies = cookies
        self._groups = Rotation(cookies.of_group, seconds=SECONDS, at_least=AT_LEAST)
        self._wanted = False

    def read(self, now: float, places: Iterable[PodGroups], *, wanted: bool) -> CoreSched:
        """Cookies of all containers, pause containers as well; nothing while nobody wants it."""
        self._wanted = wanted
        if not wanted:
            self._groups.clear()
            return _NOT_READ
        missing = self._cookies.missing()
        if missing:
            return CoreSched(missing)
        self._groups.begin(now, fresh=self._cookies.take_written())
        found = self._groups.all(_inside(places))
        self._groups.end()
        return CoreSched("", found)

    def with_new(self, snapshot: CoreSched, places: Iterable[PodGroups], groups: Collection[str]) -> CoreSched:
        """`snapshot` with the containers of `groups` as they are now."""
        if not self._wanted or snapshot.missing:
            return snapshot
        fresh: Mapping[str, tuple[TaskCookie, ...]] = {
            group: found
            for group in _inside(places)
            if group in groups and (found := self._groups.again(group)) is not None
        }
        return CoreSched("", {**snapshot.tasks, **fresh})


def _inside(places: Iterable[PodGroups]) -> list[str]:
    return [group for place in places for group in (*place.containers.values(), *place.sandboxes)]
