"""Parts of a machine of the sandbox: CPUs, NUMA nodes, caches and what its kernel offers."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from koordlite.lab.machine.rdt import RDT
from koordlite.model.cpuset import CPUSet

GiB = 2**30
DISKS: Mapping[str, str] = {"vda": "254:0", "vdb": "254:16"}
"""Every machine has two disks, by name with their numbers; the first has two partitions."""
PARTITIONS: Mapping[str, tuple[str, str]] = {"vda1": ("vda", "254:1"), "vda2": ("vda", "254:2")}
DISK_SPEED = 400 * 2**20
"""Bytes a second the first disk can read."""


class LogicalCPU(msgspec.Struct, frozen=True):
    """Place of one CPU, with the ids as sysfs shows them: core ids repeat from package to package."""

    id: int
    package: int
    """-1 where the firmware does not say, as on many ARM machines."""
    core: int
    node: int
    l3: int | None
    """Cache id; None where there is no L3 cache or it has no id."""
    l2: int | None = None
    """Cache id; None: that of its core's first CPU."""


class NodeMemory(msgspec.Struct, frozen=True):
    """Memory of one NUMA node and the distances to all nodes, in the order of their ids."""

    id: int
    memory: int
    distances: tuple[int, ...]


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the sandbox needs to know to stand for a machine."""

    name: str
    vendor: str
    model: str
    flags: str
    cpus: tuple[LogicalCPU, ...]
    nodes: tuple[NodeMemory, ...]
    cgroup_version: int
    driver: str
    rdt: RDT | None = None
    l3_bytes: int = 16 * 2**20
    l2_bytes: int = 2 * 2**20
    resctrl: str | None = ""
    """Options resctrl is mounted with when the machine has booted; None: it is not mounted."""
    swap: int | None = None
    """Bytes of swap; None: a kernel that is built without it."""
    extended: bool = False
    """An Anolis kernel: group identity, memory watermarks and priorities."""

    @property
    def cpuset(self) -> CPUSet:
        """All CPUs."""
        return CPUSet(cpu.id for cpu in self.cpus)

    @property
    def memory(self) -> int:
        """Bytes over all NUMA nodes."""
        return sum(node.memory for node in self.nodes)

    @property
    def mems(self) -> CPUSet:
        """Ids of the NUMA nodes, as cpuset.mems lists them."""
        return CPUSet(node.id for node in self.nodes)

    @property
    def l3_ids(self) -> tuple[int, ...]:
        """Cache ids, ascending."""
        return tuple(sorted({cpu.l3 for cpu in self.cpus if cpu.l3 is not None}))

    def l2_ids(self) -> dict[int, int]:
        """Id of the L2 cache of every CPU."""
        cores: dict[tuple[int, int], int] = {}
        for cpu in self.cpus:
            cores.setdefault((cpu.package, cpu.core), cpu.id)
        return {cpu.id: cores[cpu.package, cpu.core] if cpu.l2 is None else cpu.l2 for cpu in self.cpus}
