"""The monitoring counters by cache and RMID: what the hardware counts, and what the driver makes of it."""

from __future__ import annotations

import errno

from koordlite.lab.machine.rdt import Monitoring
from koordlite.lab.machine.tree import refusal

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
