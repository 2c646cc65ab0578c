"""Files of the kernel: memory by NUMA node, pressure, CPU time by CPU, what lscpu reads, and parts of other files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

from memory_files import MemoryFiles

from koordlite.formulas import measured
from koordlite.formulas.allocatable import allocatable
from koordlite.host import procfs, sysfs
from koordlite.host.cgroups import fields, versions
from koordlite.host.cgroups import names as cgroup_names
from koordlite.host.cgroups.filesystem import Cgroups
from koordlite.host.cgroups.versions import Version
from koordlite.model.errors import HardwareAbsent
from koordlite.model.picture.usage import Use
from koordlite.model.topology import CPU, Topology
from tests.conformance.adapters import adapter, machine, mappings

PAGE = 4096
NANO = 10**9
"""The sums know no unit: what is told in cores is added in this part of one."""


@adapter("parse.memory_numa_stat_v1", "parse.memory_numa_stat_v2", "reader.ReadMemoryNumaStat")
def numa_stat(given: Any, expect: Any) -> tuple[Any, Any]:
    """Ours are bytes; whole pages of them are compared."""
    seen, version = _group(given)

    def read() -> list[dict[str, int]]:
        raw = seen.read_raw(machine.GROUP, "memory.numa_stat")
        used = sysfs.numa_memory_of_group(raw, version=version, page_bytes=PAGE)
        return [{"numaId": node, "pagesNum": amount // PAGE} for node, amount in used.items()]

    return machine.attempt(read, None), expect


@adapter("metric.node_numa_usage")
def node_numa(given: Any, expect: Any) -> tuple[Any, Any]:
    used, placed = _ticks(given["procStat"]), given["cpuToNUMA"] or {}
    cores: dict[str, float] = {}
    for cpu, before in (given["lastTicksByCPU"] or {}).items():
        if cpu in used and cpu in placed:
            rate = machine.rate_of(before, used[cpu], given["elapsedSeconds"])
            node = str(placed[cpu])
            cores[node] = cores.get(node, 0) + (rate or 0) * given["jiffyMs"] / 1000
    memory = {node: sysfs.numa_memory_of_node(text.encode()) for node, text in (given["numaMeminfo"] or {}).items()}
    return {"cpu": _rounded(cores), "memory": memory}, {**expect, "cpu": _rounded(expect["cpu"])}


def _rounded(cores: dict[str, float]) -> dict[str, float]:
    """Without the noise of doubles."""
    return {name: round(used, 9) for name, used in cores.items()}


@adapter("metric.system_usage")
def system(given: Any, expect: Any) -> tuple[Any, Any]:
    """Ours looks at everything in one instant: what is too old is what has no sample in it."""
    pods = list((given["podsByCollector"] or {}).values())
    node, *others = [_sample(part, given["outdatedIntervalSeconds"]) for part in (given["node"], *pods)]
    applications = _sample(given["hostApps"], given["outdatedIntervalSeconds"])
    if node is None:
        return {"system": None}, expect
    found = allocatable.system_use(
        node=node, pods=[use for use in others if use], host_apps=[applications] if applications else []
    )
    system = expect["system"]
    wanted = {"system": system and {**system, "cpuCores": round(system["cpuCores"], 9)}}
    return {"system": {"cpuCores": found.cpu / NANO, "memoryBytes": found.memory}}, wanted


@adapter("metric.system_numa_usage")
def system_by_numa(given: Any, expect: Any) -> tuple[Any, Any]:
    """CPU in billionths of a core: our sums are of whole numbers."""
    cpus = {int(numa): round(cores * NANO) for numa, cores in (given["nodeNUMACPU"] or {}).items()}
    memory, pods = (_by_node(given[name]) for name in ("nodeNUMAMemory", "podsNUMAMemory"))
    found = measured.system_cpu_by_numa(round(given["systemCPUCores"] * NANO), cpus)
    system = measured.system_memory_by_numa(memory, pods)
    cores = _rounded({str(numa): cpu / NANO for numa, cpu in found.items()})
    return {"cpu": cores, "memory": {str(numa): used for numa, used in system.items()}}, expect


def _by_node(amounts: Any) -> dict[int, int]:
    return {int(numa): amount for numa, amount in (amounts or {}).items()}


def _sample(part: Any, oldest_seconds: float) -> Use | None:
    if part is None or part["ageSeconds"] > oldest_seconds:
        return None
    return Use(round(part["cpuCores"] * NANO), part["memoryBytes"])


def _pressure(seen: Cgroups) -> dict[str, float | bool]:
    names = {"CPU": "cpu.pressure", "IO": "io.pressure", "Mem": "memory.pressure"}
    stalls = {short: procfs.pressure(seen.read_raw(machine.GROUP, name)) for short, name in names.items()}
    some = {f"some{short}Avg10": stall.some.avg10 for short, stall in stalls.items()}
    full = {f"full{short}Avg10": stall.full.avg10 if stall.full else 0 for short, stall in stalls.items()}
    return {**some, **full, "cpuFullSupported": stalls["CPU"].full is not None}


def _process(text: str) -> dict[str, Any]:
    stat = procfs.process_stat(text.encode())
    return {"pid": stat.pid, "comm": stat.name, "state": stat.state, "ppid": stat.parent, "pgrp": stat.group}


def _memory_stat(version: int) -> Callable[[Any], Any]:
    def read(given: Any) -> Any:
        seen = machine.of_text(version, "memory.stat", given["input"])
        return machine.attempt(lambda: seen.memory(machine.GROUP), None)

    return read


def _cpu_stat(raw: bytes) -> dict[str, int]:
    """Ours has no user and system time apart: the rule `cpu-stat-lines` compares the others."""
    stat, used = Version(2).throttling(raw), Version(2).usage_ns(raw) // 1000
    times = {"usageUsec": used, "throttledUSec": stat.time_ns // 1000}
    return {**times, "nrPeriods": stat.periods, "nrThrottled": stat.throttled}


def _memory_limit(given: Any) -> int:
    """Read as every limit in bytes is."""
    name = "memory.limit_in_bytes" if given["cgroupVersion"] == 1 else "memory.max"
    return fields.parse_bytes(MemoryFiles(given["files"]).read(name))


def _container_id(given: Any) -> str:
    return cgroup_names.container_id(machine.layout(1, given["driver"]), given["basename"])


mappings(
    {
        "reader.ReadPSI": machine.reading(_pressure, None),
        "parse.proc_stat_per_cpu_ticks": lambda given: machine.attempt(
            lambda: _ticks(given["content"]), None, "usedTicksByCPU"
        ),
        "parse.proc_pid_stat": lambda given: machine.attempt(lambda: _process(given["content"]), None, "stat"),
        "parse.kv_map": lambda given: {"map": versions.keyed(given["content"].encode())},
        # Ours is the sum of those lines that count: the rule `memory-stat-lines` compares it.
        "reader.ReadMemoryStat": machine.reading(lambda seen: seen.memory(machine.GROUP), None),
        "parse.memory_stat_v1": _memory_stat(1),
        "parse.memory_stat_v2": _memory_stat(2),
        "parse.cpu_stat_v2_full": lambda given: machine.attempt(lambda: _cpu_stat(given["input"].encode()), None),
        "reader.ReadMemoryLimit": lambda given: machine.attempt(lambda: _memory_limit(given), -1),
        "reader.ReadColdPageUsage": machine.reading(
            lambda seen: seen.read_raw(machine.GROUP, "memory.idle_page_stats"), 0
        ),
        "cgroup.parse_container_id": lambda given: machine.attempt(lambda: _container_id(given), "", "id"),
        "validate.net_cls_classid": lambda given: {
            "valid": not machine.attempt(lambda: Version(1).encode("net_cls.classid", int(given["value"], 0)), 0)[
                "error"
            ]
        },
        "nodemetric.cold_start": lambda given: {
            "coldStart": measured.cold_start(
                window_seconds=given["windowSeconds"], span_seconds=given["samplesSpanSeconds"]
            )
        },
    }
)


@adapter("cpuinfo.total_info")
def totals(given: Any, expect: Any) -> tuple[Any, Any]:
    rows = given["processors"] or []
    seen = Topology(tuple(CPU(r["cpu"], r["core"], r["socket"], r["node"], r.get("l3", 0)) for r in rows), ())

    def by(part: str) -> dict[str, list[int]]:
        keys = sorted({getattr(cpu, part) for cpu in seen.cpus})
        return {str(key): [cpu.id for cpu in seen.cpus if getattr(cpu, part) == key] for key in keys}

    maps = {"coreToCPU": by("core"), "nodeToCPU": by("node"), "socketToCPU": by("socket"), "l3ToCPU": by("l3")}
    return {"numberCPUs": len(seen.cpuset), **maps}, expect


def _ticks(text: str | None) -> dict[str, int]:
    """Busy ticks of each CPU: the columns of the machine's line, for each line of a CPU."""
    found = procfs.cpu_ticks(machine.of_texts({"/proc/stat": text or ""}))
    return {str(cpu): ticks.busy for cpu, ticks in found.items()}


