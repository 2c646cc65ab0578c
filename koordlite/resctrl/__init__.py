"""Linux resctrl from Python: cache and memory bandwidth by group of threads, and what groups use. See README.md.

`ResctrlFS` reads and changes the mounted file system. `Resctrl` is what it read: a value to compute on. `allocate`
turns percentages into the values of this machine. The modules `schemata`, `masks`, `bandwidth` and `monitoring` are the
arithmetic alone, without files. The library depends on nothing but the standard library.
"""

from koordlite.resctrl import bandwidth, masks, monitoring, schemata
from koordlite.resctrl.files import Files, LocalFiles
from koordlite.resctrl.filesystem import POINT, ResctrlFS
from koordlite.resctrl.masks import Fit
from koordlite.resctrl.monitoring import Counters
from koordlite.resctrl.mount import Mounts, NoMounts, RealMounts
from koordlite.resctrl.schemata import Schemata
from koordlite.resctrl.shares import Allocation, Shares, allocate, initial_values, to_write
from koordlite.resctrl.tasks import Moved
from koordlite.resctrl.values import (
    MON_GROUPS,
    ROOT,
    BandwidthCapability,
    CacheCapability,
    CacheUse,
    ControlGroup,
    MonitorCapability,
    Resctrl,
    Values,
)

__all__ = [
    "MON_GROUPS",
    "POINT",
    "ROOT",
    "Allocation",
    "BandwidthCapability",
    "CacheCapability",
    "CacheUse",
    "ControlGroup",
    "Counters",
    "Files",
    "Fit",
    "LocalFiles",
    "MonitorCapability",
    "Mounts",
    "Moved",
    "NoMounts",
    "RealMounts",
    "Resctrl",
    "ResctrlFS",
    "Schemata",
    "Shares",
    "Values",
    "allocate",
    "bandwidth",
    "initial_values",
    "masks",
    "monitoring",
    "schemata",
    "to_write",
]
