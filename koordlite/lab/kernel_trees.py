"""/proc of the emulated node: CPU time, memory, mounts, pressure, processes and their threads; and /sys: CPU topology,
caches, NUMA nodes, disks, and the mount points of cgroups and resctrl."""

from __future__ import annotations

import errno
import uuid
from typing import Protocol

from koordlite.lab.cgroups import files
from koordlite.lab.cgroups.trees import Cgroups
from koordlite.lab.load.connections import Connections
from koordlite.lab.load.memory import KERNEL_MEMORY, MemoryLoad
from koordlite.lab.load.workloads import Workloads
from koordlite.lab.machine import kernel_text
from koordlite.lab.machine.clock import SandboxClock
from koordlite.lab.machine.machine import DISKS, PARTITIONS, LogicalCPU, Machine, NodeMemory
from koordlite.lab.machine.pressure import NONE
from koordlite.lab.machine.processes import TICKS_PER_SECOND, Process, Processes
from koordlite.lab.machine.tree import Entry, File, Folder, Link, Tree, constant
from koordlite.lab.resctrl.filesystem import POINT, EmulatedResctrl
from koordlite.model.cpuset import CPUSet

CGROUP_ROOT = "/sys/fs/cgroup"
_CPUS = "/sys/devices/system/cpu"
_NODES = "/sys/devices/system/node"


class Node(Protocol):
    """The emulated node, as far as /proc and /sys show it."""

    machine: Machine
    files: Tree
    clock: SandboxClock
    cgroups: Cgroups
    processes: Processes
    workloads: Workloads
    memory: MemoryLoad
    resctrl: EmulatedResctrl | None
    connections: Connections


def plant(node: Node, seed: int) -> None:
    """Put /proc and /sys into the node's files."""
    tree = node.files
    _plant_sys(tree, node)
    boot_id = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{node.machine.name}/{seed}"))
    mounts = File(lambda: _mounts(node))
    files = {
        "stat": File(lambda: _stat(node)),
        "meminfo": File(lambda: _meminfo(node)),
        "uptime": File(lambda: f"{node.clock.monotonic():.2f} 0.00\n"),
        "cpuinfo": constant("\n".join(_cpu_block(node.machine, cpu) for cpu in node.machine.cpus)),
        "cmdline": constant("BOOT_IMAGE=/vmlinuz root=/dev/vda1 ro quiet\n"),
        "filesystems": constant(
            "nodev\tproc\nnodev\tcgroup\nnodev\tcgroup2\n" + ("nodev\tresctrl\n" if node.resctrl else "")
        ),
        "mounts": mounts,
        "self/mounts": mounts,
        "pressure/cpu": File(node.workloads.stalls.text),
        "pressure/memory": File(node.memory.stalls.text),
        "pressure/io": constant(NONE.text()),
        "sys/kernel/random/boot_id": constant(f"{boot_id}\n"),
    }
    for name, file in files.items():
        tree.place(f"/proc/{name}", file)
    if node.machine.swap is not None:
        tree.place("/proc/swaps", constant(_swaps(node.machine.swap)))
    folder = tree.root.entries["proc"]
    if isinstance(folder, Folder):
        folder.lookup = lambda name: _process(node, name)
        folder.folders = lambda: [str(process.pid) for process in node.processes.all()]


def _mounts(node: Node) -> str:
    lines = ["proc /proc proc rw,nosuid,nodev,noexec,relatime 0 0", "sysfs /sys sysfs rw,nosuid,nodev,relatime 0 0"]
    if node.cgroups.version == 1:
        lines.append(f"tmpfs {CGROUP_ROOT} tmpfs ro,nosuid,nodev,noexec,mode=755 0 0")
    for hierarchy in node.cgroups.hierarchies:
        kind, options = ("cgroup2", "nsdelegate") if node.cgroups.version == 2 else ("cgroup", hierarchy.point)
        point = f"{CGROUP_ROOT}/{hierarchy.point}".rstrip("/")
        lines.append(f"{kind} {point} {kind} rw,nosuid,nodev,noexec,relatime,{options} 0 0")
    if node.resctrl and node.resctrl.mount_options:
        lines.append(f"resctrl {POINT} resctrl {node.resctrl.mount_options} 0 0")
    return "\n".join(lines) + "\n"


