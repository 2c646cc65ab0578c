"""Allocatable resources as resctrl is mounted: the resources, and the values of every CLOSID in every domain."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from koordlite.lab.machine.machine import Machine
from koordlite.lab.machine.rdt import RDT, Bandwidth, Cache
from koordlite.lab.resctrl.rules import NO_LIMIT_MBPS


class DomainLayout:
    """The caches with online CPUs. A cache whose last CPU goes offline is gone until one comes back."""

    def __init__(self, machine: Machine, rdt: RDT) -> None:
        self._machine = machine
        self.online = machine.cpuset
        self.size = len(machine.cpus)
        self._places: dict[int, dict[int, int | None]] = {
            2: dict(machine.l2_ids()),
            3: {cpu.id: cpu.l3 for cpu in machine.cpus},
        }
        nodes: dict[int, set[int]] = {}
        for cpu in machine.cpus:
            if cpu.l3 is not None:
                nodes.setdefault(cpu.l3, set()).add(cpu.node)
        self._clustered = not rdt.amd and rdt.since(6, 11) and max(map(len, nodes.values()), default=1) > 1
        self._nodes = {cache: tuple(sorted(ids)) for cache, ids in nodes.items()}
        self._node_of = {cpu.id: cpu.node for cpu in machine.cpus}

    def ids(self, level: int) -> tuple[int, ...]:
        """Cache ids of that level, ascending."""
        places = {self._places[level].get(cpu) for cpu in self.online}
        return tuple(sorted(place for place in places if place is not None))

    def clusters(self, l3: int) -> tuple[int, ...]:
        """NUMA nodes below one L3 cache, when the machine counts them apart (SNC, Linux 6.11); else none."""
        return self._nodes[l3] if self._clustered else ()

    def parts(self, l3: int) -> tuple[int, ...]:
        """Nodes of the cluster with online CPUs, by their number below the cache; the one of others is 0."""
        nodes = {self._node_of[cpu] for cpu in self.online}
        return tuple(number for number, node in enumerate(self.clusters(l3)) if node in nodes) or (0,)

    @property
    def clusters_per_cache(self) -> int:
        """Into how many parts the RMIDs of an L3 cache are cut."""
        return max((len(nodes) for nodes in self._nodes.values()), default=1) if self._clustered else 1

    def bytes(self, level: int) -> int:
        """Size of one cache."""
        return self._machine.l3_bytes if level == 3 else self._machine.l2_bytes


MOST_CLOSIDS = 32
"""The driver counts CLOSIDs in one word of 32 bits."""

_CDP_SUFFIX = 4
_INTEL_MB_WIDTH = 3
_AMD_MB_WIDTH = 4


class Schema(msgspec.Struct, eq=False):
    """One line of `schemata`. `domains` holds per cache id what the registers hold by CLOSID."""

    name: str
    level: int
    """Of the cache whose ids the domains have: 2 or 3."""
    hardware: Cache | Bandwidth
    closids: int
    mbps: bool = False
    """The software controller keeps the values, in MB/s."""
    peer: Schema | None = None
    """The other half of the cache under CDP."""
    domains: dict[int, list[int]] = msgspec.field(default_factory=dict)

    @property
    def cache(self) -> Cache | None:
        """The cache that is cut; None for bandwidth."""
        return self.hardware if isinstance(self.hardware, Cache) else None

    @property
    def full(self) -> int:
        """The value of no limit."""
        return NO_LIMIT_MBPS if self.mbps else self.hardware.full

    def follow(self, ids: Iterable[int]) -> None:
        """Have these domains: one that comes back starts at no limit for all groups."""
        wanted = tuple(ids)
        self.domains = {i: self.domains.get(i) or [self.full] * self.closids for i in wanted}

    def values(self, closid: int) -> dict[int, int]:
        """Allocation of one CLOSID, by cache id."""
        return {i: values[closid] for i, values in self.domains.items()}

    def put(self, closid: int, values: dict[int, int]) -> None:
        """Write the registers."""
        for cache_id, value in values.items():
            self.domains[cache_id][closid] = value


def mounted(rdt: RDT, layout: DomainLayout, options: frozenset[str]) -> dict[str, Schema]:
    """The resources in the order the kernel prints them, without a limit for any group."""
    parts = [
        [_bandwidth("SMBA", rdt.smba)] if rdt.smba else [],
        [_bandwidth("MB", rdt.mb, "mba_MBps" in options)] if rdt.mb else [],
        _halves("L2", rdt.l2, "cdpl2" in options) if rdt.l2 else [],
        _halves("L3", rdt.l3, "cdp" in options) if rdt.l3 else [],
    ]
    # Since Linux 5.15 each resource is put before the ones that were there.
    ordered = parts if rdt.since(5, 15) else reversed(parts)
    schemas = [schema for part in ordered for schema in part]
    for schema in schemas:
        schema.follow(layout.ids(schema.level))
    return {schema.name: schema for schema in schemas}


def _bandwidth(name: str, limit: Bandwidth, mbps: bool = False) -> Schema:
    return Schema(name, 3, limit, limit.closids, mbps)


def _halves(name: str, cache: Cache, cdp: bool) -> list[Schema]:
    level = int(name[1])
    if not cdp:
        return [Schema(name, level, cache, cache.closids)]
    data, code = (Schema(f"{name}{half}", level, cache, cache.closids // 2) for half in ("DATA", "CODE"))
    data.peer, code.peer = code, data
    return [data, code]


def closids(schemas: Iterable[Schema]) -> int:
    """Largest number of groups, the root included."""
    return min((schema.closids for schema in schemas), default=MOST_CLOSIDS)


class Columns:
    """Width in which the kernel prints: by what the machine could have, not by what is mounted."""

    def __init__(self, rdt: RDT) -> None:
        self.name = max((width for width, _ in _widths(rdt)), default=0)
        self.value = max((width for _, width in _widths(rdt)), default=0)

    def schemata(self, schemas: Iterable[Schema], closid: int) -> str:
        """The content of `schemata`."""
        return "".join(self._line(each.name, self._forms(each, closid)) for each in schemas)

    def sizes(self, schemas: Iterable[Schema], closid: int, layout: DomainLayout) -> str:
        """The content of `size`: bytes of cache each mask stands for; bandwidth as it is."""
        return "".join(self._line(each.name, _sizes(each, closid, layout)) for each in schemas)

    def _line(self, name: str, values: Iterable[str]) -> str:
        return f"{name:>{self.name}}:{';'.join(values)}\n"

    def _forms(self, schema: Schema, closid: int) -> Iterator[str]:
        form = f"0{self.value}x" if schema.cache else f"{self.value}d"
        return (f"{i}={value:{form}}" for i, value in schema.values(closid).items())


def _sizes(schema: Schema, closid: int, layout: DomainLayout) -> Iterator[str]:
    cache = schema.cache
    each = layout.bytes(schema.level) // cache.bits if cache else 0
    return (f"{i}={each * value.bit_count() if cache else value}" for i, value in schema.values(closid).items())


def _widths(rdt: RDT) -> Iterator[tuple[int, int]]:
    """(columns of the name, columns of a value) of every resource the machine has."""
    for name, cache in (("L2", rdt.l2), ("L3", rdt.l3)):
        if cache:
            yield len(name) + (_CDP_SUFFIX if cache.cdp else 0), -(-cache.bits // 4)
    for name, limit in (("MB", rdt.mb), ("SMBA", rdt.smba)):
        if limit:
            yield len(name), _AMD_MB_WIDTH if rdt.amd else _INTEL_MB_WIDTH
