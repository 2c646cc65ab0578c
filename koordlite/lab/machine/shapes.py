"""The machines the sandbox can be, as data: a new shape is one more `Machine`."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from koordlite.lab.machine import machine as hardware
from koordlite.lab.machine.machine import RDT, Bandwidth, Cache, GiB, LogicalCPU, Machine, Monitoring, NodeMemory, amd

_MILAN, _GENOA, _GAPS = (5, 15), (6, 12), (0, 1, 8, 9)


def of(intel: Machine, amd: Machine, arm: Machine) -> Iterator[Machine]:
    """The flavours of a machine with two sockets, one with several caches a socket, and one of ARM."""
    # The same hardware, mounted with options (code and data apart, bandwidth in MB/s), or not at all.
    yield _flavour(intel, "intel-cdp", RDT(kernel=(6, 12)), resctrl="cdp")
    yield _flavour(intel, "intel-mbps", RDT(), resctrl="mba_MBps")
    yield _flavour(intel, "intel-unmounted", RDT(), resctrl=None)
    # One socket, 11 ways of which 2 are shared with other hardware.
    alone = tuple(
        msgspec.structs.replace(cpu, id=n) for n, cpu in enumerate(cpu for cpu in intel.cpus if cpu.package == 0)
    )
    wide = RDT(kernel=(5, 15), l3=Cache(bits=11, shareable=0x600, cdp=False), mb=Bandwidth(closids=15))
    yield _flavour(intel, "intel-1s", wide, cpus=alone, nodes=intel.nodes[:1])
    yield _flavour(intel, "intel-nomba", RDT(l3=Cache(bits=20, min_bits=2), mb=None))
    # Cache allocation in L2 only, as Atoms have it, and no monitoring.
    yield _flavour(intel, "intel-l2", RDT(l3=None, l2=Cache(bits=8, closids=8), mb=None, monitoring=None))
    # Two NUMA nodes a socket (SNC), counted apart.
    clustered = RDT(kernel=(6, 12), l3=Cache(bits=15, closids=15, sparse=True), monitoring=Monitoring(rmids=256))
    yield _flavour(intel, "intel-snc", clustered, **_clusters(intel))
    # Ids with gaps, as they come where a part of the cores is switched off.
    ids = dict(zip(amd.l3_ids, _GAPS, strict=True))
    cpus = tuple(msgspec.structs.replace(cpu, l3=ids[cpu.l3 or 0]) for cpu in amd.cpus)
    yield _flavour(amd, "amd-milan", hardware.amd(_MILAN, smba=None), cpus=cpus)
    # Slow memory (SMBA), and 4096 as maximum.
    yield _flavour(amd, "amd-genoa", hardware.amd(_GENOA, bandwidth=4096), cpus=cpus)
    # MPAM through the kernel's resctrl: masks with holes, bandwidth in percent by hundredths, nothing of Intel's.
    mpam = RDT(
        kernel=(6, 14),
        l3=Cache(bits=16, closids=32, sparse=True, cdp=False),
        mb=Bandwidth(closids=32, minimum=1, granularity=1, throttle=""),
        monitoring=Monitoring(events=("llc_occupancy",), rmids=64, unit_bytes=1024),
    )
    numbered = tuple(msgspec.structs.replace(cpu, l3=1 + cpu.node) for cpu in arm.cpus)
    yield _flavour(arm, "arm-mpam", mpam, cpus=numbered)


def _flavour(base: Machine, name: str, rdt: RDT, **other: object) -> Machine:
    """`base` with other hardware; its flags say so, where the vendor has flags for it."""
    words = [word for word in base.flags.split() if word not in hardware.FLAGS]
    flags = " ".join(words if base.vendor == "ARM" else [*words, *hardware.flags(rdt)])
    return msgspec.structs.replace(base, name=name, flags=flags, rdt=rdt, **other)


def _clusters(intel: Machine) -> dict[str, object]:
    """Each socket in two NUMA nodes, by its cores."""

    def node(cpu: LogicalCPU) -> int:
        return 2 * cpu.package + cpu.core // 4

    half = [msgspec.structs.replace(each, memory=each.memory // 2) for each in intel.nodes for _ in range(2)]
    distances = ((10, 12, 21, 21), (12, 10, 21, 21), (21, 21, 10, 12), (21, 21, 12, 10))
    return {
        "cpus": tuple(msgspec.structs.replace(cpu, node=node(cpu)) for cpu in intel.cpus),
        "nodes": tuple(msgspec.structs.replace(each, id=n, distances=distances[n]) for n, each in enumerate(half)),
    }


def shapes() -> tuple[str, ...]:
    """Names the sandbox accepts."""
    return tuple(_SHAPES)


def machine(name: str) -> Machine:
    """The machine called `name`; ValueError lists the names there are."""
    if name not in _SHAPES:
        raise ValueError(f"no sandbox shape is called {name!r}; there are {', '.join(_SHAPES)}")
    return _SHAPES[name]


def _hyperthreads(*, cores: int, cores_per_package: int, cores_per_node: int, l3: list[int]) -> tuple[LogicalCPU, ...]:
    """Two threads a core, the second thread of core i being CPU i + cores; `l3` is the cache id of each core."""
    return tuple(
        LogicalCPU(
            id=cpu,
            package=core // cores_per_package,
            core=core % cores_per_package,
            node=core // cores_per_node,
            l3=l3[core],
        )
        for cpu in range(2 * cores)
        for core in (cpu % cores,)
    )


# 2 sockets × 8 cores × 2 threads, 2 NUMA nodes, cgroup v2 with systemd names, resctrl with percent MB.
_INTEL = Machine(
    name="intel-2s-ht",
    vendor="GenuineIntel",
    model="Intel(R) Xeon(R) Gold 6334 CPU @ 3.60GHz",
    flags="fpu tsc msr ht lm rdt_a cat_l3 cdp_l3 mba cqm cqm_llc cqm_occup_llc cqm_mbm_total cqm_mbm_local",
    cpus=_hyperthreads(cores=16, cores_per_package=8, cores_per_node=8, l3=[0] * 8 + [1] * 8),
    nodes=(NodeMemory(0, 128 * GiB, (10, 21)), NodeMemory(1, 128 * GiB, (21, 10))),
    cgroup_version=2,
    driver="systemd",
    rdt=RDT(),
    l3_bytes=18 * 2**20,
)

# 1 socket, 4 caches with gaps in their ids, 2 NUMA nodes (NPS2), cgroup v2, resctrl with absolute MB.
_AMD = Machine(
    name="amd-ccd",
    vendor="AuthenticAMD",
    model="AMD EPYC 7343 16-Core Processor",
    flags="fpu tsc msr ht lm rdt_a cat_l3 cdp_l3 mba cqm cqm_llc cqm_occup_llc cqm_mbm_total cqm_mbm_local",
    cpus=_hyperthreads(cores=16, cores_per_package=16, cores_per_node=8, l3=[0] * 4 + [1] * 4 + [4] * 4 + [5] * 4),
    nodes=(NodeMemory(0, 64 * GiB, (10, 12)), NodeMemory(1, 64 * GiB, (12, 10))),
    cgroup_version=2,
    driver="cgroupfs",
    rdt=amd(smba=None),
    l3_bytes=32 * 2**20,
)

# 16 cores without hyperthreads, package ids unknown, 2 NUMA nodes, cgroup v2, no resctrl.
_ARM = Machine(
    name="arm",
    vendor="ARM",
    model="Neoverse-N1",
    flags="fp asimd evtstrm aes atomics",
    cpus=tuple(LogicalCPU(id=cpu, package=-1, core=cpu, node=cpu // 8, l3=None) for cpu in range(16)),
    nodes=(NodeMemory(0, 32 * GiB, (10, 20)), NodeMemory(1, 32 * GiB, (20, 10))),
    cgroup_version=2,
    driver="systemd",
)

# 2 cores × 2 threads, 1 NUMA node, cgroup v1, no resctrl.
_SMALL = Machine(
    name="small",
    vendor="GenuineIntel",
    model="Intel(R) Xeon(R) CPU E3-1220L V2 @ 2.30GHz",
    flags="fpu tsc msr ht lm",
    cpus=_hyperthreads(cores=2, cores_per_package=2, cores_per_node=2, l3=[0, 0]),
    nodes=(NodeMemory(0, 8 * GiB, (10,)),),
    cgroup_version=1,
    driver="cgroupfs",
)

# 4 cores × 2 threads, 1 NUMA node, cgroup v1 of an Anolis kernel: group identity, memory watermarks.
_ANOLIS = msgspec.structs.replace(
    _SMALL,
    name="anolis",
    cpus=_hyperthreads(cores=4, cores_per_package=4, cores_per_node=4, l3=[0] * 4),
    extended=True,
)

_SHAPES = {shape.name: shape for shape in (_INTEL, _AMD, _ARM, _SMALL, _ANOLIS, *of(_INTEL, _AMD, _ARM))}