def _stat(node: Node) -> str:
    """user takes all the busy time; idle is the rest of the time since boot. As in the kernel the sum over all CPUs is
    rounded once, and not the sum of rounded numbers."""
    elapsed = int(node.clock.monotonic() * TICKS_PER_SECOND)
    total = int(sum(node.workloads.cpu_us.values()) * TICKS_PER_SECOND / 1_000_000)
    rows = []
    for cpu, used_us in node.workloads.cpu_us.items():
        busy = int(used_us * TICKS_PER_SECOND / 1_000_000)
        rows.append((f"cpu{cpu}", busy, max(0, elapsed - busy)))
    rows.insert(0, ("cpu ", total, sum(idle for *_, idle in rows)))
    lines = "".join(f"{name} {busy} 0 0 {idle} 0 0 0 0 0 0\n" for name, busy, idle in rows)
    return f"{lines}ctxt 0\nbtime 0\nprocesses 1\nprocs_running 1\nprocs_blocked 0\n"


def _meminfo(node: Node) -> str:
    root = node.cgroups.memory.root
    total = node.machine.memory
    anon = min(total, root.anon_below + KERNEL_MEMORY)
    cache = min(total - anon, root.cache_below)
    rows = {
        "MemTotal": total,
        "MemFree": total - anon - cache,
        "MemAvailable": total - anon,
        "Buffers": 0,
        "Cached": cache,
        "SwapTotal": node.machine.swap or 0,
        "SwapFree": node.machine.swap or 0,
    }
    return "".join(
        f"{k + ':':<16}{0:>8}\n" if v is None else f"{k + ':':<16}{v // 1024:>8} kB\n" for k, v in rows.items()
    )


def _swaps(size: int) -> str:
    """A partition of `size` bytes, or none. Source: Linux `swap_show`."""
    rows = f"/dev/vda2                               partition\t{size // 1024}\t\t0\t\t-2\n" if size else ""
    return f"Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n{rows}"


def _cpu_block(machine: Machine, cpu: LogicalCPU) -> str:
    if machine.vendor == "ARM":
        return f"processor\t: {cpu.id}\nFeatures\t: {machine.flags}\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n"
    return (
        f"processor\t: {cpu.id}\nvendor_id\t: {machine.vendor}\nmodel name\t: {machine.model}\n"
        f"physical id\t: {cpu.package}\ncore id\t\t: {cpu.core}\nflags\t\t: {machine.flags}\n"
    )


def _process(node: Node, name: str) -> Entry | None:
    """/proc/TID: every thread can be opened by its id, also one that is not its process's first."""
    process = node.processes.find(int(name)) if name.isascii() and name.isdecimal() else None
    if process is None:
        return None
    threads: dict[str, Entry] = {str(tid): Folder(_thread_files(node, process, tid)) for tid in process.tids}
    return Folder({**_thread_files(node, process, int(name)), "task": Folder(threads)})


def _thread_files(node: Node, process: Process, tid: int) -> dict[str, Entry]:
    return {
        "cgroup": File(lambda: _cgroup_lines(node, tid)),
        "cmdline": constant(f"{process.comm}\0"),
        "oom_score_adj": File(lambda: f"{process.oom_score_adj}\n", lambda data: _set_oom_score_adj(process, data)),
        "comm": constant(f"{process.comm}\n"),
        "cpu_resctrl_groups": File(lambda: node.resctrl.proc_text(tid) if node.resctrl else "res:\nmon:\n"),
        "stat": File(lambda: _thread_stat(node, process, tid)),
        "numa_maps": File(lambda: _numa_maps(node, process)),
        "schedstat": File(lambda: _schedstat(process)),
        "status": File(lambda: _status(node, process, tid)),
        "net": Folder(
            {
                "sockstat": File(lambda: node.connections.statistics(process.pod)),
                "tcp": File(lambda: node.connections.table(process.pod)),
            }
        ),
    }