def _group(given: Any) -> tuple[Any, int]:
    """A group with memory.numa_stat, and its version: cases of bare text name it by the key of the text."""
    if "files" in given:
        return machine.group_of(given), given["cgroupVersion"]
    version, text = (1, given["content"]) if "content" in given else (2, given["input"])
    return machine.of_text(version, "memory.numa_stat", text), version


CPUS, NODES = "/sys/devices/system/cpu", "/sys/devices/system/node"


@adapter("cpuinfo.lscpu_parse")
def table(given: Any, expect: Any) -> tuple[Any, Any]:
    names = ("cpu", "core", "socket", "node", "l3")
    wanted = expect["processors"] and [{name: row.get(name) for name in names} for row in expect["processors"]]
    lines = rows(given["lscpu"])
    try:
        seen = sysfs.topology(MemoryFiles(_lscpu_files(lines)))
    except HardwareAbsent:
        return {"processors": None, "error": True}, {"processors": wanted, "error": expect["error"]}
    found = {"processors": _processors(seen, lines), "error": False}
    return found, {"processors": wanted, "error": expect["error"]}


def rows(text: str | None) -> list[list[str]]:
    """Lines that are about a CPU; it is offline when it has no core."""
    lines = (line.split() for line in (text or "").splitlines())
    return [line for line in lines if len(line) >= 6 and line[0].isdigit()]


