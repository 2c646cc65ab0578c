"""Capabilities of resctrl on this machine, from its `info` folder; or why it is not there.

Source: Linux resctrl document, "Info directory"; forms as Linux 6.1 and 6.12 print them.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping

from koordlite.resctrl import mount
from koordlite.resctrl.files import Files, names, text
from koordlite.resctrl.values import (
    BANDWIDTHS,
    CACHES,
    EVENTS,
    PERCENT,
    BandwidthCapability,
    CacheCapability,
    ControlGroup,
    MonitorCapability,
)

_AMD_MAXIMUM = 2048
_NO_LIMIT_MBPS = 2**32 - 1
_ACTIVE = re.compile(r"\[(\w+)\]")
_FLAGS = frozenset({"cat_l3", "cat_l2", "mba", "cqm"})
"""Flags of /proc/cpuinfo on x86: hints only, since SMBA and ARM's MPAM have none."""


@dataclasses.dataclass(frozen=True, slots=True)
class Capabilities:
    """Everything `info` says that does not change while the file system is mounted."""

    caches: Mapping[str, CacheCapability]
    bandwidths: Mapping[str, BandwidthCapability]
    """Their maxima are not in `info`: see `with_maximum`."""
    monitor: MonitorCapability | None


def resources(files: Files, root: str) -> tuple[str, ...]:
    """Contents of the `info` folder; nothing when resctrl is not mounted at `root`."""
    return tuple(names(files, f"{root}/info"))


def absence(files: Files, root: str) -> tuple[str, bool]:
    """Reason why there is nothing to use below `root`, and whether mounting it would help."""
    filesystems = text(files, "/proc/filesystems").split()
    if "resctrl" in filesystems:
        return f"this machine supports resctrl, but it is not mounted: mount -t resctrl resctrl {root}", True
    if not filesystems:
        return f"{root} is not mounted, and there is no /proc/filesystems to say whether it could be", False
    return f"this CPU or this kernel has no resctrl: /proc/filesystems does not list it{_hint(files)}", False


def command_line(files: Files) -> dict[str, bool]:
    """Features that option `rdt=` of the kernel's command line switches on, or off by a `!`: `l3cat`, `mba`, `cmt` …

    The last mention of a feature counts. Source: Linux kernel parameters, `rdt=`.
    """
    words = [word.removeprefix("rdt=") for word in text(files, "/proc/cmdline").split() if word.startswith("rdt=")]
    features = [feature for word in words for feature in word.split(",") if feature.strip("!")]
    return {feature.lstrip("!"): not feature.startswith("!") for feature in features}


def capabilities(files: Files, root: str) -> Capabilities:
    """Caches and bandwidths that can be allocated, and what can be monitored."""
    present = {name.rstrip("/") for name in resources(files, root)}
    mbps = "mba_MBps" in mount.options(files)
    return Capabilities(
        caches={name: _cache(files, f"{root}/info/{name}") for name in CACHES if name in present},
        bandwidths={
            name: _bandwidth(files, f"{root}/info/{name}", mbps and name == "MB")
            for name in BANDWIDTHS
            if name in present
        },
        monitor=_monitor(files, f"{root}/info/L3_MON") if "L3_MON" in present else None,
    )


def with_maximum(cap: BandwidthCapability, *, largest: int, fresh: int | None) -> BandwidthCapability:
    """`cap` with the value that means no limit: 100 percent, 2^32 − 1 MB/s, or what groups start with on AMD.

    info/ does not have AMD's. A group shows it before it is limited: `fresh` is what a group just made showed.
    `largest` is the largest value seen anywhere. It may be a limit: then the maximum is at least the next power of two
    (2048 up to Linux 6.8, what the CPU says from 6.9 on).
    """
    if cap.mbps:
        return dataclasses.replace(cap, maximum=_NO_LIMIT_MBPS)
    if cap.delay_linear and (cap.min_bandwidth > 0 or 0 < largest <= PERCENT):
        return dataclasses.replace(cap, maximum=PERCENT)
    if fresh is not None:
        return dataclasses.replace(cap, maximum=fresh)
    is_power_of_two = largest > 0 and largest & (largest - 1) == 0
    least = largest if is_power_of_two else 1 << largest.bit_length()
    maximum = least if is_power_of_two and least >= _AMD_MAXIMUM // 2 else max(_AMD_MAXIMUM, least)
    return dataclasses.replace(cap, maximum=maximum, maximum_known=False)


