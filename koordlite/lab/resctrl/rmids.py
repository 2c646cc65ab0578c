"""The RMIDs of the machine: handed out in turn, and kept in limbo while a cache may still hold their lines.

Follows `monitor.c` of Linux 6.1 and 6.12. A freed RMID waits for the worker, which checks each cache every second; it
is free again when every cache holds less of it than `max_threshold_occupancy`.
"""

from __future__ import annotations

import collections
import errno
from collections.abc import Callable

from koordlite.lab.machine.rdt import RDT, Monitoring
from koordlite.lab.machine.tree import refusal
from koordlite.lab.resctrl.schemata import DomainLayout

CounterKey = tuple[int, int, str]
"""(cache id, RMID as the hardware numbers it, event)."""

OCCUPANCY = "llc_occupancy"
WORKER_SECONDS = 1.0


class Counters:
    """Occupancy is a level. Bandwidth is a counter of limited width; each read adds what it moved since the last.

    `unit_bytes` are the bytes that a count of 1 stands for.
    """

    def __init__(self, monitoring: Monitoring, unit_bytes: int) -> None:
        self.unit_bytes, self._events = unit_bytes, monitoring.events
        self.width = (1 << monitoring.counter_bits) - 1
        """The largest count of bandwidth."""
        self.raw: dict[CounterKey, int] = {}
        """Values that the hardware shows, in its own unit."""
        self.moved: dict[CounterKey, tuple[int, int]] = {}
        """(hardware value at the last read, counts since the group was made)."""

    def level(self, place: CounterKey, count: int) -> None:
        """Value that the hardware shows of a level."""
        self.raw[place] = count

    def add(self, place: CounterKey, count: int) -> None:
        """Let a counter run."""
        self.raw[place] = (self.raw.get(place, 0) + count) & self.width

    def start(self, cache_id: int, rmid: int) -> None:
        """A group begins: bandwidth counts from here."""
        for event in self._events:
            place = (cache_id, rmid, event)
            self.moved[place] = (self.raw.get(place, 0), 0)

    def bytes(self, place: CounterKey) -> int:
        """Bytes of an event of an RMID."""
        now = self.raw.get(place, 0)
        if place[2] == OCCUPANCY:
            return now * self.unit_bytes
        before, total = self.moved.get(place, (now, 0))
        # A counter that went back has wrapped, as far as the driver can tell.
        total += (now - before) & self.width
        self.moved[place] = (now, total)
        return total * self.unit_bytes


class RMIDs:
    """Free ones, oldest first, and those in limbo with the caches that have to be clean of them."""

    def __init__(self, rdt: RDT, monitoring: Monitoring, layout: DomainLayout, now: Callable[[], float]) -> None:
        # Where the RMIDs of a cache are cut by NUMA node a count stands for a part of the bytes, a threshold does not.
        self.counters = Counters(monitoring, monitoring.unit_bytes // layout.clusters_per_cache)
        self._monitoring, self._layout, self._now = monitoring, layout, now
        self.number = monitoring.rmids // layout.clusters_per_cache
        self.unit = monitoring.unit_bytes
        self.most = rdt.limit_bytes(layout.bytes(3))
        self.threshold = self.most // self.number // self.unit * self.unit
        self._always = rdt.since(6, 9)
        self._free = collections.deque(range(1, self.number))
        self._limbo: dict[int, set[int]] = {}
        self._due = 0.0

    def take(self) -> int:
        """The next free one; OSError EBUSY while the last ones are in limbo, ENOSPC when none is left at all."""
        self.work()
        if not self._free:
            raise refusal(errno.EBUSY if self._limbo else errno.ENOSPC)
        rmid = self._free.popleft()
        self.start(rmid)
        return rmid

    def start(self, rmid: int) -> None:
        """A group begins to count."""
        for cache_id in self._layout.ids(3):
            for place in self.hardware(cache_id, rmid):
                self.counters.start(cache_id, place)

    def give_back(self, rmid: int) -> None:
        """A group is gone. Up to Linux 6.8 the cache next to the caller is checked right away."""
        self.work()
        waiting = set(self._layout.ids(3)) if OCCUPANCY in self._monitoring.events else set()
        if waiting and not self._always and self._occupancy(min(waiting), rmid) <= self.threshold:
            waiting.remove(min(waiting))
        if not waiting:
            self._free.append(rmid)
            return
        if not self._limbo:
            self._due = self._now() + WORKER_SECONDS
        self._limbo[rmid] = waiting

    def hardware(self, cache_id: int, rmid: int) -> list[int]:
        """The numbers that the hardware knows an RMID by, one for each NUMA node that shares the cache."""
        return [rmid + node * self.number for node in range(max(1, len(self._layout.clusters(cache_id))))]

    def work(self) -> None:
        """Do the worker's job up to now."""
        while self._limbo and self._now() >= self._due:
            self._due += WORKER_SECONDS
            before = set(self._limbo)
            present = set(self._layout.ids(3))
            for rmid in sorted(self._limbo):
                waiting = self._limbo[rmid] & present
                self._limbo[rmid] = {i for i in waiting if self._occupancy(i, rmid) >= self.threshold}
                if not self._limbo[rmid]:
                    del self._limbo[rmid]
                    self._free.append(rmid)
            if set(self._limbo) == before:
                # It finds the same again and again, until a counter changes.
                self._due = max(self._due, self._now() + WORKER_SECONDS)

    def _occupancy(self, cache_id: int, rmid: int) -> int:
        try:
            return max(self.counters.bytes((cache_id, each, OCCUPANCY)) for each in self.hardware(cache_id, rmid))
        except OSError:
            return self.most
