"""Counters of one NUMA node, as the kernel shows them at one moment."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class NumaCounters(msgspec.Struct, frozen=True, kw_only=True):
    """What is None or missing could not be read."""

    node: int
    used_seconds: float | None = None
    """CPU time used since boot: user, nice, system and interrupts, over the CPUs that are online."""
    idle_seconds: float | None = None
    """CPU time not used since boot: idle, and waiting for disks."""
    memory_total: int | None = None
    """Bytes."""
    memory_used: int | None = None
    """Bytes in use, without page cache and what else the kernel can take back."""
    huge_pages_used: Mapping[int, int] = msgspec.field(default_factory=dict)
    """Pages in use by the size of one in bytes."""

    @property
    def memory_free(self) -> int | None:
        """Bytes that are not in use, page cache included."""
        if self.memory_total is None or self.memory_used is None:
            return None
        return max(0, self.memory_total - self.memory_used)
