"""The RMIDs of the machine: handed out in turn, and kept in limbo while a cache may still hold their lines.

Follows `monitor.c` of Linux 6.1 and 6.12. A freed RMID waits for the worker, which checks each cache every second; it
is free again when every cache holds less of it than `max_threshold_occupancy`.
"""

from __future__ import annotations

import collections
import errno
from collections.abc import Callable

import msgspec

from koordlite.lab.machine.rdt import RDT, Monitoring
from koordlite.lab.machine.tree import refusal
from koordlite.lab.resctrl.schema import DomainLayout

CounterKey = tuple[int, int, str]
"""(cache id, RMID as the hardware numbers it, event)."""

OCCUPANCY = "llc_occupancy"


class Counters:
    """Occupancy is a level. Bandwidth is a counter of limited width; each read adds what it moved since the last."""

    def __init__(self, monitoring: Monitoring) -> None:
        self._monitoring = monitoring
        self._raw: dict[CounterKey, int] = {}
        self._broken: dict[CounterKey, int] = {}
        self._moved: dict[CounterKey, tuple[int, int]] = {}
        """(hardware value at the last read, counts since the group was made)."""

    def set(self, place: CounterKey, count: int) -> None:
        """Count that the hardware shows, in its own unit."""
        self._raw[place] = count & self._width
        self._broken.pop(place, None)

    @property
    def unit_bytes(self) -> int:
        """Bytes a count of 1 stands for."""
        return self._monitoring.unit_bytes

    def level(self, place: CounterKey, count: int) -> None:
        """Value that the hardware will show of a level, as soon as it can say anything."""
        self._raw[place] = count

    def add(self, place: CounterKey, count: int) -> None:
        """Let a counter run."""
        self._raw[place] = (self._raw.get(place, 0) + count) & self._width

    def break_(self, place: CounterKey, code: int) -> None:
        """Let the hardware answer Unavailable (EINVAL) or Error (EIO) until the counter is set again."""
        self._broken[place] = code

    def repair(self, place: CounterKey) -> None:
        """Let the hardware answer again, with what it counted meanwhile."""
        self._broken.pop(place, None)

    def start(self, cache_id: int, rmid: int) -> None:
        """A group begins: bandwidth counts from here."""
        for event in self._monitoring.events:
            place = (cache_id, rmid, event)
            self._moved[place] = (self._raw.get(place, 0), 0)

    def forget(self, cache_id: int) -> None:
        """The driver forgets what it read of the bandwidth at a cache: the next read counts from the hardware's 0."""
        for place in self._moved:
            if place[0] == cache_id:
                self._moved[place] = (0, 0)

    def bytes(self, place: CounterKey) -> int:
        """One event of one RMID; OSError EINVAL or EIO when the hardware cannot say."""
        if place in self._broken:
            raise refusal(self._broken[place])
        now = self._raw.get(place, 0)
        if place[2] == OCCUPANCY:
            return now * self._monitoring.unit_bytes
        before, total = self._moved.get(place, (now, 0))
        # A counter that went back has wrapped, as far as the driver can tell.
        total += (now - before) & self._width
        self._moved[place] = (now, total)
        return total * self._monitoring.unit_bytes

    @property
    def _width(self) -> int:
        return (1 << self._monitoring.counter_bits) - 1


def total(counters: Counters, places: list[CounterKey]) -> int:
    """The sum over those that can be read; the last refusal when none can."""
    values, reason = [], refusal(errno.EINVAL)
    for place in places:
        try:
            values.append(counters.bytes(place))
        except OSError as error:
            reason = error
    if not values:
        raise reason
    return sum(values)


WORKER_SECONDS = 1.0


class RMIDs:
    """Free ones, oldest first, and those in limbo with the caches that have to be clean of them."""

    def __init__(self, rdt: RDT, monitoring: Monitoring, layout: DomainLayout, now: Callable[[], float]) -> None:
        # Where the RMIDs of a cache are cut by NUMA node a count stands for a part of the bytes, a threshold does not.
        each = monitoring.unit_bytes // layout.clusters_per_cache
        self.counters = Counters(msgspec.structs.replace(monitoring, unit_bytes=each))
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
        self._work()
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
        self._work()
        waiting = set(self._layout.ids(3)) if OCCUPANCY in self._monitoring.events else set()
        if waiting and not self._always and self._occupancy(min(waiting), rmid) <= self.threshold:
            waiting.remove(min(waiting))
        if not waiting:
            self._free.append(rmid)
            return
        if not self._limbo:
            self._due = self._now() + WORKER_SECONDS
        self._limbo[rmid] = waiting

    def set_threshold(self, amount: int) -> None:
        """`max_threshold_occupancy`: rounded down to what the hardware counts in; EINVAL above the cache's size."""
        self._work()
        if amount > self.most:
            raise refusal(errno.EINVAL)
        self.threshold = amount // self.unit * self.unit

    def hardware(self, cache_id: int, rmid: int) -> list[int]:
        """The numbers that the hardware knows an RMID by, one for each NUMA node that shares the cache."""
        return [rmid + node * self.number for node in range(max(1, len(self._layout.clusters(cache_id))))]

    def _work(self) -> None:
        """State of the worker's job by now."""
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
                # It finds the same again and again, until a threshold or a counter changes.
                self._due = max(self._due, self._now() + WORKER_SECONDS)

    def _occupancy(self, cache_id: int, rmid: int) -> int:
        try:
            return max(self.counters.bytes((cache_id, each, OCCUPANCY)) for each in self.hardware(cache_id, rmid))
        except OSError:
            return self.most
