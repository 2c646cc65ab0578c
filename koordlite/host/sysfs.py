"""The machine's CPUs and NUMA nodes as /sys describes them, and memory in use by NUMA node; ids may have gaps."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Sequence

from koordlite.host import procfs
from koordlite.model.cpuset import CPUSet
from koordlite.model.errors import HardwareAbsent
from koordlite.model.topology import CPU, NUMANode, Topology
from koordlite.ports import Files
from koordlite.resctrl.files import names, text

_CPUS = "/sys/devices/system/cpu"
_NODES = "/sys/devices/system/node"
_HUGE_PAGES = "/sys/kernel/mm/hugepages"
_LOCAL_DISTANCE = 10
_PAGE_FOLDER = re.compile(r"hugepages-(\d+)kB", re.ASCII)
_NUMA_ROW = re.compile(rb"^(\w+)(?:=\d+)?((?: \S+)*)$", re.ASCII)
_NUMA_AMOUNT = re.compile(rb"N(\d+)=(\d+)", re.ASCII)
_RECLAIMABLE = (b"MemFree", b"Active(file)", b"Inactive(file)", b"SReclaimable")
_CORE_PARTS = ("physical_package_id", "die_id", "cluster_id", "core_id")


def topology(files: Files) -> Topology:
    """The online CPUs with core, socket, NUMA node and L3 cache, and the NUMA nodes, also those without CPUs.
    Cores and sockets are numbered over the whole machine in the order of their first CPU, as lscpu does. L3 caches
    keep the ids resctrl uses. HardwareAbsent when /sys lists no CPU."""
    ids = _online(files)
    if not ids:
        raise HardwareAbsent("CPU topology", f"{_CPUS} lists no CPU that is online")
    nodes = _numa_nodes(files, ids)
    node_of = {cpu: node.id for node in nodes for cpu in node.cpus}
    # ARM firmware without the table says -1, or there is no file at all: one socket.
    packages = ((cpu, _number(files, f"{_CPUS}/cpu{cpu}/topology/physical_package_id", 0)) for cpu in ids)
    sockets = _numbered((cpu, max(0, package)) for cpu, package in packages)
    cores = _numbered((cpu, _core_key(files, cpu)) for cpu in ids)
    caches = _l3_ids(files, ids)
    stray = nodes[0].id
    return Topology(
        tuple(CPU(cpu, cores[cpu], sockets[cpu], node_of.get(cpu, stray), caches.get(cpu)) for cpu in ids), nodes
    )


def possible(files: Files) -> CPUSet:
    """Every CPU the machine could ever have online; those online where /sys does not say."""
    listed = text(files, f"{_CPUS}/possible")
    return CPUSet.parse(listed) if listed else CPUSet(_online(files))


def memory_nodes(files: Files) -> CPUSet:
    """The NUMA nodes that have memory; node 0 where /sys does not say."""
    return CPUSet.parse(text(files, f"{_NODES}/has_memory") or "0")


def online(files: Files) -> CPUSet:
    """The CPUs that are online now."""
    return CPUSet(_online(files))


def smt_active(files: Files) -> bool:
    """Tell whether cores run more than one thread each."""
    return text(files, f"{_CPUS}/smt/active") == "1"


def turbo_enabled(files: Files) -> bool:
    """Tell whether Intel's turbo is on; False where its driver does not say."""
    return text(files, f"{_CPUS}/intel_pstate/no_turbo") == "0"


def _online(files: Files) -> list[int]:
    present = _numbers(names(files, _CPUS), "cpu")
    listed = text(files, f"{_CPUS}/online")
    if listed:
        online = CPUSet.parse(listed)
        return [cpu for cpu in present if cpu in online]
    # cpu0 usually cannot go offline and then has no such file.
    return [cpu for cpu in present if text(files, f"{_CPUS}/cpu{cpu}/online") != "0"]


def _core_key(files: Files, cpu: int) -> Hashable:
    """Identity that all threads of one core share. core_id alone repeats in every socket, die or ARM cluster."""
    folder = f"{_CPUS}/cpu{cpu}/topology"
    siblings = text(files, f"{folder}/thread_siblings_list")
    if siblings:
        return siblings
    if not text(files, f"{folder}/core_id"):
        return ("alone", cpu)
    return tuple(_number(files, f"{folder}/{part}", 0) for part in _CORE_PARTS)


def _numbered(keys: Iterable[tuple[int, Hashable]]) -> dict[int, int]:
    """CPU → number of its key, counted in the order in which keys first appear."""
    numbers: dict[Hashable, int] = {}
    return {cpu: numbers.setdefault(key, len(numbers)) for cpu, key in keys}