def _set_oom_score_adj(process: Process, data: bytes) -> None:
    process.oom_score_adj = kernel_text.integer(data, low=-1000, high=1000, outside=errno.EINVAL)


def _cgroup_lines(node: Node, tid: int) -> str:
    """`ID:CONTROLLERS:PATH`, one line a hierarchy; v2 has number 0 and names no controllers."""
    numbered = enumerate(node.cgroups.hierarchies, start=0 if node.cgroups.version == 2 else 1)
    return "".join(f"{number}:{each.point}:/{each.home(tid).path}\n" for number, each in numbered)


def _numa_maps(node: Node, process: Process) -> str:
    """The memory of its group, shared evenly with the group's other processes and spread over the NUMA nodes of the
    CPUs that it may use, as memory.numa_stat is: one mapping of its own, and one of a file."""
    group = node.cgroups.memory.home(process.pid)
    sharing = [each for each in node.processes.all() if node.cgroups.memory.home(each.pid) is group]
    cpus = node.cgroups.allowed(node.cgroups.cpuset.home(process.pid))
    nodes = sorted({cpu.node for cpu in node.machine.cpus if cpu.id in cpus})
    lines = ""
    mappings = (("7f0000000000", "anon", group.anon), ("7f4000000000", "file=/data mapped", group.cache))
    for start, what, amount in mappings:
        pages = amount // 4096 // len(sharing) // len(nodes)
        if pages:
            where = " ".join(f"N{each}={pages}" for each in nodes)
            lines += f"{start} default {what}={pages * len(nodes)} {where} kernelpagesize_kB=4\n"
    return lines


def _thread_stat(node: Node, process: Process, tid: int) -> str:
    """The columns up to the CPU that it ran on last (39), as its threads take turns; threads share their process's time
    evenly."""
    cpus = node.cgroups.allowed(node.cgroups.cpuset.home(tid))
    between = "0 " * 14
    last = [*cpus][tid % len(cpus)] if cpus else 0
    utime = process.used_us * TICKS_PER_SECOND // 1_000_000 // len(process.tids)
    head = f"{tid} ({process.comm}) R 1 {process.pid} {process.pid} 0 -1 0 0 0 0 0"
    return f"{head} {utime} 0 0 0 20 0 {len(process.tids)} 0 {process.start_ticks} 0 0 {between}{last} 0 0\n"


