"""Numbers in cgroup files: their ranges, their files on v1 and v2, and how they are written.

Sources: Koordinator's table of cgroup resources (`cgroup_resource`, `validator`), the kernel's cgroup-v2 document, and
Anolis OS for the files that only its kernels have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from koordlite.model.cgroup_fields import MAX_SHARES, MIN_SHARES, shares_of_weight, weight_of_shares
from koordlite.model.cpuset import CPUSet

UNLIMITED = -1
_MAX_INT64 = (1 << 63) - 1
_LARGEST_PAGE = 64 * 1024
UNLIMITED_BYTES = _MAX_INT64 // _LARGEST_PAGE * _LARGEST_PAGE
"""From here on a limit on memory is none. v1 prints the greatest number of whole pages in bytes, which are of 4, 16 or
64 KiB."""
_MAX_BURST_US = 100_000_000
_LAST_NODE = 61
"""The highest NUMA node that a bit mask of a kernel number can name."""

_Parse = Callable[[bytes], int]
_Print = Callable[[int], bytes]


def _parse_weight(raw: bytes) -> int:
    """The kernel prints weight 0 for an idle group: the least shares."""
    weight = int(raw)
    return MIN_SHARES if weight == 0 else shares_of_weight(weight)


def parse_bytes(raw: bytes) -> int:
    """Bytes, `UNLIMITED` for `max` and for the number v1 prints instead."""
    text = raw.strip()
    value = UNLIMITED if text == b"max" else int(text)
    return UNLIMITED if value >= UNLIMITED_BYTES or value < 0 else value


class Number(msgspec.Struct, frozen=True, kw_only=True):
    """One numeric field. Its range is that of the field, in its own unit, on both versions."""

    v1: tuple[str, str] | None
    """Controller and file; None where v1 has no such file."""
    v2: str
    minimum: int
    maximum: int
    parse_v1: _Parse = int
    parse_v2: _Parse = int
    print_v1: _Print = b"%d".__mod__
    print_v2: _Print = b"%d".__mod__

    def allows(self, value: int) -> bool:
        """Tell whether a kernel may be given `value`."""
        return self.minimum <= value <= self.maximum


def _plain(controller: str, name: str, minimum: int, maximum: int) -> Number:
    return Number(v1=(controller, name), v2=name, minimum=minimum, maximum=maximum)


def _protection(name: str) -> Number:
    """Bytes, or no limit; both versions read the greatest int64 as `max`."""
    return Number(
        v1=("memory", name),
        v2=name,
        minimum=UNLIMITED,
        maximum=_MAX_INT64,
        parse_v1=parse_bytes,
        parse_v2=parse_bytes,
        print_v1=lambda value: b"%d" % (_MAX_INT64 if value == UNLIMITED else value),
        print_v2=lambda value: b"max" if value == UNLIMITED else b"%d" % value,
    )


def _v2_only(name: str, minimum: int, maximum: int) -> Number:
    return Number(v1=None, v2=name, minimum=minimum, maximum=maximum)


def _parse_nodes(raw: bytes) -> int:
    """A list of NUMA nodes as a bit mask; 0 for an empty one, which stands for those of the group above."""
    nodes = CPUSet.parse(raw.decode().strip())
    return sum(1 << node for node in nodes if node <= _LAST_NODE)


def _print_nodes(mask: int) -> bytes:
    return str(CPUSet(node for node in range(_LAST_NODE + 1) if mask >> node & 1)).encode() or b"\n"


NUMBERS: Mapping[str, Number] = {
    "cpuset.mems": Number(
        v1=("cpuset", "cpuset.mems"),
        v2="cpuset.mems",
        minimum=0,
        maximum=(2 << _LAST_NODE) - 1,
        parse_v1=_parse_nodes,
        parse_v2=_parse_nodes,
        print_v1=_print_nodes,
        print_v2=_print_nodes,
    ),
    "cpu.shares": Number(
        v1=("cpu", "cpu.shares"),
        v2="cpu.weight",
        minimum=MIN_SHARES,
        maximum=MAX_SHARES,
        parse_v2=_parse_weight,
        print_v2=lambda shares: b"%d" % weight_of_shares(shares),
    ),
    "cpu.burst": Number(v1=("cpu", "cpu.cfs_burst_us"), v2="cpu.max.burst", minimum=0, maximum=_MAX_BURST_US),
    "cpu.idle": _plain("cpu", "cpu.idle", 0, 1),
    "cpu.bvt_warp_ns": _plain("cpu", "cpu.bvt_warp_ns", -1, 2),
    "memory.min": _protection("memory.min"),
    "memory.low": _protection("memory.low"),
    "memory.high": _protection("memory.high"),
    "memory.limit": Number(
        v1=("memory", "memory.limit_in_bytes"),
        v2="memory.max",
        minimum=UNLIMITED,
        maximum=_MAX_INT64,
        parse_v1=parse_bytes,
        parse_v2=parse_bytes,
        print_v2=lambda value: b"max" if value == UNLIMITED else b"%d" % value,
    ),
    "memory.swap.max": msgspec.structs.replace(_protection("memory.swap.max"), v1=None),
    "memory.wmark_ratio": _plain("memory", "memory.wmark_ratio", 0, 100),
    "memory.wmark_scale_factor": _plain("memory", "memory.wmark_scale_factor", 1, 1000),
    "memory.wmark_min_adj": _plain("memory", "memory.wmark_min_adj", -25, 50),
    "memory.priority": _plain("memory", "memory.priority", 0, 12),
    "memory.use_priority_oom": _plain("memory", "memory.use_priority_oom", 0, 1),
    "memory.oom.group": _plain("memory", "memory.oom.group", 0, 1),
    "memory.pagecache_limit.enable": _v2_only("memory.pagecache_limit.enable", 0, 1),
    "memory.pagecache_limit.size": _v2_only("memory.pagecache_limit.size", 0, _MAX_INT64),
    "memory.pagecache_limit.sync": _v2_only("memory.pagecache_limit.sync", 0, 1),
}