def _l3_ids(files: Files, cpus: Sequence[int]) -> dict[int, int]:
    """L3 id by CPU. Kernels without cache ids get a number for each group of CPUs that share one."""
    ids: dict[int, int] = {}
    shared: dict[int, str] = {}
    for cpu in cpus:
        folder = f"{_CPUS}/cpu{cpu}/cache"
        bases = (f"{folder}/index{index}" for index in reversed(_numbers(names(files, folder), "index")))
        is_l3 = (b for b in bases if text(files, f"{b}/level") == "3" and text(files, f"{b}/type") != "Instruction")
        base = next(is_l3, None)
        if base and (number := text(files, f"{base}/id")):
            ids[cpu] = int(number)
        elif base and (siblings := text(files, f"{base}/shared_cpu_list")):
            shared[cpu] = siblings
    return ids or _numbered(shared.items())


def _numa_nodes(files: Files, cpus: Sequence[int]) -> tuple[NUMANode, ...]:
    """The nodes in the order of their ids; a kernel without NUMA has one, 0."""
    ids = _numbers(names(files, _NODES), "node")
    if not ids:
        memory, huge_pages = procfs.memory(files).total, _huge_pages(files, _HUGE_PAGES)
        return (NUMANode(0, CPUSet(cpus), memory, ((0, _LOCAL_DISTANCE),), huge_pages),)
    return tuple(_numa_node(files, node, ids, CPUSet(cpus)) for node in ids)


def _numa_node(files: Files, node: int, ids: Sequence[int], online: CPUSet) -> NUMANode:
    folder = f"{_NODES}/node{node}"
    cpus = CPUSet.parse(text(files, f"{folder}/cpulist")) & online
    distances = text(files, f"{folder}/distance").split()
    # The kernel prints one distance for each online node, in the order of their ids; ids may have gaps.
    pairs = tuple(zip(ids, map(int, distances), strict=False))
    meminfo = text(files, f"{folder}/meminfo").encode()
    memory = procfs.kib(meminfo, b"MemTotal") if b"MemTotal:" in meminfo else 0
    return NUMANode(node, cpus, memory, pairs, _huge_pages(files, f"{folder}/hugepages"))


def _huge_pages(files: Files, folder: str) -> tuple[tuple[int, int], ...]:
    """Bytes set aside by page size, from folders named like `hugepages-2048kB`; sizes without pages are left out."""
    folders = (name.rstrip("/") for name in names(files, folder))
    sizes = [int(match[1]) for name in folders if (match := _PAGE_FOLDER.fullmatch(name))]
    counts = ((size, _number(files, f"{folder}/hugepages-{size}kB/nr_hugepages", 0)) for size in sorted(sizes))
    return tuple((size * 1024, size * 1024 * count) for size, count in counts if count)


def _numbers(listed: Iterable[str], prefix: str) -> list[int]:
    """The ids in folder names like `cpu12/`, ascending."""
    tails = (name[len(prefix) :].rstrip("/") for name in listed if name.startswith(prefix) and name.endswith("/"))
    return sorted(int(tail) for tail in tails if tail.isascii() and tail.isdigit())


def _number(files: Files, path: str, default: int) -> int:
    return int(text(files, path) or default)


def numa_memory_of_group(raw: bytes, *, version: int, page_bytes: int, below: bool = False) -> dict[int, int]:
    """NUMA node → bytes of `memory.numa_stat`, page cache included; ValueError when it has another form.

    v1 counts pages in its row `total`, without the groups below; with `below` in `hierarchical_total`. v2 counts bytes,
    always with the groups below: the rows `anon` and `file` together. Source: Linux
    "Memory Resource Controller" and "Control Group v2"; Koordinator `ReadMemoryNumaStat` takes 4096 bytes for a page
    of v2 whatever the machine's page is, and refuses ids with gaps.
    """
    if version == 1:
        row = _numa_row(raw, b"hierarchical_total" if below else b"total")
        return {node: pages * page_bytes for node, pages in row.items()}
    anonymous, cached = _numa_row(raw, b"anon"), _numa_row(raw, b"file")
    return {node: anonymous.get(node, 0) + cached.get(node, 0) for node in sorted(anonymous.keys() | cached.keys())}


def numa_memory_of_node(raw: bytes) -> int:
    """Bytes in use on one NUMA node: max(MemTotal − MemFree − page cache − SReclaimable, 0) of its `meminfo`.
    ValueError when a line is missing. Source: Koordinator's node resource collector."""
    total, *free = (procfs.kib(raw, name) for name in (b"MemTotal", *_RECLAIMABLE))
    return max(total - sum(free), 0)


def _numa_row(raw: bytes, name: bytes) -> dict[int, int]:
    rows = (match for line in raw.splitlines() if (match := _NUMA_ROW.fullmatch(line)))
    words = next((match[2].split() for match in rows if match[1] == name), None)
    if not words:
        raise ValueError(f"no row {name.decode()} in {raw[:80]!r}")
    matches = [_NUMA_AMOUNT.fullmatch(word) for word in words]
    if None in matches:
        raise ValueError(f"{b' '.join(words)[:80]!r} is no list of amounts like N0=1 N1=2")
    return {int(match[1]): procfs.number(match[2]) for match in matches if match}
