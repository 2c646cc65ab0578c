"""A table of lscpu as the files it is made of: ours reads those, and asks no program."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from memory_files import MemoryFiles

from koordlite.host import sysfs
from koordlite.model.errors import HardwareAbsent
from koordlite.model.topology import Topology
from tests.conformance.adapters import adapter

CPUS, NODES = "/sys/devices/system/cpu", "/sys/devices/system/node"


@adapter("cpuinfo.lscpu_parse")
def table(given: Any, expect: Any) -> tuple[Any, Any]:
    names = ("cpu", "core", "socket", "node", "l3")
    wanted = expect["processors"] and [{name: row.get(name) for name in names} for row in expect["processors"]]
    lines = rows(given["lscpu"])
    try:
        seen = sysfs.topology(MemoryFiles(_files(lines)))
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


def _files(lines: list[list[str]]) -> dict[str, bytes]:
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
