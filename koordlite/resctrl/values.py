"""The resctrl file system of one machine as a value: what the hardware can do, and which group holds what.

The words are those of the Linux resctrl document. A control group (CTRL_MON) has a class of service (CLOSID): a part
of each cache, as a bit mask (CBM), and of the memory bandwidth, by cache id. Its threads may use that part. A
monitoring group (MON) inside it has a monitoring id (RMID) and counts what some of these threads use.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

Values = Mapping[int, int]
"""A mask or a bandwidth by cache id."""

ROOT = ""
"""The name of the default group, which holds every thread that was never moved."""
MON_GROUPS = "/mon_groups/"
"""Separator between the name of a control group and that of a monitoring group in it."""
CACHES = ("L3", "L3CODE", "L3DATA", "L2", "L2CODE", "L2DATA")
"""Resources whose values are masks, printed in hexadecimal."""
BANDWIDTHS = ("MB", "SMBA")
"""Resources whose values are numbers, printed in decimal."""
EVENTS = ("llc_occupancy", "mbm_total_bytes", "mbm_local_bytes")
"""Counters of groups."""
PERCENT = 100
MAX_CLOSIDS = 32
"""The kernel hands out no more classes than this, whatever the hardware says."""


@dataclasses.dataclass(frozen=True, slots=True)
class CacheCapability:
    """Contents of `info/L3` (or L2, L3CODE …) about cache allocation."""

    cbm_mask: int
    min_cbm_bits: int
    shareable_bits: int = 0
    """Ways that other hardware, I/O above all, may fill as well."""
    sparse_masks: bool = False
    """Masks may have holes."""
    num_closids: int = 0
    io_alloc: bool | None = None
    """True where I/O has a part of its own (Linux 6.19 and later); None where that is not offered."""

    @property
    def ways(self) -> int:
        """Number of parts that the cache can be divided into."""
        return self.cbm_mask.bit_length()


@dataclasses.dataclass(frozen=True, slots=True)
class BandwidthCapability:
    """Contents of `info/MB` (or SMBA) about bandwidth allocation, and the value that means no limit."""

    min_bandwidth: int
    bandwidth_gran: int
    maximum: int
    """100 for percent (Intel, ARM); 2048 or more for AMD, read from the machine."""
    delay_linear: bool = True
    mbps: bool = False
    """Mounted with mba_MBps: values are MB/s."""
    num_closids: int = 0
    throttle_mode: str = ""
    """`max` or `per-thread`: whether two threads of a core share the tighter limit; empty where the kernel has no such
    file."""
    maximum_known: bool = True
    """False: `maximum` is only the smallest value that can mean no limit, judging by what groups hold."""

    @property
    def absolute(self) -> bool:
        """AMD: values are absolute, in 1/8 GB/s, not percent. ARM has a minimum of 0 too, but counts to 100."""
        return not self.delay_linear or (self.min_bandwidth == 0 and self.maximum > PERCENT and not self.mbps)


@dataclasses.dataclass(frozen=True, slots=True)
class MonitorCapability:
    """Contents of `info/L3_MON` about monitoring."""

    num_rmids: int
    features: tuple[str, ...]
    """`llc_occupancy`, `mbm_total_bytes`, `mbm_local_bytes`, as far as there are."""
    max_threshold_occupancy: int | None = None
    """Bytes of cache below which the RMID of a removed group counts as clean."""
    assign_mode: str = ""
    """`mbm_event` or `default` where counters are assigned (Linux 6.18 and later, AMD); else empty."""
    counters: Values = dataclasses.field(default_factory=dict)
    """Bandwidth counters by cache id, where they are assigned."""
    free_counters: Values = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class CacheUse:
    """Use by a group of one cache and the bandwidth behind it; None where the hardware could not say."""

    occupancy_bytes: int | None = None
    total_bytes_per_second: float | None = None
    local_bytes_per_second: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class ControlGroup:
    """One control group: values by resource and cache id, and its threads (None when not read this time)."""

    schemata: Mapping[str, Values]
    tasks: frozenset[int] | None = None
    mode: str = ""
    """`shareable`, `exclusive`, `pseudo-locked` …; empty when not read."""
    unknown: tuple[str, ...] = ()
    """Schemata lines of resources this library does not know, as the kernel prints them."""


@dataclasses.dataclass(frozen=True, slots=True)
class Resctrl:
    """The resctrl file system as found. `absent` says why there is none, else it is empty."""

    absent: str = ""
    caches: Mapping[str, CacheCapability] = dataclasses.field(default_factory=dict)
    bandwidths: Mapping[str, BandwidthCapability] = dataclasses.field(default_factory=dict)
    groups: Mapping[str, ControlGroup] = dataclasses.field(default_factory=dict)
    """Groups by name; the root group is the empty name."""
    threads: Mapping[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    """Threads by cgroup, for the cgroups that were read this time. The caller fills this in."""
    monitors: Mapping[str, frozenset[int]] = dataclasses.field(default_factory=dict)
    """Threads of monitoring groups by `CONTROL/mon_groups/NAME`. The caller fills this in."""
    mountable: bool = False
    """It is absent only because it is not mounted."""
    monitor: MonitorCapability | None = None
    """None where nothing can be monitored."""
    use: Mapping[str, Mapping[int, CacheUse]] = dataclasses.field(default_factory=dict)
    """The last measurement, by group and cache id. The caller fills this in: see `monitoring.use`."""

    @property
    def max_groups(self) -> int:
        """Largest number of control groups besides the root: the scarcest resource decides."""
        offers = [cap.num_closids for cap in self.caches.values()]
        offers += [cap.num_closids for cap in self.bandwidths.values()]
        reserved = 1 + any(cap.io_alloc for cap in self.caches.values())
        return max(0, min([MAX_CLOSIDS, *filter(None, offers)]) - reserved)

    @property
    def group_names(self) -> tuple[str, ...]:
        """Names of all control groups but the root, sorted."""
        return tuple(sorted(name for name in self.groups if name != ROOT))
