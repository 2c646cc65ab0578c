"""Numbers in cgroup files: their ranges, and how they are written on v1 and v2.

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
"""Least limit on memory that stands for none. v1 prints the greatest number of whole pages in bytes, which are of 4, 16
or 64 KiB."""
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


def _print_max(value: int) -> bytes:
    return b"max" if value == UNLIMITED else b"%d" % value


def _parse_nodes(raw: bytes) -> int:
    """A list of NUMA nodes as a bit mask; 0 for an empty one, which stands for those of the group above."""
    nodes = CPUSet.parse(raw.decode().strip())
    return sum(1 << node for node in nodes if node <= _LAST_NODE)


def _print_nodes(mask: int) -> bytes:
    return str(CPUSet(node for node in range(_LAST_NODE + 1) if mask >> node & 1)).encode() or b"\n"


class Number(msgspec.Struct, frozen=True):
    """One numeric field. Its range is that of the field, in its own unit, on both versions."""

    minimum: int
    maximum: int
    in_v1: bool = True
    parse: _Parse = int
    print: _Print = b"%d".__mod__
    parse_v2: _Parse | None = None
    """None: as on v1."""
    print_v2: _Print | None = None

    def allows(self, value: int) -> bool:
        """Tell whether a kernel may be given `value`."""
        return self.minimum <= value <= self.maximum


_SWITCH = Number(0, 1)
_PROTECTION = Number(
    UNLIMITED,
    _MAX_INT64,
    parse=parse_bytes,
    print=lambda value: b"%d" % (_MAX_INT64 if value == UNLIMITED else value),
    print_v2=_print_max,
)
"""Bytes, or no limit; both versions read the greatest int64 as `max`."""
NUMBERS: Mapping[str, Number] = {
    "cpuset.mems": Number(0, (2 << _LAST_NODE) - 1, parse=_parse_nodes, print=_print_nodes),
    "cpu.shares": Number(
        MIN_SHARES, MAX_SHARES, parse_v2=_parse_weight, print_v2=lambda shares: b"%d" % weight_of_shares(shares)
    ),
    "cpu.burst": Number(0, _MAX_BURST_US),
    "cpu.idle": _SWITCH,
    "cpu.bvt_warp_ns": Number(-1, 2),
    "memory.min": _PROTECTION,
    "memory.low": _PROTECTION,
    "memory.high": _PROTECTION,
    "memory.limit": Number(UNLIMITED, _MAX_INT64, parse=parse_bytes, print_v2=_print_max),
    "memory.swap.max": msgspec.structs.replace(_PROTECTION, in_v1=False),
    "memory.wmark_ratio": Number(0, 100),
    "memory.wmark_scale_factor": Number(1, 1000),
    "memory.wmark_min_adj": Number(-25, 50),
    "memory.priority": Number(0, 12),
    "memory.use_priority_oom": _SWITCH,
    "memory.oom.group": _SWITCH,
    "memory.pagecache_limit.enable": Number(0, 1, in_v1=False),
    "memory.pagecache_limit.size": Number(0, _MAX_INT64, in_v1=False),
    "memory.pagecache_limit.sync": Number(0, 1, in_v1=False),
}
"""`model.file_names.CGROUP` has their files."""
