"""Memory of a pod's processes by their pages: on which NUMA nodes they lie, of which kind they are, where threads run.

It is read only when somebody asks: the kernel walks the page tables of a process for it, and holds its memory map.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from koordlite.model.cpuset import EMPTY, CPUSet

PageKind = Literal["private", "library", "file", "shared", "huge"]
KINDS: Mapping[PageKind, str] = {
    "private": "private",
    "library": "shared libraries",
    "file": "files",
    "shared": "shared memory",
    "huge": "huge pages",
}
"""Kinds of pages, and what they are called. Huge pages are those of hugetlbfs; a transparent one counts as private."""


class ContainerMemory(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One container; bytes by NUMA node."""

    container: str
    processes: int
    cpus: CPUSet = EMPTY
    """CPUs that it may use."""
    mems: CPUSet = EMPTY
    """NUMA nodes that it may take memory from; empty: the kernel does not say."""
    pages: Mapping[PageKind, Mapping[int, int]]
    mapped_by_others: Mapping[int, int]
    """Pages of these that several processes map: migrate_pages(2) leaves them unless it may move all (CAP_SYS_NICE)."""
    locked: int = 0
    """Bytes that mlock(2) holds in memory; they are moved like others."""
    counted: Mapping[int, int] = msgspec.field(default_factory=dict)
    """The kernel's own sum for the group, which has page cache that no process maps as well; empty: it does not say."""
    ran: Mapping[int, float] = msgspec.field(default_factory=dict)
    """Part of the CPU time of the sample that its threads used on each NUMA node; empty where they used none."""
    unread: str = ""
    """Reason why not all of it was read."""


class PodMemory(msgspec.Struct, frozen=True, kw_only=True):
    """All containers of a pod, and what each NUMA node has left."""

    pod: str
    seconds: float
    """Time for which threads were watched."""
    containers: tuple[ContainerMemory, ...]
    available: Mapping[int, int]
    """Bytes by NUMA node that are not in use, page cache counted as available."""
    cpus: Mapping[int, CPUSet]
    """CPUs of each NUMA node."""
