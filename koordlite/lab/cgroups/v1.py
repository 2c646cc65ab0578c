"""cgroup v1: one hierarchy per controller, cpusets nested and quotas nested by force."""

from __future__ import annotations

import errno
from collections.abc import Callable

from koordlite.lab.cgroups import disk_files, memory_files, rules
from koordlite.lab.cgroups.rules import Attribute, AttributeTable
from koordlite.lab.cgroups.trees import IDLE_SHARES, UNLIMITED, Cgroups, Group, Hierarchy
from koordlite.lab.machine import kernel_text
from koordlite.lab.machine.machine import Machine
from koordlite.lab.machine.processes import Processes
from koordlite.lab.machine.tree import File, refusal
from koordlite.model.cpuset import CPUSet

POINTS = {"cpu,cpuacct": ("cpu", "cpuacct"), "cpuset": ("cpuset",), "memory": ("memory",), "blkio": ("blkio",)}
"""Folder below /sys/fs/cgroup → controllers mounted there, as Debian, Ubuntu and CentOS do."""

NO_LIMIT = 2**63 // rules.PAGE * rules.PAGE - rules.PAGE
"""What memory.limit_in_bytes shows when there is none."""


def build(machine: Machine, processes: Processes) -> Cgroups:
    """The hierarchies of a fresh machine; the root cpuset has every CPU."""
    tables = {
        "cpu,cpuacct": _cpu,
        "cpuset": _cpuset,
        "memory": _memory,
        "blkio": lambda _, machine: disk_files.v1(machine.extended),
    }
    hierarchies = tuple(
        Hierarchy(
            point=point, controllers=controllers, weight=1024, files=_furnisher(machine, processes, tables[point])
        )
        for point, controllers in POINTS.items()
    )
    made = Cgroups(1, hierarchies, lambda group: group.cpus)
    made.cpuset.root.cpus, made.cpuset.root.mems = machine.cpuset, machine.mems
    return made


def _furnisher(
    machine: Machine, processes: Processes, table: Callable[[Hierarchy, Machine], AttributeTable]
) -> Callable[[Hierarchy, Group], dict[str, File]]:
    def furnish(hierarchy: Hierarchy, group: Group) -> dict[str, File]:
        moving = rules.membership(hierarchy, processes, _admit(hierarchy))
        common = {
            "cgroup.clone_children": Attribute(lambda _: "0\n"),
            "cgroup.procs": moving["procs"],
            "notify_on_release": Attribute(lambda _: "0\n"),
            "tasks": moving["threads"],
        }
        return rules.files({**table(hierarchy, machine), **common}, group)

    return furnish


def _admit(hierarchy: Hierarchy) -> Callable[[Group], None]:
    def admit(group: Group) -> None:
        """ENOSPC: a cpuset without CPUs or memory takes no threads."""
        if "cpuset" in hierarchy.controllers and not (group.cpus and group.mems):
            raise refusal(errno.ENOSPC)

    return admit


def _cpu(_: Hierarchy, machine: Machine) -> AttributeTable:
    warp = {"cpu.bvt_warp_ns": memory_files.setting("cpu.bvt_warp_ns", -1, 2, 0)} if machine.extended else {}
    return warp | {
        "cpu.shares": Attribute(lambda group: f"{IDLE_SHARES if group.idle else group.weight}\n", _set_shares),
        "cpu.cfs_quota_us": Attribute(lambda group: f"{group.quota_us}\n", _set_quota),
        "cpu.cfs_period_us": Attribute(lambda group: f"{group.period_us}\n", _set_period),
        "cpu.cfs_burst_us": Attribute(lambda group: f"{group.burst_us}\n", _set_burst),
        "cpu.stat": Attribute(_cpu_stat),
        "cpu.idle": Attribute(lambda group: f"{group.idle}\n", rules.set_idle),
        "cpuacct.usage": Attribute(lambda group: f"{group.usage_us * 1000}\n"),
        "cpuacct.stat": Attribute(lambda group: f"user {group.usage_us // 10_000}\nsystem 0\n"),
    }


def _cpuset(hierarchy: Hierarchy, machine: Machine) -> AttributeTable:
    def set_cpus(group: Group, data: bytes) -> None:
        wanted = kernel_text.cpu_list(data.decode("latin-1"), len(machine.cpus))
        nested(group, "cpus", wanted)
        hierarchy.epoch += 1

    def set_mems(group: Group, data: bytes) -> None:
        wanted = kernel_text.cpu_list(data.decode("latin-1"), 1024)
        if not wanted <= machine.mems:
            raise refusal(errno.EINVAL)
        nested(group, "mems", wanted)

    return {
        "cpuset.cpus": Attribute(lambda group: rules.shown_list(group.cpus), set_cpus),
        "cpuset.mems": Attribute(lambda group: rules.shown_list(group.mems), set_mems),
        "cpuset.effective_cpus": Attribute(lambda group: rules.shown_list(group.cpus)),
        "cpuset.effective_mems": Attribute(lambda group: rules.shown_list(group.mems)),
        "cpuset.cpu_exclusive": Attribute(lambda _: "0\n"),
        "cpuset.memory_migrate": Attribute(lambda _: "0\n"),
        "cpuset.sched_load_balance": Attribute(lambda _: "1\n"),
    }


