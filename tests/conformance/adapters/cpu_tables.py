"""A table of lscpu as the files it is made of: ours reads those, and asks no program."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from koordlite.host import sysfs
from koordlite.model.errors import HardwareAbsent
from koordlite.model.topology import Topology
from tests.conformance.adapters import adapter, machine

CPUS, NODES = "/sys/devices/system/cpu", "/sys/devices/system/node"


class Folders(machine.Memory):
    """Files by path, whose folders can be listed."""

    def list(self, path: str) -> Sequence[str]:
        super().list(path)
        below = (file[len(path) + 1 :] for file in self.files if file.startswith(f"{path}/"))
        return sorted({f"{name}/" if deeper else name for name, deeper, _ in (file.partition("/") for file in below)})


@adapter("cpuinfo.lscpu_parse")
def table(given: Any, expect: Any) -> tuple[Any, Any]:
    names = ("cpu", "core", "socket", "node", "l3")
    wanted = expect["processors"] and [{name: row[name] for name in names} for row in expect["processors"]]
    rows = [line.split() for line in given["lscpu"].strip().splitlines()[1:]]
    try:
        seen = sysfs.topology(Folders(_files(rows)))
    except HardwareAbsent:
        return {"processors": None, "error": True}, {"processors": wanted, "error": expect["error"]}
    found = {"processors": _processors(seen), "error": False}
    return found, {"processors": wanted, "error": expect["error"]}


def _processors(seen: Topology) -> list[dict[str, int | None]]:
    return [
        {"cpu": cpu.id, "core": cpu.core, "socket": cpu.socket, "node": cpu.node, "l3": cpu.l3} for cpu in seen.cpus
    ]


def _files(rows: list[list[str]]) -> dict[str, bytes]:
    """What the kernel shows where lscpu prints these rows: CPU, node, socket, core, caches."""
    threads, members = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
    for cpu, node, _, core, *_ in rows:
        threads[core].append(cpu)
        members[node].append(cpu)
    files = {f"{NODES}/node{node}/cpulist": ",".join(cpus) for node, cpus in members.items()}
    for cpu, _, socket, core, caches, *_ in rows:
        files[f"{CPUS}/cpu{cpu}/topology/physical_package_id"] = socket
        files[f"{CPUS}/cpu{cpu}/topology/thread_siblings_list"] = ",".join(threads[core])
        _, _, _, l3 = (*caches.split(":"), "", "", "", "")[:4]
        if l3.isdigit():
            base = f"{CPUS}/cpu{cpu}/cache/index3"
            files |= {f"{base}/level": "3", f"{base}/type": "Unified", f"{base}/id": l3}
    return {path: text.encode() for path, text in files.items()}