def _schedstat(process: Process) -> str:
    """ns that the thread ran, and that it waited; threads share those of their process evenly."""
    ran, waited = (1000 * us // len(process.tids) for us in (process.used_us, process.waited_us))
    return f"{ran} {waited} 0\n"


def _status(node: Node, process: Process, tid: int) -> str:
    allowed = node.cgroups.allowed(node.cgroups.cpuset.home(tid))
    return (
        f"Name:\t{process.comm}\nState:\tR (running)\nTgid:\t{process.pid}\nPid:\t{tid}\nPPid:\t1\n"
        f"Threads:\t{len(process.tids)}\nVmLck:\t       0 kB\nCpus_allowed_list:\t{allowed}\n"
    )


def _plant_sys(tree: Tree, node: Node) -> None:
    """CPU topology, caches, NUMA nodes, disks, and the mount points of cgroups and resctrl."""
    machine = node.machine
    for cpu in machine.cpus:
        _plant_cpu(tree, machine, cpu)
    for each in machine.nodes:
        _plant_node(tree, node, each)
    texts = {
        **dict.fromkeys((f"{_CPUS}/online", f"{_CPUS}/possible", f"{_CPUS}/present"), machine.cpuset),
        f"{_CPUS}/offline": "",
        f"{_CPUS}/smt/active": int(machine.hyperthreads),
        **dict.fromkeys((f"{_NODES}/online", f"{_NODES}/has_memory"), machine.mems),
        f"{_NODES}/has_cpu": CPUSet(cpu.node for cpu in machine.cpus),
    }
    for name, number in DISKS.items():
        texts[f"/sys/block/{name}/dev"] = number
    for name, (disk, number) in PARTITIONS.items():
        texts |= {f"/sys/block/{disk}/{name}/dev": number, f"/sys/block/{disk}/{name}/partition": name[-1]}
    for path, text in texts.items():
        tree.place(path, constant(f"{text}\n"))
    for hierarchy in node.cgroups.hierarchies:
        point = f"{CGROUP_ROOT}/{hierarchy.point}".rstrip("/")
        tree.place(point, hierarchy.root.folder)
        for controller in hierarchy.controllers if len(hierarchy.controllers) > 1 and hierarchy.point else ():
            tree.place(f"{CGROUP_ROOT}/{controller}", Link(point))
    if node.resctrl:
        tree.place(POINT, node.resctrl.folder)


def _plant_cpu(tree: Tree, machine: Machine, cpu: LogicalCPU) -> None:
    cores = machine.cores()
    core = CPUSet(each for each, first in cores.items() if first == cores[cpu.id])
    package = CPUSet(each.id for each in machine.cpus if each.package == cpu.package)
    topology = {
        "core_id": cpu.core,
        "physical_package_id": cpu.package,
        "die_id": 0 if machine.vendor != "ARM" else -1,
        "thread_siblings_list": core,
        "core_cpus_list": core,
        "core_siblings_list": package,
        "package_cpus_list": package,
    }
    for name, value in topology.items():
        tree.place(f"{_CPUS}/cpu{cpu.id}/topology/{name}", constant(f"{value}\n"))
    tree.place(f"{_CPUS}/cpu{cpu.id}/online", constant("1\n"))
    _plant_cache(tree, f"{_CPUS}/cpu{cpu.id}/cache/index2", {"level": 2, "id": cores[cpu.id], "shared_cpu_list": core})
    if cpu.l3 is not None:
        sharers = CPUSet(each.id for each in machine.cpus if each.l3 == cpu.l3)
        size = f"{machine.l3_bytes // 1024}K"
        values = {"level": 3, "id": cpu.l3, "shared_cpu_list": sharers, "size": size}
        _plant_cache(tree, f"{_CPUS}/cpu{cpu.id}/cache/index3", values)


def _plant_cache(tree: Tree, folder: str, values: dict[str, object]) -> None:
    for name, value in {"type": "Unified", **values}.items():
        tree.place(f"{folder}/{name}", constant(f"{value}\n"))


def _plant_node(tree: Tree, node: Node, at: NodeMemory) -> None:
    cpus = CPUSet(cpu.id for cpu in node.machine.cpus if cpu.node == at.id)
    distances = " ".join(map(str, at.distances))
    tree.place(f"{_NODES}/node{at.id}/cpulist", constant(f"{cpus}\n"))
    tree.place(f"{_NODES}/node{at.id}/distance", constant(f"{distances}\n"))
    tree.place(f"{_NODES}/node{at.id}/meminfo", File(lambda: _node_meminfo(node, at)))


def _node_meminfo(node: Node, at: NodeMemory) -> str:
    """Use by node as memory.numa_stat of cgroup v2 has it; on v1 in proportion to the size of the nodes."""
    root, machine = node.cgroups.memory.root, node.machine
    if machine.cgroup_version == 2:
        anon, cache = files.memory_by_node(machine, root)[at.id]
    else:
        anon, cache = (amount * at.memory // machine.memory for amount in (root.anon_below, root.cache_below))
    rows = {"MemTotal": at.memory, "MemFree": at.memory - anon - cache, "MemUsed": anon + cache}
    rows |= {"Active(file)": 0, "Inactive(file)": cache, "SReclaimable": 0}
    return "".join(f"Node {at.id} {name + ':':<16}{value // 1024:>8} kB\n" for name, value in rows.items())
