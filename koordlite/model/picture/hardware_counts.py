"""What the CPUs did for a container, as their own counters say."""

from __future__ import annotations

import msgspec


class HardwareCounts(msgspec.Struct, frozen=True):
    """Counts of one window of time on all CPUs. Cycles per instruction rise when others slow the work down."""

    cycles: int
    instructions: int
