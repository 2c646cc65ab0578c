"""The cache and bandwidth hardware there is, as further shapes of the sandbox: known machines with another RDT.

What they can do is what `info/` showed on such machines, or what the documents of Intel, AMD, ARM and the Linux kernel
(Documentation/filesystems/resctrl.rst) say.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from koordlite.lab.machine import rdt as resctrl_hardware
from koordlite.lab.machine.machine import LogicalCPU, Machine
from koordlite.lab.machine.rdt import RDT, Bandwidth, Cache, Monitoring

_MILAN, _GENOA, _GAPS = (5, 15), (6, 12), (0, 1, 8, 9)


def of(intel: Machine, amd: Machine, arm: Machine) -> Iterator[Machine]:
    """The flavours of a machine with two sockets, one with several caches a socket, and one of ARM."""
    yield from _mounted_otherwise(intel)
    yield from _other_intel(intel)
    yield from _other_amd(amd)
    yield _mpam(arm)


def _mounted_otherwise(intel: Machine) -> Iterator[Machine]:
    """The same hardware, mounted with options, or not at all."""
    yield _flavour(intel, "intel-cdp", "mounted with cdp: code and data apart", RDT(kernel=(6, 12)), resctrl="cdp")
    yield _flavour(intel, "intel-mbps", "mounted with mba_MBps: bandwidth in MB/s", RDT(), resctrl="mba_MBps")
    yield _flavour(intel, "intel-unmounted", "resctrl is there, but not mounted", RDT(), resctrl=None)


def _other_intel(intel: Machine) -> Iterator[Machine]:
    """Less and other hardware."""
    alone = tuple(
        msgspec.structs.replace(cpu, id=n) for n, cpu in enumerate(cpu for cpu in intel.cpus if cpu.package == 0)
    )
    wide = RDT(kernel=(5, 15), l3=Cache(bits=11, shareable=0x600, cdp=False), mb=Bandwidth(closids=15))
    yield _flavour(
        intel,
        "intel-1s",
        "1 socket, 11 ways of which 2 are shared, Linux 5.15",
        wide,
        cpus=alone,
        nodes=intel.nodes[:1],
    )
    yield _flavour(
        intel, "intel-nomba", "no bandwidth allocation, 20 ways", RDT(l3=Cache(bits=20, min_bits=2), mb=None)
    )
    atom = RDT(l3=None, l2=Cache(bits=8, closids=8), mb=None, monitoring=None)
    yield _flavour(intel, "intel-l2", "cache allocation in L2 only, no monitoring", atom)
    clustered = RDT(kernel=(6, 12), l3=Cache(bits=15, closids=15, sparse=True), monitoring=Monitoring(rmids=256))
    yield _flavour(intel, "intel-snc", "2 NUMA nodes a socket (SNC), counted apart", clustered, **_clusters(intel))


def _other_amd(amd: Machine) -> Iterator[Machine]:
    """Ids with gaps, as they come where a part of the cores is switched off."""
    ids = dict(zip(amd.l3_ids, _GAPS, strict=True))
    cpus = tuple(msgspec.structs.replace(cpu, l3=ids[cpu.l3 or 0]) for cpu in amd.cpus)
    old = resctrl_hardware.amd(_MILAN, smba=None)
    yield _flavour(amd, "amd-milan", "cache ids 0, 1, 8, 9, Linux 5.15", old, cpus=cpus)
    late = resctrl_hardware.amd(_GENOA, bandwidth=4096)
    yield _flavour(amd, "amd-genoa", "slow memory (SMBA), events to choose (BMEC), 4096 as maximum", late, cpus=cpus)


def _mpam(arm: Machine) -> Machine:
    """MPAM through the kernel's resctrl: masks with holes, bandwidth in percent by hundredths, nothing of Intel's."""
    cpus = tuple(msgspec.structs.replace(cpu, l3=1 + cpu.node) for cpu in arm.cpus)
    hardware = RDT(
        kernel=(6, 14),
        l3=Cache(bits=16, closids=32, sparse=True, cdp=False),
        mb=Bandwidth(closids=32, minimum=1, granularity=1, throttle=""),
        monitoring=Monitoring(events=("llc_occupancy",), rmids=64, unit_bytes=1024),
    )
    return _flavour(arm, "arm-mpam", "ARM MPAM: L3 portions and bandwidth in percent", hardware, cpus=cpus)


def _flavour(base: Machine, name: str, summary: str, rdt: RDT, **other: object) -> Machine:
    """`base` with other hardware; its flags say so, where the vendor has flags for it."""
    known = set(resctrl_hardware.FLAGS)
    words = [word for word in base.flags.split() if word not in known]
    flags = " ".join(words if base.vendor == "ARM" else [*words, *resctrl_hardware.flags(rdt)])
    whole = f"like {base.name}: {summary}"
    return msgspec.structs.replace(base, name=name, summary=whole, flags=flags, rdt=rdt, **other)


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