def nested(group: Group, field: str, wanted: CPUSet) -> None:
    """Set `cpus` or `mems` as validate_change does: inside the parent (EACCES), around the children (EBUSY)."""
    if group.parent is None:
        raise refusal(errno.EACCES)
    if any(not getattr(child, field) <= wanted for child in group.children.values()):
        raise refusal(errno.EBUSY)
    if not wanted <= getattr(group.parent, field):
        raise refusal(errno.EACCES)
    rules.empties_busy(group, getattr(group, field), wanted)
    setattr(group, field, wanted)


def _set_shares(group: Group, data: bytes) -> None:
    shares = kernel_text.integer(data, low=0, high=2**64 - 1, outside=errno.EINVAL)
    rules.set_weight(group, min(max(shares, 2), 262_144))


def _set_quota(group: Group, data: bytes) -> None:
    quota = kernel_text.integer(data)
    _set_bandwidth(group, quota_us=UNLIMITED if quota < 0 else quota, period_us=group.period_us)


def _set_period(group: Group, data: bytes) -> None:
    period = kernel_text.integer(data, low=0, outside=errno.EINVAL)
    _set_bandwidth(group, quota_us=group.quota_us, period_us=period)


def _set_burst(group: Group, data: bytes) -> None:
    burst = kernel_text.integer(data, low=0, outside=errno.EINVAL)
    if group.parent is None:
        raise refusal(errno.EINVAL)
    rules.set_bandwidth(group, quota_us=group.quota_us, period_us=group.period_us, burst_us=burst)


def _set_bandwidth(group: Group, *, quota_us: int, period_us: int) -> None:
    """EINVAL too when a child would have more than its nearest limited ancestor (`tg_cfs_schedulable_down`)."""
    if group.parent is None:
        raise refusal(errno.EINVAL)
    before = group.quota_us, group.period_us
    rules.set_bandwidth(group, quota_us=quota_us, period_us=period_us, burst_us=group.burst_us)
    if any(_exceeds(each) for each in group.walk()):
        group.quota_us, group.period_us = before
        raise refusal(errno.EINVAL)


def _exceeds(group: Group) -> bool:
    if group.quota_us == UNLIMITED:
        return False
    limits = (each for each in group.lineage() if each is not group and each.quota_us != UNLIMITED)
    limit = next(limits, None)
    return limit is not None and _share(group) > _share(limit)


def _share(group: Group) -> int:
    """Bandwidth as the kernel compares it, in CPU/2²⁰."""
    return (group.quota_us << 20) // group.period_us


def _cpu_stat(group: Group) -> str:
    return (
        f"nr_periods {group.periods}\nnr_throttled {group.throttled}\nthrottled_time {group.throttled_us * 1000}\n"
        f"nr_bursts {group.bursts}\nburst_time {group.burst_used_us * 1000}\n"
    )


def _memory(_: Hierarchy, machine: Machine) -> AttributeTable:
    more = {**memory_files.protection(), **memory_files.extensions(1)} if machine.extended else {}
    return more | {
        "memory.usage_in_bytes": Attribute(lambda group: f"{group.anon_below + group.cache_below}\n"),
        "memory.limit_in_bytes": Attribute(_limit, _set_limit),
        "memory.stat": Attribute(_memory_stat),
        "memory.use_hierarchy": Attribute(lambda _: "1\n"),
    }


def _limit(group: Group) -> str:
    return f"{NO_LIMIT if group.memory_limit == UNLIMITED else group.memory_limit}\n"


def _set_limit(group: Group, data: bytes) -> None:
    """EBUSY when more is held than can be reclaimed, as `mem_cgroup_resize_max`: what was reclaimed is gone."""
    limit = rules.memory_amount(data)
    if limit != UNLIMITED:
        for each in group.walk():
            each.cache -= min(each.cache, max(0, group.anon_below + group.cache_below - limit))
        if group.anon_below > limit:
            raise refusal(errno.EBUSY)
    group.memory_limit = limit


def _memory_stat(group: Group) -> str:
    own = _memory_lines("", group.anon, group.cache)
    return (
        own
        + f"hierarchical_memory_limit {_limit(group)}"
        + _memory_lines("total_", group.anon_below, group.cache_below)
    )


def _memory_lines(prefix: str, anon: int, cache: int) -> str:
    values = {
        "cache": cache,
        "rss": anon,
        "inactive_anon": 0,
        "active_anon": anon,
        "inactive_file": cache,
        "active_file": 0,
        "unevictable": 0,
    }
    return "".join(f"{prefix}{name} {value}\n" for name, value in values.items())
