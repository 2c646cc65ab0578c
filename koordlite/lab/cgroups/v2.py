"""cgroup v2: one hierarchy; a group may ask for anything and gets what its ancestors leave it."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable

from koordlite.lab.cgroups import disk_files, memory_files, rules
from koordlite.lab.cgroups.rules import Attribute, AttributeTable
from koordlite.lab.cgroups.trees import UNLIMITED, Cgroups, Group, Hierarchy
from koordlite.lab.machine import kernel_text
from koordlite.lab.machine.machine import Machine
from koordlite.lab.machine.pressure import NONE
from koordlite.lab.machine.processes import Processes
from koordlite.lab.machine.tree import File, refusal
from koordlite.model.cpuset import CPUSet

CONTROLLERS = ("cpuset", "cpu", "io", "memory", "pids")


def build(machine: Machine, processes: Processes) -> Cgroups:
    """The hierarchy of a fresh machine, every controller switched on all the way down."""

    made: list[Cgroups] = []

    def kill(group: Group, data: bytes) -> None:
        """`cgroup_kill_write`: ERANGE for a number other than 1."""
        kernel_text.integer(data, low=1, high=1, outside=errno.ERANGE)
        made[0].on_kill(group)

    def furnish(hierarchy: Hierarchy, group: Group) -> dict[str, File]:
        table = {
            **_core(hierarchy, processes),
            "cgroup.kill": Attribute(_write_only, kill, root=False),
            **_cpu(),
            **_cpuset(hierarchy, machine),
            "memory.current": Attribute(lambda group: f"{group.anon_below + group.cache_below}\n", root=False),
            **memory_files.maximum(swap=machine.swap is not None),
            **memory_files.protection(),
            "memory.stat": Attribute(_memory_stat),
            "memory.numa_stat": Attribute(_numa_stat(machine)),
            **disk_files.v2(),
            **(_extensions() if machine.extended else {}),
        }
        return rules.files(table, group)

    def allowed(group: Group) -> CPUSet:
        return effective(group, "cpus", machine.cpuset)

    made.append(Cgroups(2, (Hierarchy(point="", controllers=CONTROLLERS, weight=100, files=furnish),), allowed))
    return made[0]


def _write_only(_group: Group) -> str:
    raise refusal(errno.EINVAL)


def effective(group: Group, field: str, everything: CPUSet) -> CPUSet:
    """CPUs that a group may really use: its own set within the parent's, or the parent's when nothing is left."""
    if group.parent is None:
        return everything
    above = effective(group.parent, field, everything)
    own: CPUSet = getattr(group, field)
    return (own & above) or above


def _core(hierarchy: Hierarchy, processes: Processes) -> AttributeTable:
    moving = rules.membership(hierarchy, processes, _admit)
    shown = f"{' '.join(CONTROLLERS)}\n"
    return {
        "cgroup.controllers": Attribute(lambda _: shown),
        "cgroup.events": Attribute(lambda group: f"populated {int(group.populated)}\nfrozen 0\n", root=False),
        "cgroup.procs": moving["procs"],
        "cgroup.subtree_control": Attribute(lambda group: shown if group.children else "\n"),
        "cgroup.threads": moving["threads"],
        "cgroup.type": Attribute(lambda _: "domain\n", root=False),
    }


def _admit(group: Group) -> None:
    """EBUSY: threads live in the leaves only, the root excepted."""
    if group.children and group.parent is not None:
        raise refusal(errno.EBUSY)


def _cpu() -> AttributeTable:
    return {
        "cpu.max": Attribute(_cpu_max, _set_cpu_max, root=False),
        "cpu.max.burst": Attribute(lambda group: f"{group.burst_us}\n", _set_burst, root=False),
        "cpu.weight": Attribute(
            lambda group: "0\n" if group.idle else f"{group.weight}\n",
            lambda group, data: rules.set_weight(group, kernel_text.integer(data, low=1, high=10_000)),
            root=False,
        ),
        "cpu.idle": Attribute(lambda group: f"{group.idle}\n", rules.set_idle, root=False),
        "cpu.stat": Attribute(_cpu_stat),
        "cpu.pressure": Attribute(lambda group: group.stalls.text()),
        "memory.pressure": Attribute(lambda group: group.memory_stalls.text()),
        "io.pressure": Attribute(lambda _: NONE.text()),
    }


def _cpu_max(group: Group) -> str:
    quota = "max" if group.quota_us == UNLIMITED else group.quota_us
    return f"{quota} {group.period_us}\n"


def _set_cpu_max(group: Group, data: bytes) -> None:
    """`MAX [PERIOD]` as sscanf reads it: a missing or unreadable period keeps the present one."""
    words = data.decode("latin-1").split()
    if not words:
        raise refusal(errno.EINVAL)
    period = int(words[1]) if len(words) > 1 and words[1].isdecimal() else group.period_us
    digits = re.match(r"[0-9]+", words[0])
    if words[0] != "max" and not digits:
        raise refusal(errno.EINVAL)
    quota = int(digits[0]) if digits else UNLIMITED
    rules.set_bandwidth(group, quota_us=quota, period_us=period, burst_us=group.burst_us)


def _set_burst(group: Group, data: bytes) -> None:
    burst = kernel_text.integer(data, low=0, outside=errno.EINVAL)
    rules.set_bandwidth(group, quota_us=group.quota_us, period_us=group.period_us, burst_us=burst)


def _cpu_stat(group: Group) -> str:
    used = f"usage_usec {group.usage_us}\nuser_usec {group.usage_us}\nsystem_usec 0\n"
    return used + (
        f"nr_periods {group.periods}\nnr_throttled {group.throttled}\nthrottled_usec {group.throttled_us}\n"
        f"nr_bursts {group.bursts}\nburst_usec {group.burst_used_us}\n"
    )


def _cpuset(hierarchy: Hierarchy, machine: Machine) -> AttributeTable:
    def set_cpus(group: Group, data: bytes) -> None:
        wanted = kernel_text.cpu_list(data.decode("latin-1"), len(machine.cpus))
        rules.empties_busy(group, group.cpus, wanted)
        group.cpus = wanted
        hierarchy.epoch += 1

    def set_mems(group: Group, data: bytes) -> None:
        wanted = kernel_text.cpu_list(data.decode("latin-1"), 1024)
        if not wanted <= machine.mems:
            raise refusal(errno.EINVAL)
        rules.empties_busy(group, group.mems, wanted)
        group.mems = wanted

    return {
        "cpuset.cpus": Attribute(lambda group: rules.shown_list(group.cpus), set_cpus, root=False),
        "cpuset.cpus.effective": Attribute(_effective("cpus", machine.cpuset)),
        "cpuset.cpus.partition": Attribute(lambda _: "member\n", root=False),
        "cpuset.mems": Attribute(lambda group: rules.shown_list(group.mems), set_mems, root=False),
        "cpuset.mems.effective": Attribute(_effective("mems", machine.mems)),
    }


def _effective(field: str, everything: CPUSet) -> Callable[[Group], str]:
    return lambda group: rules.shown_list(effective(group, field, everything))


def _extensions() -> AttributeTable:
    warp = {"cpu.bvt_warp_ns": memory_files.setting("cpu.bvt_warp_ns", -1, 2, 0)}
    return warp | memory_files.extensions(2)


def _memory_stat(group: Group) -> str:
    anon, cache = group.anon_below, group.cache_below
    values = {
        "anon": anon,
        "file": cache,
        "kernel": 0,
        "inactive_anon": 0,
        "active_anon": anon,
        "inactive_file": cache,
        "active_file": 0,
        "unevictable": 0,
    }
    return "".join(f"{name} {value}\n" for name, value in values.items())


def memory_by_node(machine: Machine, group: Group) -> dict[int, list[int]]:
    """Private memory and page cache by NUMA node: spread evenly over the nodes of the CPUs each group may use, as first
    touch would, where it may take memory there."""
    node_of = {cpu.id: cpu.node for cpu in machine.cpus}
    held: dict[int, list[int]] = {node.id: [0, 0] for node in machine.nodes}
    for each in group.walk():
        mems = set(effective(each, "mems", machine.mems))
        nodes = sorted({node_of[cpu] for cpu in effective(each, "cpus", machine.cpuset)} & mems or mems)
        for node in nodes:
            held[node][0] += each.anon // len(nodes)
            held[node][1] += each.cache // len(nodes)
    return held


def _numa_stat(machine: Machine) -> Callable[[Group], str]:
    def text(group: Group) -> str:
        held = memory_by_node(machine, group)
        lines = (
            (name, " ".join(f"N{node}={amounts[at]}" for node, amounts in held.items()))
            for at, name in enumerate(("anon", "file"))
        )
        return "".join(f"{name} {amounts}\n" for name, amounts in lines)

    return text