def contradicted(capabilities: Capabilities, groups: Iterable[ControlGroup]) -> bool:
    """Tell whether bandwidths of groups contradict `capabilities`: MB/s where percent are expected, or the reverse.

    This happens when resctrl was mounted again, with or without `mba_MBps`. Names and content of info/ stay the same
    then, and 50 % must not be written as 50 MB/s.
    """
    cap = capabilities.bandwidths.get("MB")
    bandwidths = [value for group in groups for value in group.schemata.get("MB", {}).values()]
    if cap is None or not bandwidths or cap.min_bandwidth <= 0:
        return False
    return cap.mbps == (max(bandwidths) <= PERCENT)


def _cache(files: Files, folder: str) -> CacheCapability:
    least = _number(files, f"{folder}/min_cbm_bits")
    # Linux before 6.7 has no sparse_masks. AMD alone has a minimum of 0, and takes holes on every kernel.
    holes = int(least == 0)
    return CacheCapability(
        cbm_mask=_number(files, f"{folder}/cbm_mask", base=16),
        min_cbm_bits=least,
        shareable_bits=_number(files, f"{folder}/shareable_bits", base=16, default=0),
        sparse_masks=_number(files, f"{folder}/sparse_masks", default=holes) == 1,
        num_closids=_number(files, f"{folder}/num_closids"),
        io_alloc={"enabled": True, "disabled": False}.get(text(files, f"{folder}/io_alloc")),
    )


def _bandwidth(files: Files, folder: str, mbps: bool) -> BandwidthCapability:
    return BandwidthCapability(
        min_bandwidth=_number(files, f"{folder}/min_bandwidth"),
        bandwidth_gran=_number(files, f"{folder}/bandwidth_gran"),
        maximum=PERCENT,
        delay_linear=_number(files, f"{folder}/delay_linear", default=1) == 1,
        mbps=mbps,
        num_closids=_number(files, f"{folder}/num_closids"),
        throttle_mode=text(files, f"{folder}/thread_throttle_mode"),
    )


def _monitor(files: Files, folder: str) -> MonitorCapability:
    features = text(files, f"{folder}/mon_features").split()
    active = _ACTIVE.search(text(files, f"{folder}/mbm_assign_mode"))
    threshold = text(files, f"{folder}/max_threshold_occupancy")
    return MonitorCapability(
        num_rmids=_number(files, f"{folder}/num_rmids"),
        features=tuple(name for name in EVENTS if name in features),
        max_threshold_occupancy=int(threshold) if threshold else None,
        assign_mode=active[1] if active else "",
        counters=_by_id(text(files, f"{folder}/num_mbm_cntrs")),
        free_counters=_by_id(text(files, f"{folder}/available_mbm_cntrs")),
    )


def _by_id(content: str) -> dict[int, int]:
    """`0=32;1=30` as numbers by cache id."""
    pairs = (part.partition("=") for part in content.split(";") if part.strip())
    return {int(cache): int(value) for cache, _, value in pairs}


def _hint(files: Files) -> str:
    """Facts from the CPU and the command line, since one of them may be the reason."""
    off = [feature for feature, on in command_line(files).items() if not on]
    if off:
        return f"; the kernel's command line switches off {', '.join(off)} (rdt=)"
    flags = re.search(r"^flags\s*:(.*)$", text(files, "/proc/cpuinfo"), re.MULTILINE)
    able = sorted(_FLAGS.intersection(flags[1].split())) if flags else []
    return f"; the CPU has {', '.join(able)}, so the kernel was built without it" if able else ""


def _number(files: Files, path: str, *, base: int = 10, default: int | None = None) -> int:
    """The number in a file. A file this kernel does not have gives `default`, without one FileNotFoundError."""
    try:
        raw = files.read(path)
    except FileNotFoundError:
        if default is None:
            raise
        return default
    return int(raw, base)
