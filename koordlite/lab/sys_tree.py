"""/sys of the emulated node: CPU topology, caches, NUMA nodes, disks, and the mount points of cgroups and resctrl."""

from __future__ import annotations

from koordlite.lab.cgroups import files
from koordlite.lab.cgroups.trees import Cgroups
from koordlite.lab.machine.machine import DISKS, PARTITIONS, LogicalCPU, Machine, NodeMemory
from koordlite.lab.machine.tree import File, Link, Tree, constant
from koordlite.lab.proc_tree import CGROUP_ROOT
from koordlite.lab.resctrl.filesystem import POINT, EmulatedResctrl
from koordlite.model.cpuset import CPUSet

_CPUS = "/sys/devices/system/cpu"
_NODES = "/sys/devices/system/node"


def plant(tree: Tree, machine: Machine, cgroups: Cgroups, resctrl: EmulatedResctrl | None) -> None:
    """Put /sys into the tree."""
    for cpu in machine.cpus:
        _plant_cpu(tree, machine, cpu)
    for node in machine.nodes:
        _plant_node(tree, machine, cgroups, node)
    threads = len(machine.cpus) > len({(cpu.package, cpu.core) for cpu in machine.cpus})
    texts = {
        f"{_CPUS}/online": machine.cpuset,
        f"{_CPUS}/possible": machine.cpuset,
        f"{_CPUS}/present": machine.cpuset,
        f"{_CPUS}/offline": "",
        f"{_CPUS}/smt/active": int(threads),
        f"{_NODES}/online": machine.mems,
        f"{_NODES}/has_memory": machine.mems,
        f"{_NODES}/has_cpu": CPUSet(cpu.node for cpu in machine.cpus),
    }
    for path, text in texts.items():
        tree.place(path, constant(f"{text}\n"))
    for name, number in DISKS.items():
        tree.place(f"/sys/block/{name}/dev", constant(f"{number}\n"))
    for name, (disk, number) in PARTITIONS.items():
        tree.place(f"/sys/block/{disk}/{name}/dev", constant(f"{number}\n"))
        tree.place(f"/sys/block/{disk}/{name}/partition", constant(f"{name[-1]}\n"))
    _plant_mounts(tree, cgroups, resctrl)


def _plant_mounts(tree: Tree, cgroups: Cgroups, resctrl: EmulatedResctrl | None) -> None:
    for hierarchy in cgroups.hierarchies:
        point = f"{CGROUP_ROOT}/{hierarchy.point}".rstrip("/")
        tree.place(point, hierarchy.root.folder)
        if len(hierarchy.controllers) > 1 and hierarchy.point:
            for controller in hierarchy.controllers:
                tree.place(f"{CGROUP_ROOT}/{controller}", Link(point))
    if resctrl:
        tree.place(POINT, resctrl.folder)


def _plant_cpu(tree: Tree, machine: Machine, cpu: LogicalCPU) -> None:
    core = CPUSet(each.id for each in machine.cpus if (each.package, each.core) == (cpu.package, cpu.core))
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
    _plant_cache(tree, f"{_CPUS}/cpu{cpu.id}/cache/index2", {"level": 2, "id": min(core), "shared_cpu_list": core})
    if cpu.l3 is not None:
        sharers = CPUSet(each.id for each in machine.cpus if each.l3 == cpu.l3)
        size = f"{machine.l3_bytes // 1024}K"
        values = {"level": 3, "id": cpu.l3, "shared_cpu_list": sharers, "size": size}
        _plant_cache(tree, f"{_CPUS}/cpu{cpu.id}/cache/index3", values)


def _plant_cache(tree: Tree, folder: str, values: dict[str, object]) -> None:
    for name, value in {"type": "Unified", **values}.items():
        tree.place(f"{folder}/{name}", constant(f"{value}\n"))


def _plant_node(tree: Tree, machine: Machine, cgroups: Cgroups, node: NodeMemory) -> None:
    cpus = CPUSet(cpu.id for cpu in machine.cpus if cpu.node == node.id)
    distances = " ".join(map(str, node.distances))
    tree.place(f"{_NODES}/node{node.id}/cpulist", constant(f"{cpus}\n"))
    tree.place(f"{_NODES}/node{node.id}/distance", constant(f"{distances}\n"))
    tree.place(f"{_NODES}/node{node.id}/meminfo", File(lambda: _node_meminfo(machine, cgroups, node)))


def _node_meminfo(machine: Machine, cgroups: Cgroups, node: NodeMemory) -> str:
    """Use by node as memory.numa_stat of cgroup v2 has it; on v1 in proportion to the size of the nodes."""
    root = cgroups.memory.root
    if machine.cgroup_version == 2:
        anon, cache = files.memory_by_node(machine, root)[node.id]
    else:
        anon, cache = (amount * node.memory // machine.memory for amount in (root.anon_below, root.cache_below))
    rows = {"MemTotal": node.memory, "MemFree": node.memory - anon - cache, "MemUsed": anon + cache}
    rows |= {"Active(file)": 0, "Inactive(file)": cache, "SReclaimable": 0}
    return "".join(f"Node {node.id} {name + ':':<16}{value // 1024:>8} kB\n" for name, value in rows.items())
