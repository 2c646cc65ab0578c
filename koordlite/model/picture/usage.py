"""Measured use of the node, pods and NUMA nodes: millicores, bytes of memory; pressure, counters, predictions."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class Use(msgspec.Struct, frozen=True):
    """CPU in millicores and memory (without page cache) in bytes."""

    cpu: int
    memory: int

    def __add__(self, other: Use) -> Use:
        return Use(self.cpu + other.cpu, self.memory + other.memory)

    def less(self, other: Use) -> Use:
        """Rest of it beside `other`, never below 0."""
        return Use(max(self.cpu - other.cpu, 0), max(self.memory - other.memory, 0))


NO_USE = Use(0, 0)


class Usage(msgspec.Struct, frozen=True):
    """Use by pod and host application; None where there is no sample yet or the last one is too old."""

    node: Use | None
    pods: Mapping[str, Use]
    """Use by pod uid; a pod's first sample gives no usage, so a missing uid is normal."""
    host_apps: Mapping[str, Use]
    """Use by application name."""
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
    """Number of samples of the mean; 1 for the last sample."""

    @property
    def others_milli(self) -> int | None:
        """Use of everything but best effort, in millicores; None without a sample."""
        if self.node is None or self.best_effort_cpu is None:
            return None
        return max(0, self.node.cpu - self.best_effort_cpu)


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """Distribution of use over a time."""

    mean: Use
    percentiles: Mapping[int, Use]
    """Percent → what so many percent of the samples do not exceed."""


class NodeWindow(msgspec.Struct, frozen=True, kw_only=True):
    """One duration of `metricAggregatePolicy`."""

    length_ns: int
    node: Spread | None
    """None while the samples cover less than half of the time."""
    system: Spread | None
    """Use beside pods and host applications; None as `node`."""


class NumaUse(msgspec.Struct, frozen=True, kw_only=True):
    """Means of one NUMA node over the aggregation time."""

    node: Use
    system_memory: int | None
    """Bytes in use on it beside pods; None where the kernel does not say what pods have there."""


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """Peaks: the 95th percentile of CPU and the 98th of memory, without a margin."""

    pods: Mapping[str, Use]
    """Peaks by pod uid, of those that are known for long enough."""
    prod: Use | None
    """Use of all prod pods together; None until that is known for long enough."""
    system: Use | None
    """Use of everything outside pods; None as `prod`."""
    known_seconds: float
    """Time for which the node has been observed."""
    margin_percent: int
    """Percent added to a peak before it is offered."""


class Stall(msgspec.Struct, frozen=True):
    """Part of the time that was lost, in percent of the last 10, 60 and 300 seconds, and in µs since the start."""

    avg10: float
    avg60: float
    avg300: float
    total_us: int


class Pressure(msgspec.Struct, frozen=True):
    """One pressure file: `some` task waited, or all of them did (`full`)."""

    some: Stall
    full: Stall | None
    """None where the kernel does not say: for CPU before Linux 5.13."""


class HardwareCounts(msgspec.Struct, frozen=True):
    """Counts of one window of time on all CPUs. Cycles per instruction rise when others slow the work down."""

    cycles: int
    instructions: int


class NumaCounters(msgspec.Struct, frozen=True, kw_only=True):
    """Counters; those that are None or missing could not be read."""

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


class CPUWait(msgspec.Struct, frozen=True):
    """Time that sampled threads of a pod ran and waited for a CPU in its last window; times of the monotonic clock."""

    since: float
    until: float
    ran_us: int
    waited_us: int
    """Ready to run and not running. Intervals in which the pod was throttled by its own quota do not count."""

    @property
    def share(self) -> float:
        """Part of the time it wanted a CPU that it waited for one; 0 when it wanted none."""
        runnable_us = self.ran_us + self.waited_us
        return self.waited_us / runnable_us if runnable_us else 0.0


class Objective(msgspec.Struct, frozen=True, kw_only=True):
    """Objective that a service names, and where it stands; times of the monotonic clock."""

    query: str
    """Name of the operator's query."""
    most: float
    """The objective, in the query's unit: `asked` within the operator's bounds."""
    asked: float
    """Objective of the service; the operator's where it names no number."""
    unit: str = ""
    value: float | None = None
    """Last measurement; None without one."""
    since: float = 0.0
    """Beginning of the time over which it was measured."""
    until: float = 0.0
    """End of that time."""
    expires: float = 0.0
    """Time from which on the measurement says nothing about now."""
    why: str = ""
    """Reason why there is no newer measurement."""

    def is_current(self, now: float) -> bool:
        """Tell whether the measurement says something about `now`."""
        return self.value is not None and self.until <= now < self.expires
