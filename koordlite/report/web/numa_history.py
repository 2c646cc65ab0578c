"""The last hour by NUMA node, which the NUMA exporter keeps for the page of the cluster: for where no Prometheus is."""

from __future__ import annotations

import collections
import itertools
import threading
from collections.abc import Sequence
from typing import Any

from koordlite.model.picture.usage import NumaCounters

SECONDS, EVERY_SECONDS = 3600, 30.0
_Sample = tuple[float, float, dict[int, NumaCounters]]
"""Monotonic and wall clock, and the counters by NUMA node."""


class NumaHistory:
    """Samples of an hour. One thread adds, others ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # One more than an hour has: the first only serves the difference to the second.
        self._samples: collections.deque[_Sample] = collections.deque(maxlen=int(SECONDS / EVERY_SECONDS) + 1)

    def add(self, now: float, wall: float, counters: Sequence[NumaCounters]) -> None:
        """A sample at `now` of the monotonic clock, `wall` seconds since the epoch."""
        with self._lock:
            self._samples.append((now, wall, {each.node: each for each in counters}))

    def document(self, node: str) -> dict[str, Any]:
        """Document for JSON: times in seconds since the epoch; for each NUMA node the cores in use on average since the
        moment before, and the bytes in use. null: not known."""
        with self._lock:
            samples = list(self._samples)
        pairs = list(itertools.pairwise(samples))
        zones = sorted({zone for _, _, counters in samples[1:] for zone in counters})
        return {
            "node": node,
            # By the monotonic clock: a wall clock that is set makes no moment come before another.
            "times": [round(samples[-1][1] - (samples[-1][0] - now), 3) for now, _, _ in samples[1:]],
            "zones": {
                str(zone): {
                    "cpuCores": [_cores(zone, before, after) for before, after in pairs],
                    "memoryUsedBytes": [
                        counters[zone].memory_used if zone in counters else None for _, _, counters in samples[1:]
                    ],
                }
                for zone in zones
            },
        }


def _cores(zone: int, before: _Sample, after: _Sample) -> float | None:
    """None where a counter is missing or went back, as it does when CPUs are taken offline."""
    (then, _, old), (now, _, new) = before, after
    began = old[zone].used_seconds if zone in old else None
    ended = new[zone].used_seconds if zone in new else None
    if began is None or ended is None or ended < began or now <= then:
        return None
    return round((ended - began) / (now - then), 3)
