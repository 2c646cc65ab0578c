"""Parts of a machine of the sandbox: CPUs, NUMA nodes, caches and what its kernel offers.

Cache and bandwidth hardware is data, too: every flavour of resctrl is one `RDT`, whose fields are what CPUID tells the
kernel's driver (Intel SDM volume 3 chapter 18, AMD Platform QoS Extensions).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

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


EVENTS = ("llc_occupancy", "mbm_total_bytes", "mbm_local_bytes")
"""Events that can be counted, in the order of `mon_features`."""

FLAGS = (
    *("rdt_a", "cat_l3", "cdp_l3", "cat_l2", "cdp_l2", "mba"),
    *("cqm", "cqm_llc", "cqm_occup_llc", "cqm_mbm_total", "cqm_mbm_local"),
)
"""Words of /proc/cpuinfo that tell of it."""

_AMD_MAXIMUM_BEFORE_6_9 = 2048
_AMD_LAST_LEVEL_BYTES = 512 * 1024


class Cache(msgspec.Struct, frozen=True, kw_only=True):
    """Cache allocation (CAT) of one level."""

    bits: int = 12
    """Length of a mask: the ways of the cache, usually."""
    closids: int = 16
    min_bits: int = 1
    """Ones a mask must have in its first run; 0 on AMD, where a mask may be empty."""
    shareable: int = 0
    """Bits that hardware other than the CPUs uses as well."""
    cdp: bool = True
    """Code and data have masks of their own when mounted so; the schemata are padded for it in any case."""
    sparse: bool = False
    """Masks may have holes."""

    @property
    def full(self) -> int:
        """The mask of everything."""
        return (1 << self.bits) - 1


class Bandwidth(msgspec.Struct, frozen=True, kw_only=True):
    """Bandwidth allocation (MBA, SMBA): percent on Intel, 1/8 GB/s on AMD."""

    closids: int = 8
    minimum: int = 10
    granularity: int = 10
    full: int = 100
    """No limit."""
    linear: bool = True
    throttle: str = "max"
    """Allocation of two threads of a core that want different things; empty where the file is absent."""


class Monitoring(msgspec.Struct, frozen=True, kw_only=True):
    """Counting by RMID (CMT, MBM)."""

    events: tuple[str, ...] = EVENTS
    rmids: int = 32
    unit_bytes: int = 65536
    """Bytes a count of 1 stands for."""
    counter_bits: int = 32
    configurable: bool = False
    """AMD's BMEC: what the bandwidth events count can be chosen, from Linux 6.3."""


class RDT(msgspec.Struct, frozen=True, kw_only=True):
    """The whole hardware and the kernel that drives it; None for what the machine has not."""

    amd: bool = False
    """AMD's forms: absolute bandwidth, masks with holes, wider columns."""
    kernel: tuple[int, int] = (6, 1)
    l3: Cache | None = Cache()
    l2: Cache | None = None
    mb: Bandwidth | None = Bandwidth()
    smba: Bandwidth | None = None
    monitoring: Monitoring | None = Monitoring()

    @property
    def can_allocate(self) -> bool:
        """There is something to give to control groups."""
        return any((self.l3, self.l2, self.mb, self.smba))

    def since(self, major: int, minor: int) -> bool:
        """The kernel is of this version or later."""
        return self.kernel >= (major, minor)

    def limit_bytes(self, l3_bytes: int) -> int:
        """The largest occupancy threshold: AMD reports the size of its L2 to the driver."""
        return _AMD_LAST_LEVEL_BYTES if self.amd else l3_bytes


def amd(kernel: tuple[int, int] = (6, 1), *, bits: int = 16, bandwidth: int = 2048, **other: object) -> RDT:
    """AMD's Platform QoS: masks as they come, bandwidth absolute, slow memory and configurable events."""
    limit = Bandwidth(closids=16, minimum=0, granularity=1, full=bandwidth, linear=False, throttle="")
    hardware = RDT(
        amd=True,
        kernel=kernel,
        l3=Cache(bits=bits, min_bits=0, sparse=True),
        mb=limit,
        smba=limit,
        monitoring=Monitoring(unit_bytes=64, counter_bits=44, configurable=True),
    )
    return msgspec.structs.replace(hardware, **other)


def flags(rdt: RDT) -> list[str]:
    """Select those of FLAGS that an x86 machine shows. Slow memory, choosing events and SNC have none."""
    events = rdt.monitoring.events if rdt.monitoring else ()
    l3, l2 = rdt.l3, rdt.l2
    caches = (l3 is not None, l3 is not None and l3.cdp, l2 is not None, l2 is not None and l2.cdp)
    event_flags = (bool(events), bool(events), *(event in events for event in EVENTS))
    present = (rdt.can_allocate, *caches, rdt.mb is not None, *event_flags)
    return [flag for flag, there in zip(FLAGS, present, strict=True) if there]


def driven(rdt: RDT) -> RDT:
    """Hardware as the kernel knows it: an old one does not know it all."""

    def cache(hardware: Cache | None) -> Cache | None:
        """Masks with holes on Intel are known from Linux 6.7."""
        sparse = hardware is not None and (rdt.amd or (hardware.sparse and rdt.since(6, 7)))
        return hardware and msgspec.structs.replace(hardware, sparse=sparse)

    def bandwidth(hardware: Bandwidth | None) -> Bandwidth | None:
        """AMD's maximum is read from the CPU from Linux 6.9 on, before it is taken for 2048."""
        is_read = not rdt.amd or rdt.since(6, 9)
        return hardware if is_read else hardware and msgspec.structs.replace(hardware, full=_AMD_MAXIMUM_BEFORE_6_9)

    monitoring = rdt.monitoring
    if monitoring and not rdt.since(6, 3):
        monitoring = msgspec.structs.replace(monitoring, configurable=False)
    smba = bandwidth(rdt.smba) if rdt.since(6, 3) else None
    l3, l2 = cache(rdt.l3), cache(rdt.l2)
    return msgspec.structs.replace(rdt, l3=l3, l2=l2, mb=bandwidth(rdt.mb), smba=smba, monitoring=monitoring)


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

    def cores(self) -> dict[int, int]:
        """Core of every CPU, by the id of the core's first CPU."""
        first: dict[tuple[int, int], int] = {}
        for cpu in self.cpus:
            first.setdefault((cpu.package, cpu.core), cpu.id)
        return {cpu.id: first[cpu.package, cpu.core] for cpu in self.cpus}

    @property
    def hyperthreads(self) -> bool:
        """Tell whether a core has several CPUs."""
        return len(set(self.cores().values())) < len(self.cpus)

    def l2_ids(self) -> dict[int, int]:
        """Id of the L2 cache of every CPU."""
        cores = self.cores()
        return {cpu.id: cores[cpu.id] if cpu.l2 is None else cpu.l2 for cpu in self.cpus}
