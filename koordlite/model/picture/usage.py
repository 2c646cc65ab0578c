"""Who used how much. CPU is in millicores, memory in bytes."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class Use(msgspec.Struct, frozen=True):
    """CPU in millicores and memory (without page cache) in bytes."""

    cpu: int
    memory: int


class Usage(msgspec.Struct, frozen=True):
    """Who used what; None where there is no sample yet or the last one is too old."""

    node: Use | None
    pods: Mapping[str, Use]
    """By pod uid; a pod's first sample gives no usage, so a missing uid is normal."""
    host_apps: Mapping[str, Use]
    """By application name."""
    best_effort_cpu: int | None = None
    """CPU of the whole besteffort group."""
    best_effort_request: int | None = None
    """batch-cpu requested by active BE pods, in millicores."""
    best_effort_limit: int | None = None
    """CPU the besteffort group may use, by its set and its quota, in millicores."""
    containers: Mapping[str, int] = msgspec.field(default_factory=dict)
    """CPU of containers in millicores, by group; of the pods for which a strategy asks (`throttling`), and only of the
    last sample."""
    throttled: Mapping[str, float] = msgspec.field(default_factory=dict)
    """Part of its periods in which a container was throttled, 0 to 1, by group; as `containers`."""
    samples: int = 1
    """How many samples the mean is over; 1 for the last sample."""

    @property
    def others_milli(self) -> int | None:
        """Use of everything but best effort, in millicores; None without a sample."""
        if self.node is None or self.best_effort_cpu is None:
            return None
        return max(0, self.node.cpu - self.best_effort_cpu)
