"""What resctrl can do on this machine, from its `info` folder; or why it is not there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from koordlite.host import procfs
from koordlite.model.snapshot import BandwidthCapability, CacheCapability
from koordlite.ports import Files

_CACHES = ("L3", "L3CODE", "L3DATA", "L2", "L2CODE", "L2DATA")
_BANDWIDTHS = ("MB", "SMBA")
_PERCENT = 100
_AMD_FLOOR = 2048
_NO_LIMIT_MBPS = 2**32 - 1


def absence(files: Files, root: str) -> str:
    """Why there is nothing to use below `root`; empty when resctrl is mounted there."""
    if _names(files, f"{root}/info"):
        return ""
    known = _file_systems(files)
    if "resctrl" in known:
        return f"this machine supports resctrl, but it is not mounted: mount -t resctrl resctrl {root}"
    if not known:
        return f"{root} is not mounted, and there is no /proc/filesystems to say whether it could be"
    return "this CPU or this kernel has no resctrl: /proc/filesystems does not list it"


def capabilities(
    files: Files, root: str, largest: Mapping[str, int]
) -> tuple[dict[str, CacheCapability], dict[str, BandwidthCapability]]:
    """Caches and bandwidths that can be allocated. `largest` is the largest value seen of each resource."""
    present = {name.rstrip("/") for name in _names(files, f"{root}/info")}
    mbps = _counts_megabytes(files, root)
    caches = {name: _cache(files, f"{root}/info/{name}") for name in _CACHES if name in present}
    bandwidths = {
        name: _bandwidth(files, f"{root}/info/{name}", mbps and name == "MB", largest.get(name, 0))
        for name in _BANDWIDTHS
        if name in present
    }
    return caches, bandwidths


def maximum_bandwidth(*, percent: bool, mbps: bool, largest: int) -> int:
    """The value that means no limit: 100 percent, 2^32 − 1 MB/s, or the power of two that AMD groups start with.

    info/ does not tell AMD's. It is a power of two, 2048 up to Linux 6.8 and what the CPU says from 6.9 on, so a
    largest seen value that is no power of two is somebody's limit.
    """
    if mbps:
        return _NO_LIMIT_MBPS
    if percent:
        return _PERCENT
    is_power_of_two = largest > 0 and largest & (largest - 1) == 0
    return largest if is_power_of_two and largest >= _AMD_FLOOR // 2 else max(_AMD_FLOOR, 1 << largest.bit_length())


def _cache(files: Files, folder: str) -> CacheCapability:
    return CacheCapability(
        cbm_mask=_number(files, f"{folder}/cbm_mask", base=16),
        min_cbm_bits=_number(files, f"{folder}/min_cbm_bits"),
        shareable_bits=_number(files, f"{folder}/shareable_bits", base=16, default=0),
        sparse_masks=_number(files, f"{folder}/sparse_masks", default=0) == 1,
        num_closids=_number(files, f"{folder}/num_closids"),
    )


def _bandwidth(files: Files, folder: str, mbps: bool, largest: int) -> BandwidthCapability:
    min_bandwidth = _number(files, f"{folder}/min_bandwidth")
    linear = _number(files, f"{folder}/delay_linear", default=1) == 1
    return BandwidthCapability(
        min_bandwidth=min_bandwidth,
        bandwidth_gran=_number(files, f"{folder}/bandwidth_gran"),
        maximum=maximum_bandwidth(percent=linear and min_bandwidth > 0, mbps=mbps, largest=largest),
        delay_linear=linear,
        mbps=mbps,
        num_closids=_number(files, f"{folder}/num_closids"),
    )


def _counts_megabytes(files: Files, root: str) -> bool:
    """Only the mount options tell that MB is in MB/s; info/MB looks the same."""
    return any(mount.type == "resctrl" and "mba_MBps" in mount.options for mount in procfs.mounts(files))


def _file_systems(files: Files) -> list[str]:
    try:
        return files.read("/proc/filesystems").decode().split()
    except (FileNotFoundError, NotADirectoryError):
        return []


def _names(files: Files, folder: str) -> Sequence[str]:
    try:
        return files.list(folder)
    except (FileNotFoundError, NotADirectoryError):
        return ()


def _number(files: Files, path: str, *, base: int = 10, default: int | None = None) -> int:
    """The number in a file. A file this kernel does not have gives `default`, without one FileNotFoundError."""
    try:
        raw = files.read(path)
    except FileNotFoundError:
        if default is None:
            raise
        return default
    return int(raw, base)
