"""The RMIDs of the machine, handed out in turn, and what is counted by them. None waits in limbo here, as one does in
the kernel while a cache may still hold its lines.
"""

from __future__ import annotations

import collections
import errno

from koordlite.lab.machine.machine import RDT, Monitoring
from koordlite.lab.machine.tree import refusal
from koordlite.lab.resctrl.schemata import DomainLayout

CounterKey = tuple[int, int, str]
"""(cache id, RMID as the hardware numbers it, event)."""

OCCUPANCY = "llc_occupancy"


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
    """The free ones, oldest first."""

    def __init__(self, rdt: RDT, monitoring: Monitoring, layout: DomainLayout) -> None:
        # Where the RMIDs of a cache are cut by NUMA node a count stands for a part of the bytes, a threshold does not.
        self.counters = Counters(monitoring, monitoring.unit_bytes // layout.clusters_per_cache)
        self.layout = layout
        self.number = monitoring.rmids // layout.clusters_per_cache
        unit = monitoring.unit_bytes
        self.threshold = rdt.limit_bytes(layout.machine.l3_bytes) // self.number // unit * unit
        self.free = collections.deque(range(1, self.number))

    def take(self) -> int:
        """The next free one; OSError ENOSPC when none is left."""
        if not self.free:
            raise refusal(errno.ENOSPC)
        rmid = self.free.popleft()
        self.start(rmid)
        return rmid

    def start(self, rmid: int) -> None:
        """A group begins to count."""
        for cache_id in self.layout.ids(3):
            for place in self.hardware(cache_id, rmid):
                self.counters.start(cache_id, place)

    def give_back(self, rmid: int) -> None:
        """A group is gone."""
        self.free.append(rmid)

    def hardware(self, cache_id: int, rmid: int) -> list[int]:
        """The numbers that the hardware knows an RMID by, one for each NUMA node that shares the cache."""
        return [rmid + node * self.number for node in range(max(1, len(self.layout.clusters(cache_id))))]
