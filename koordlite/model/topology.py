"""The machine's CPUs: which core, L3 cache, NUMA node and socket each belongs to."""

from __future__ import annotations

import functools

import msgspec

from koordlite.model.cpuset import CPUSet


class CPU(msgspec.Struct, frozen=True):
    """One logical CPU. `core` is unique on the machine; `l3` is the cache id resctrl uses, None without an L3."""

    id: int
    core: int
    socket: int
    node: int
    l3: int | None = None


class NUMANode(msgspec.Struct, frozen=True):
    """One NUMA node; `cpus` is empty for a memory-only node. `distances` maps node id to the SLIT distance."""

    id: int
    cpus: CPUSet
    memory: int
    """MemTotal in bytes."""
    distances: tuple[tuple[int, int], ...] = ()
    huge_pages: tuple[tuple[int, int], ...] = ()
    """Bytes set aside as huge pages, by the size of one page in bytes."""


class Topology(msgspec.Struct, frozen=True, dict=True):
    """The online CPUs in the order of their ids, and the NUMA nodes in the order of theirs."""

    cpus: tuple[CPU, ...]
    nodes: tuple[NUMANode, ...]

    @functools.cached_property
    def cpuset(self) -> CPUSet:
        """All online CPUs."""
        return CPUSet(cpu.id for cpu in self.cpus)

    @functools.cached_property
    def by_id(self) -> dict[int, CPU]:
        """CPU id → CPU."""
        return {cpu.id: cpu for cpu in self.cpus}

    @functools.cached_property
    def l3_ids(self) -> tuple[int, ...]:
        """Ids of the L3 caches, ascending; gaps are normal."""
        return tuple(sorted({cpu.l3 for cpu in self.cpus if cpu.l3 is not None}))

    def numa_of(self, cpus: CPUSet) -> frozenset[int]:
        """NUMA nodes the given CPUs lie on; ids the machine does not have are ignored."""
        return frozenset(self.by_id[cpu].node for cpu in cpus if cpu in self.by_id)
