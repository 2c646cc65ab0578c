"""/proc of the emulated node: CPU time, memory, mounts, pressure, processes and their threads."""

from __future__ import annotations

import errno
import uuid
from collections.abc import Callable

import msgspec

from koordlite.lab.cgroups.trees import Cgroups
from koordlite.lab.load.connections import Connections
from koordlite.lab.load.memory import KERNEL_MEMORY, MemoryLoad
from koordlite.lab.load.workloads import Workloads
from koordlite.lab.machine import kernel_text
from koordlite.lab.machine.machine import LogicalCPU, Machine
from koordlite.lab.machine.pressure import NONE
from koordlite.lab.machine.processes import TICKS_PER_SECOND, Process, Processes
from koordlite.lab.machine.tree import Entry, File, Folder, Tree, constant
from koordlite.lab.resctrl.filesystem import POINT, EmulatedResctrl

CGROUP_ROOT = "/sys/fs/cgroup"


class NodeParts(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of the emulated node that /proc shows."""

    machine: Machine
    cgroups: Cgroups
    processes: Processes
    workloads: Workloads
    memory: MemoryLoad
    resctrl: EmulatedResctrl | None
    connections: Connections
    uptime: Callable[[], float]
    seed: int


def plant(tree: Tree, node: NodeParts) -> None:
    """Put /proc into the tree."""
    boot_id = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{node.machine.name}/{node.seed}"))
    mounts = File(lambda: _mounts(node))
    files = {
        "stat": File(lambda: _stat(node)),
        "meminfo": File(lambda: _meminfo(node)),
        "uptime": File(lambda: f"{node.uptime():.2f} 0.00\n"),
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


def _mounts(node: NodeParts) -> str:
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


def _stat(node: NodeParts) -> str:
    """user takes all the busy time; idle is the rest of the time since boot. As in the kernel the sum over all CPUs is
    rounded once, and not the sum of rounded numbers."""
    elapsed = int(node.uptime() * TICKS_PER_SECOND)
    total = int(sum(node.workloads.cpu_us.values()) * TICKS_PER_SECOND / 1_000_000)
    rows = []
    for cpu, used_us in node.workloads.cpu_us.items():
        busy = int(used_us * TICKS_PER_SECOND / 1_000_000)
        rows.append((f"cpu{cpu}", busy, max(0, elapsed - busy)))
    rows.insert(0, ("cpu ", total, sum(idle for *_, idle in rows)))
    lines = "".join(f"{name} {busy} 0 0 {idle} 0 0 0 0 0 0\n" for name, busy, idle in rows)
    return f"{lines}ctxt 0\nbtime 0\nprocesses 1\nprocs_running 1\nprocs_blocked 0\n"


def _meminfo(node: NodeParts) -> str:
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
    """One partition of `size` bytes, or none. Source: Linux `swap_show`."""
    rows = f"/dev/vda2                               partition\t{size // 1024}\t\t0\t\t-2\n" if size else ""
    return f"Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n{rows}"


def _cpu_block(machine: Machine, cpu: LogicalCPU) -> str:
    if machine.vendor == "ARM":
        return f"processor\t: {cpu.id}\nFeatures\t: {machine.flags}\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n"
    return (
        f"processor\t: {cpu.id}\nvendor_id\t: {machine.vendor}\nmodel name\t: {machine.model}\n"
        f"physical id\t: {cpu.package}\ncore id\t\t: {cpu.core}\nflags\t\t: {machine.flags}\n"
    )


def _process(node: NodeParts, name: str) -> Entry | None:
    """/proc/TID: every thread can be opened by its id, also one that is not its process's first."""
    process = node.processes.find(int(name)) if name.isascii() and name.isdecimal() else None
    if process is None:
        return None
    threads: dict[str, Entry] = {str(tid): Folder(_thread_files(node, process, tid)) for tid in process.tids}
    return Folder({**_thread_files(node, process, int(name)), "task": Folder(threads)})


def _thread_files(node: NodeParts, process: Process, tid: int) -> dict[str, Entry]:
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


def _cgroup_lines(node: NodeParts, tid: int) -> str:
    """`ID:CONTROLLERS:PATH`, one line a hierarchy; v2 has number 0 and names no controllers."""
    numbered = enumerate(node.cgroups.hierarchies, start=0 if node.cgroups.version == 2 else 1)
    return "".join(f"{number}:{each.point}:/{each.home(tid).path}\n" for number, each in numbered)


def _numa_maps(node: NodeParts, process: Process) -> str:
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


def _thread_stat(node: NodeParts, process: Process, tid: int) -> str:
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


def _status(node: NodeParts, process: Process, tid: int) -> str:
    allowed = node.cgroups.allowed(node.cgroups.cpuset.home(tid))
    return (
        f"Name:\t{process.comm}\nState:\tR (running)\nTgid:\t{process.pid}\nPid:\t{tid}\nPPid:\t1\n"
        f"Threads:\t{len(process.tids)}\nVmLck:\t       0 kB\nCpus_allowed_list:\t{allowed}\n"
    )
