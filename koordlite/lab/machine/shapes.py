"""The machines the sandbox can be, as data: a new shape is one more `Machine`."""

from __future__ import annotations

import msgspec

from koordlite.lab.machine import flavours
from koordlite.lab.machine.machine import GiB, LogicalCPU, Machine, NodeMemory
from koordlite.lab.machine.rdt import RDT, amd


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


_INTEL = Machine(
    name="intel-2s-ht",
    summary="2 sockets × 8 cores × 2 threads, 2 NUMA nodes, cgroup v2 with systemd names, resctrl with percent MB",
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

_AMD = Machine(
    name="amd-ccd",
    summary="1 socket, 4 caches with gaps in their ids, 2 NUMA nodes (NPS2), cgroup v2, resctrl with absolute MB",
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

_ARM = Machine(
    name="arm",
    summary="16 cores without hyperthreads, package ids unknown, 2 NUMA nodes, cgroup v2, no resctrl",
    vendor="ARM",
    model="Neoverse-N1",
    flags="fp asimd evtstrm aes atomics",
    cpus=tuple(LogicalCPU(id=cpu, package=-1, core=cpu, node=cpu // 8, l3=None) for cpu in range(16)),
    nodes=(NodeMemory(0, 32 * GiB, (10, 20)), NodeMemory(1, 32 * GiB, (20, 10))),
    cgroup_version=2,
    driver="systemd",
)

_SMALL = Machine(
    name="small",
    summary="2 cores × 2 threads, 1 NUMA node, cgroup v1, no resctrl",
    vendor="GenuineIntel",
    model="Intel(R) Xeon(R) CPU E3-1220L V2 @ 2.30GHz",
    flags="fpu tsc msr ht lm",
    cpus=_hyperthreads(cores=2, cores_per_package=2, cores_per_node=2, l3=[0, 0]),
    nodes=(NodeMemory(0, 8 * GiB, (10,)),),
    cgroup_version=1,
    driver="cgroupfs",
)

_ANOLIS = msgspec.structs.replace(
    _SMALL,
    name="anolis",
    summary="4 cores × 2 threads, 1 NUMA node, cgroup v1 of an Anolis kernel: group identity, memory watermarks",
    cpus=_hyperthreads(cores=4, cores_per_package=4, cores_per_node=4, l3=[0] * 4),
    extended=True,
)

_SHAPES = {shape.name: shape for shape in (_INTEL, _AMD, _ARM, _SMALL, _ANOLIS, *flavours.of(_INTEL, _AMD, _ARM))}