def is_online(row: list[str]) -> bool:
    """Whether the table says where the CPU is."""
    return row[2].isdigit() and row[3].isdigit()


def _processors(seen: Topology, lines: list[list[str]]) -> list[dict[str, int | None]]:
    """In the order and with the numbers of the table: ours counts cores and sockets in the order of their CPUs."""
    named = {int(row[0]): (int(row[2]), int(row[3])) for row in lines if is_online(row)}
    sockets, cores = dict[int, int](), dict[int, int]()
    for cpu in seen.cpus:
        socket, core = named[cpu.id]
        sockets.setdefault(cpu.socket, socket)
        cores.setdefault(cpu.core, core)
    found: list[dict[str, int | None]] = [
        {"cpu": cpu.id, "core": cores[cpu.core], "socket": sockets[cpu.socket], "node": cpu.node, "l3": cpu.l3}
        for cpu in seen.cpus
    ]
    return sorted(found, key=lambda cpu: [cpu[name] or 0 for name in ("node", "socket", "core", "cpu")])


def _lscpu_files(lines: list[list[str]]) -> dict[str, bytes]:
    """What the kernel shows where lscpu prints these rows: CPU, node, socket, core, caches."""
    threads, members = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
    for cpu, node, _, core, *_ in filter(is_online, lines):
        threads[core].append(cpu)
        if node.isdigit():
            members[node].append(cpu)
    files = {f"{CPUS}/cpu{row[0]}/online": "0" for row in lines if not is_online(row)}
    files |= {f"{NODES}/node{node}/cpulist": ",".join(cpus) for node, cpus in members.items()}
    files |= {} if members else {"/proc/meminfo": "MemTotal: 1 kB\nMemAvailable: 1 kB\n"}
    for cpu, _, socket, core, caches, *_ in filter(is_online, lines):
        files[f"{CPUS}/cpu{cpu}/topology/physical_package_id"] = socket
        files[f"{CPUS}/cpu{cpu}/topology/thread_siblings_list"] = ",".join(threads[core])
        _, _, _, l3 = (*caches.split(":"), "", "", "", "")[:4]
        if l3.isdigit():
            base = f"{CPUS}/cpu{cpu}/cache/index3"
            files |= {f"{base}/level": "3", f"{base}/type": "Unified", f"{base}/id": l3}
    return {path: text.encode() for path, text in files.items()}
