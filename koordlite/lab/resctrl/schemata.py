"""`schemata` of the emulated resctrl: the domains, what the registers hold, and the kernel's parser of what is written.

Follows the resctrl driver (`ctrlmondata.c` of Linux 6.1 and 6.12): the order of the checks and the texts of
`last_cmd_status` are the kernel's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import msgspec

from koordlite.lab.machine.machine import RDT, Bandwidth, Cache, Machine

BLANKS = " \t\n\v\f\r"
"""Characters that the kernel strips around names and values."""
NO_LIMIT_MBPS = 2**32 - 1
MOST_CLOSIDS = 32
"""The driver counts CLOSIDs in one word of 32 bits."""

DECIMAL = re.compile(r"\+?[0-9]+\Z", re.ASCII)
HEX = re.compile(r"\+?(?:0[xX])?([0-9a-fA-F]+)\Z", re.ASCII)
_LONG = 1 << 64
_INTEL_MB_WIDTH = 3
_AMD_MB_WIDTH = 4


class Rejected(Exception):
    """The kernel answers EINVAL; the message goes to `last_cmd_status` (empty: it says nothing)."""


class DomainLayout:
    """The caches of the machine, and the NUMA nodes below them."""

    def __init__(self, machine: Machine, rdt: RDT) -> None:
        self.machine = machine
        nodes: dict[int, set[int]] = {}
        for cpu in machine.cpus:
            if cpu.l3 is not None:
                nodes.setdefault(cpu.l3, set()).add(cpu.node)
        self._nodes = {cache: tuple(sorted(ids)) for cache, ids in nodes.items()}
        most = max(map(len, nodes.values()), default=1)
        self.clusters_per_cache = most if not rdt.amd and rdt.since(6, 11) else 1
        """Into how many parts the RMIDs of an L3 cache are cut."""

    def ids(self, level: int) -> tuple[int, ...]:
        """Cache ids of that level, 2 or 3, ascending."""
        return self.machine.l3_ids if level == 3 else tuple(sorted(set(self.machine.l2_ids().values())))

    def clusters(self, l3: int) -> tuple[int, ...]:
        """NUMA nodes below one L3 cache, when the machine counts them apart (SNC, Linux 6.11); else none."""
        return self._nodes[l3] if self.clusters_per_cache > 1 else ()

    def parts(self, l3: int) -> tuple[int, ...]:
        """Nodes of the cluster, by their number below the cache; the one of others is 0."""
        return tuple(range(len(self.clusters(l3)))) or (0,)


class Schema(msgspec.Struct, eq=False):
    """A line of `schemata`. `domains` holds per cache id what the registers hold by CLOSID."""

    name: str
    level: int
    """Level of the cache whose ids the domains have: 2 or 3."""
    hardware: Cache | Bandwidth
    closids: int
    mbps: bool = False
    """The software controller keeps the values, in MB/s."""
    domains: dict[int, list[int]] = msgspec.field(default_factory=dict)

    @property
    def cache(self) -> Cache | None:
        """The cache that is cut; None for bandwidth."""
        return self.hardware if isinstance(self.hardware, Cache) else None

    @property
    def full(self) -> int:
        """The value of no limit."""
        return NO_LIMIT_MBPS if self.mbps else self.hardware.full

    def values(self, closid: int) -> dict[int, int]:
        """Allocation of one CLOSID, by cache id."""
        return {i: values[closid] for i, values in self.domains.items()}

    def put(self, closid: int, values: dict[int, int]) -> None:
        """Write the registers."""
        for cache_id, value in values.items():
            self.domains[cache_id][closid] = value

    def read(self, text: str) -> int:
        """A value as the hardware takes it: bandwidth is rounded up to its granularity. Rejected for one that it does
        not take."""
        if isinstance(self.hardware, Cache):
            return mask(text, self.hardware)
        value = int(text) if DECIMAL.match(text) else 1 << 32
        if value >= 1 << 32:
            raise Rejected(f"Invalid MB value {text}")
        if self.mbps:
            return value
        limit = self.hardware
        if not limit.minimum <= value <= limit.full:
            raise Rejected(f"MB value {value} out of range [{limit.minimum},{limit.full}]")
        return -(-value // limit.granularity) * limit.granularity


def mounted(rdt: RDT, layout: DomainLayout, options: frozenset[str]) -> dict[str, Schema]:
    """The resources in the order in which Linux 5.15 and later print them, without a limit for any group."""
    schemas = [Schema("SMBA", 3, rdt.smba, rdt.smba.closids)] if rdt.smba else []
    schemas += [Schema("MB", 3, rdt.mb, rdt.mb.closids, "mba_MBps" in options)] if rdt.mb else []
    for name, cache, option in (("L2", rdt.l2, "cdpl2"), ("L3", rdt.l3, "cdp")):
        level = int(name[1])
        if cache and option in options:
            schemas += [Schema(f"{name}{half}", level, cache, cache.closids // 2) for half in ("DATA", "CODE")]
        elif cache:
            schemas.append(Schema(name, level, cache, cache.closids))
    for schema in schemas:
        schema.domains = {i: [schema.full] * schema.closids for i in layout.ids(schema.level)}
    return {schema.name: schema for schema in schemas}


def closids(schemas: Iterable[Schema]) -> int:
    """Largest number of groups, the root included."""
    return min((schema.closids for schema in schemas), default=MOST_CLOSIDS)


class Columns:
    """Width in which the kernel prints: by what the machine could have, not by what is mounted."""

    def __init__(self, rdt: RDT) -> None:
        caches = {name: cache for name, cache in (("L2", rdt.l2), ("L3", rdt.l3)) if cache}
        limits = [name for name, limit in (("MB", rdt.mb), ("SMBA", rdt.smba)) if limit]
        names = [*limits, *(name + "CODE" * cache.cdp for name, cache in caches.items())]
        widths = [-(-cache.bits // 4) for cache in caches.values()]
        widths += [_AMD_MB_WIDTH if rdt.amd else _INTEL_MB_WIDTH] * bool(limits)
        self.name, self.value = max(map(len, names), default=0), max(widths, default=0)

    def line(self, schema: Schema, values: Iterable[str]) -> str:
        """A line of a file that has one for each resource."""
        return f"{schema.name:>{self.name}}:{';'.join(values)}\n"

    def schemata(self, schemas: Iterable[Schema], closid: int) -> str:
        """The content of `schemata`."""
        return "".join(
            self.line(each, (f"{i}={value:{self._form(each)}}" for i, value in each.values(closid).items()))
            for each in schemas
        )

    def _form(self, schema: Schema) -> str:
        return f"0{self.value}x" if schema.cache else f"{self.value}d"


def pieces(text: str) -> Iterator[tuple[int, str]]:
    """`ID=VALUE;ID=VALUE`; one `;` at the end is fine, an empty piece elsewhere is not."""
    parts = text.split(";")
    if len(parts) > 1 and not parts[-1]:
        parts.pop()
    for part in parts:
        number, equals, value = part.partition("=")
        if not equals or not DECIMAL.match(number) or int(number) >= _LONG:
            raise Rejected("Missing '=' or non-numeric domain")
        yield int(number), value.strip(BLANKS)


def mask(text: str, cache: Cache) -> int:
    """A cache bit mask that this hardware takes."""
    match = HEX.match(text)
    value = int(match[1], 16) if match else _LONG
    if value >= _LONG:
        raise Rejected(f"Non-hex character in the mask {text}")
    if value > cache.full or (value == 0 and cache.min_bits > 0):
        raise Rejected("Mask out of range")
    run = lowest_run(value)
    if value != run and not cache.sparse:
        raise Rejected(f"The mask {value:x} has non-consecutive 1-bits")
    if run.bit_count() < cache.min_bits:
        raise Rejected(f"Need at least {cache.min_bits} bits in the mask")
    return value


def lowest_run(bits: int) -> int:
    """The lowest contiguous run of ones: what a new group is given of the free bits."""
    if not bits:
        return 0
    lowest = bits & -bits
    return bits & ~(bits + lowest)
