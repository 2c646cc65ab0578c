"""The files of cgroups as tables, for v1 and v2, with the kernel's refusals of what is written.

v1 has a hierarchy for each controller, where cpusets and quotas are nested by force. v2 has one hierarchy; a group may
ask for anything and gets what its ancestors leave it. Each rule was checked against Linux 6.1 and 6.12; tests/lab holds
the table. For the extensions of the Anolis kernel the ranges are those that Koordinator's file map states, since no
kernel that has them could be tried.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Mapping

from koordlite.lab.cgroups import disk_files
from koordlite.lab.cgroups.trees import (
    IDLE_SHARES,
    UNLIMITED,
    Attribute,
    AttributeTable,
    Cgroups,
    Group,
    Hierarchy,
)
from koordlite.lab.machine import kernel_text
from koordlite.lab.machine.machine import Machine
from koordlite.lab.machine.pressure import NONE
from koordlite.lab.machine.processes import Processes
from koordlite.lab.machine.tree import refusal
from koordlite.model.cpuset import CPUSet

POINTS = {"cpu,cpuacct": ("cpu", "cpuacct"), "cpuset": ("cpuset",), "memory": ("memory",), "blkio": ("blkio",)}
"""v1: folder below /sys/fs/cgroup → controllers mounted there, as Debian, Ubuntu and CentOS do."""
CONTROLLERS = ("cpuset", "cpu", "io", "memory", "pids")
"""v2: every controller is switched on all the way down."""

MIN_US = 1_000
MAX_PERIOD_US = 1_000_000
MAX_RUNTIME_US = 2**44 // 1_000
"""The scheduler keeps bandwidth as a fraction with 20 bits behind the point: more runtime does not fit 64 bits."""
PAGE = 4096
NO_LIMIT = 2**63 // PAGE * PAGE - PAGE
"""Value of memory.limit_in_bytes without a limit."""
EVENTS = ("low", "high", "max", "oom", "oom_kill")

_Ranges = Mapping[str, tuple[int, int, int]]
_WARP: _Ranges = {"cpu.bvt_warp_ns": (-1, 2, 0)}
_EXTENSIONS: _Ranges = {
    "memory.wmark_ratio": (0, 100, 0),
    "memory.wmark_scale_factor": (1, 1000, 50),
    "memory.wmark_min_adj": (-25, 50, 0),
    "memory.priority": (0, 12, 0),
    "memory.use_priority_oom": (0, 1, 0),
}
"""File → least, greatest and first value."""
_PAGE_CACHE: _Ranges = {
    "memory.pagecache_limit.enable": (0, 1, 0),
    "memory.pagecache_limit.size": (0, 2**63 - 1, 0),
    "memory.pagecache_limit.sync": (0, 1, 0),
}


def build(machine: Machine, processes: Processes) -> Cgroups:
    """The hierarchies of a fresh machine."""
    return (_v1 if machine.cgroup_version == 1 else _v2)(machine, processes)


def _v1(machine: Machine, processes: Processes) -> Cgroups:
    def admit(group: Group) -> None:
        """ENOSPC: a cpuset without CPUs or memory takes no threads."""
        if "cpuset" in group.hierarchy.controllers and not (group.cpus and group.mems):
            raise refusal(errno.ENOSPC)

    tables: Mapping[str, AttributeTable] = {
        "cpu,cpuacct": {**_v1_cpu(), **_settings(_WARP if machine.extended else {})},
        "cpuset": _v1_cpuset(machine),
        "memory": {**_v1_memory(), **({**_protection(), **_settings(_EXTENSIONS)} if machine.extended else {})},
        "blkio": disk_files.v1(machine.extended),
    }
    always = Attribute(lambda _: "0\n")
    common = {
        "cgroup.clone_children": always,
        "notify_on_release": always,
        "cgroup.procs": _membership(processes, admit, whole=True),
        "tasks": _membership(processes, admit, whole=False),
    }
    hierarchies = tuple(
        Hierarchy(point=point, controllers=controllers, weight=1024, files={**tables[point], **common})
        for point, controllers in POINTS.items()
    )
    cgroups = Cgroups(1, hierarchies, lambda group: group.cpus)
    cgroups.cpuset.root.cpus, cgroups.cpuset.root.mems = machine.cpuset, machine.mems
    return cgroups


def _v2(machine: Machine, processes: Processes) -> Cgroups:
    def kill(group: Group, data: bytes) -> None:
        """`cgroup_kill_write`: ERANGE for a number other than 1."""
        kernel_text.integer(data, low=1, high=1, outside=errno.ERANGE)
        group.hierarchy.on_kill(group)

    def no_read(_: Group) -> str:
        raise refusal(errno.EINVAL)

    def admit(group: Group) -> None:
        """EBUSY: threads live in the leaves only, the root excepted."""
        if group.children and group.parent is not None:
            raise refusal(errno.EBUSY)

    controllers = f"{' '.join(CONTROLLERS)}\n"
    table = {
        "cgroup.controllers": Attribute(lambda _: controllers),
        "cgroup.events": Attribute(lambda group: f"populated {int(group.populated)}\nfrozen 0\n", root=False),
        "cgroup.procs": _membership(processes, admit, whole=True),
        "cgroup.subtree_control": Attribute(lambda group: controllers if group.children else "\n"),
        "cgroup.threads": _membership(processes, admit, whole=False),
        "cgroup.type": Attribute(lambda _: "domain\n", root=False),
        "cgroup.kill": Attribute(no_read, kill, root=False),
        **_v2_cpu(),
        **_v2_cpuset(machine),
        **_v2_memory(machine),
        **disk_files.v2(),
        **_settings({**_WARP, **_EXTENSIONS, **_PAGE_CACHE} if machine.extended else {}),
    }
    hierarchy = Hierarchy(point="", controllers=CONTROLLERS, weight=100, files=table)
    return Cgroups(2, (hierarchy,), lambda group: effective(group, "cpus", machine.cpuset))


def _settings(ranges: _Ranges) -> AttributeTable:
    """Numbers that are kept."""

    def setting(name: str, low: int, high: int, first: int) -> Attribute:
        def write(group: Group, data: bytes) -> None:
            group.settings[name] = kernel_text.integer(data, low=low, high=high, outside=errno.EINVAL)

        return Attribute(lambda group: f"{group.settings.get(name, first)}\n", write, root=False)

    return {name: setting(name, *bounds) for name, bounds in ranges.items()}


def _membership(processes: Processes, admit: Callable[[Group], None], *, whole: bool) -> Attribute:
    """The file through which threads, or `whole` processes, move; `admit` refuses a group that takes none."""

    def move(group: Group, data: bytes) -> None:
        number = kernel_text.integer(data, low=0, high=2**31 - 1, outside=errno.EINVAL)
        process = processes.find(number)
        if process is None:
            raise refusal(errno.ESRCH)
        admit(group)
        group.hierarchy.attach(group, process.tids if whole else (number,))

    def members(group: Group) -> str:
        ids = {processes.of(tid).pid if whole else tid for tid in group.tids}
        return "".join(f"{each}\n" for each in sorted(ids))

    return Attribute(members, move)


# ── CPU ──


def _v1_cpu() -> AttributeTable:
    def set_shares(group: Group, data: bytes) -> None:
        shares = kernel_text.integer(data, low=0, high=2**64 - 1, outside=errno.EINVAL)
        _set_weight(group, min(max(shares, 2), 262_144))

    def bandwidth(field: str) -> Attribute:
        def write(group: Group, data: bytes) -> None:
            if field == "quota_us":
                value = max(kernel_text.integer(data), UNLIMITED)
            else:
                value = kernel_text.integer(data, low=0, outside=errno.EINVAL)
            if group.parent is None:
                raise refusal(errno.EINVAL)
            before = getattr(group, field)
            set_bandwidth(group, **{field: value})
            # A child may not have more than its nearest limited ancestor (`tg_cfs_schedulable_down`).
            if field != "burst_us" and any(map(_exceeds, group.walk())):
                setattr(group, field, before)
                raise refusal(errno.EINVAL)

        return Attribute(lambda group: f"{getattr(group, field)}\n", write)

    return {
        "cpu.shares": Attribute(lambda group: f"{IDLE_SHARES if group.idle else group.weight}\n", set_shares),
        "cpu.cfs_quota_us": bandwidth("quota_us"),
        "cpu.cfs_period_us": bandwidth("period_us"),
        "cpu.cfs_burst_us": bandwidth("burst_us"),
        "cpu.stat": Attribute(lambda group: _cpu_stat(group, "time", 1000)),
        "cpu.idle": Attribute(lambda group: f"{group.idle}\n", _set_idle),
        "cpuacct.usage": Attribute(lambda group: f"{group.usage_us * 1000}\n"),
        "cpuacct.stat": Attribute(lambda group: f"user {group.usage_us // 10_000}\nsystem 0\n"),
    }


def _v2_cpu() -> AttributeTable:
    def shown_max(group: Group) -> str:
        return f"{'max' if group.quota_us == UNLIMITED else group.quota_us} {group.period_us}\n"

    def set_max(group: Group, data: bytes) -> None:
        """`MAX [PERIOD]` as sscanf reads it: a missing or unreadable period keeps the present one."""
        words = data.decode("latin-1").split()
        digits = re.match(r"[0-9]+", words[0]) if words else None
        if not digits and words[:1] != ["max"]:
            raise refusal(errno.EINVAL)
        period = int(words[1]) if len(words) > 1 and words[1].isdecimal() else group.period_us
        set_bandwidth(group, quota_us=int(digits[0]) if digits else UNLIMITED, period_us=period)

    def set_burst(group: Group, data: bytes) -> None:
        set_bandwidth(group, burst_us=kernel_text.integer(data, low=0, outside=errno.EINVAL))

    def stat(group: Group) -> str:
        used = f"usage_usec {group.usage_us}\nuser_usec {group.usage_us}\nsystem_usec 0\n"
        return used + _cpu_stat(group, "usec", 1)

    return {
        "cpu.max": Attribute(shown_max, set_max, root=False),
        "cpu.max.burst": Attribute(lambda group: f"{group.burst_us}\n", set_burst, root=False),
        "cpu.weight": Attribute(
            lambda group: "0\n" if group.idle else f"{group.weight}\n",
            lambda group, data: _set_weight(group, kernel_text.integer(data, low=1, high=10_000)),
            root=False,
        ),
        "cpu.idle": Attribute(lambda group: f"{group.idle}\n", _set_idle, root=False),
        "cpu.stat": Attribute(stat),
        "cpu.pressure": Attribute(lambda group: group.stalls.text()),
        "memory.pressure": Attribute(lambda group: group.memory_stalls.text()),
        "io.pressure": Attribute(lambda _: NONE.text()),
    }


def _cpu_stat(group: Group, word: str, scale: int) -> str:
    return (
        f"nr_periods {group.periods}\nnr_throttled {group.throttled}\nthrottled_{word} {group.throttled_us * scale}\n"
        f"nr_bursts {group.bursts}\nburst_{word} {group.burst_used_us * scale}\n"
    )


def set_bandwidth(group: Group, **values: int) -> None:
    """Store `quota_us`, `period_us` or `burst_us`, or EINVAL as `tg_set_cfs_bandwidth` of the kernel."""
    quota, period, burst = (values.get(name, getattr(group, name)) for name in ("quota_us", "period_us", "burst_us"))
    if not MIN_US <= period <= MAX_PERIOD_US:
        raise refusal(errno.EINVAL)
    if quota != UNLIMITED and not max(MIN_US, burst) <= quota <= MAX_RUNTIME_US - burst:
        raise refusal(errno.EINVAL)
    group.quota_us, group.period_us, group.burst_us = quota, period, burst


def _exceeds(group: Group) -> bool:
    def share(group: Group) -> int:
        """Bandwidth as the kernel compares it, in CPU/2²⁰."""
        return (group.quota_us << 20) // group.period_us

    limits = (each for each in group.lineage() if each is not group and each.quota_us != UNLIMITED)
    limit = next(limits, None)
    return limit is not None and group.quota_us != UNLIMITED and share(group) > share(limit)


def _set_weight(group: Group, weight: int) -> None:
    """EINVAL for the root and for an idle group, as `sched_group_set_shares`."""
    if group.parent is None or group.idle:
        raise refusal(errno.EINVAL)
    group.weight = weight


def _set_idle(group: Group, data: bytes) -> None:
    """cpu.idle, as `sched_group_set_idle`: the weight from before is lost, a group that wakes up has the default."""
    idle = kernel_text.integer(data, low=0, high=1, outside=errno.EINVAL)
    if group.parent is None:
        raise refusal(errno.EINVAL)
    if idle != group.idle:
        group.idle, group.weight = idle, group.default_weight


# ── cpusets ──


def _v1_cpuset(machine: Machine) -> AttributeTable:
    attributes = {field: _set_file(machine, field, nest) for field in ("cpus", "mems")}
    constants = {"cpu_exclusive": "0\n", "memory_migrate": "0\n", "sched_load_balance": "1\n"}
    return {
        **{f"cpuset.{field}": each for field, each in attributes.items()},
        **{f"cpuset.effective_{field}": Attribute(each.read) for field, each in attributes.items()},
        **{f"cpuset.{name}": Attribute(lambda _, text=text: text) for name, text in constants.items()},  # type: ignore[misc]
    }


def _v2_cpuset(machine: Machine) -> AttributeTable:
    def put(group: Group, field: str, ids: CPUSet) -> None:
        _check_busy(group, field, ids)
        setattr(group, field, ids)

    table = {"cpuset.cpus.partition": Attribute(lambda _: "member\n", root=False)}
    for field, whole in (("cpus", machine.cpuset), ("mems", machine.mems)):
        table[f"cpuset.{field}"] = _set_file(machine, field, put, root=False)
        table[f"cpuset.{field}.effective"] = Attribute(
            lambda group, field=field, whole=whole: f"{effective(group, field, whole)}\n"  # type: ignore[misc]
        )
    return table


def _set_file(
    machine: Machine, field: str, put: Callable[[Group, str, CPUSet], None], *, root: bool = True
) -> Attribute:
    def write(group: Group, data: bytes) -> None:
        ids = kernel_text.cpu_list(data.decode("latin-1"), len(machine.cpus) if field == "cpus" else 1024)
        if field == "mems" and not ids <= machine.mems:
            raise refusal(errno.EINVAL)
        put(group, field, ids)
        group.hierarchy.epoch += 1

    return Attribute(lambda group: f"{getattr(group, field)}\n", write, root)


def nest(group: Group, field: str, ids: CPUSet) -> None:
    """Set `cpus` or `mems` of v1 as validate_change does: inside the parent (EACCES), around the children (EBUSY)."""
    if group.parent is None:
        raise refusal(errno.EACCES)
    if any(not getattr(child, field) <= ids for child in group.children.values()):
        raise refusal(errno.EBUSY)
    if not ids <= getattr(group.parent, field):
        raise refusal(errno.EACCES)
    _check_busy(group, field, ids)
    setattr(group, field, ids)


def _check_busy(group: Group, field: str, ids: CPUSet) -> None:
    """ENOSPC: a cpuset with threads in or below it cannot be made empty, on v2 neither."""
    if getattr(group, field) and not ids and group.populated:
        raise refusal(errno.ENOSPC)


def effective(group: Group, field: str, everything: CPUSet) -> CPUSet:
    """CPUs that a group of v2 may really use: its own set within the parent's, or the parent's when nothing is left."""
    if group.parent is None:
        return everything
    above = effective(group.parent, field, everything)
    own: CPUSet = getattr(group, field)
    return (own & above) or above


# ── memory ──


def _v1_memory() -> AttributeTable:
    def limit(group: Group) -> str:
        return f"{NO_LIMIT if group.memory_limit == UNLIMITED else group.memory_limit}\n"

    def set_limit(group: Group, data: bytes) -> None:
        """EBUSY when more is held than can be reclaimed, as `mem_cgroup_resize_max`: what was reclaimed is gone."""
        most = memory_amount(data)
        if most != UNLIMITED:
            for each in group.walk():
                each.cache -= min(each.cache, max(0, group.anon_below + group.cache_below - most))
            if group.anon_below > most:
                raise refusal(errno.EBUSY)
        group.memory_limit = most

    def stat(group: Group) -> str:
        anon, cache = group.anon_below, group.cache_below
        own = _memory_lines({"cache": group.cache, "rss": group.anon}, group.anon, group.cache)
        below = _memory_lines({"cache": cache, "rss": anon}, anon, cache, "total_")
        return f"{own}hierarchical_memory_limit {limit(group)}{below}"

    return {
        "memory.usage_in_bytes": Attribute(lambda group: f"{group.anon_below + group.cache_below}\n"),
        "memory.limit_in_bytes": Attribute(limit, set_limit),
        "memory.stat": Attribute(stat),
        "memory.use_hierarchy": Attribute(lambda _: "1\n"),
    }


def _v2_memory(machine: Machine) -> AttributeTable:
    def stat(group: Group) -> str:
        anon, cache = group.anon_below, group.cache_below
        return _memory_lines({"anon": anon, "file": cache, "kernel": 0}, anon, cache)

    def numa_stat(group: Group) -> str:
        amounts = memory_by_node(machine, group)
        return "".join(
            f"{name} {' '.join(f'N{node}={each[at]}' for node, each in amounts.items())}\n"
            for at, name in enumerate(("anon", "file"))
        )

    return {
        "memory.current": Attribute(lambda group: f"{group.anon_below + group.cache_below}\n", root=False),
        "memory.max": _amount_file("memory_limit"),
        **({"memory.swap.max": _amount_file("swap_max")} if machine.swap is not None else {}),
        **_protection(),
        "memory.stat": Attribute(stat),
        "memory.numa_stat": Attribute(numa_stat),
    }


def _protection() -> AttributeTable:
    """memory.min, low, high and oom.group with their events, on v2 and on v1 with the extensions."""

    def events(group: Group) -> str:
        """Events in the group and below it."""
        counts = {name: sum(each.events.get(name, 0) for each in group.walk()) for name in EVENTS}
        return "".join(f"{name} {count}\n" for name, count in counts.items())

    return {
        "memory.min": _amount_file("memory_min"),
        "memory.low": _amount_file("memory_low"),
        "memory.high": _amount_file("memory_high"),
        **_settings({"memory.oom.group": (0, 1, 0)}),
        "memory.events": Attribute(events, root=False),
    }


def _amount_file(field: str) -> Attribute:
    """Bytes as v2 prints and reads them: `max` is the only word for no limit."""

    def write(group: Group, data: bytes) -> None:
        if data.strip().startswith(b"-"):
            raise refusal(errno.EINVAL)
        setattr(group, field, memory_amount(data))

    def read(group: Group) -> str:
        value = getattr(group, field)
        return "max\n" if value == UNLIMITED else f"{value}\n"

    return Attribute(read, write, root=False)


def memory_amount(data: bytes) -> int:
    """A memory limit: bytes with an optional K, M, G suffix, rounded down to pages; `max` and -1 mean no limit."""
    text = data.decode("latin-1").strip()
    if text in ("max", "-1"):
        return UNLIMITED
    shift = {"k": 10, "m": 20, "g": 30, "t": 40}.get(text[-1:].lower(), 0)
    number = kernel_text.integer((text[:-1] if shift else text).encode(), low=0, outside=errno.EINVAL)
    return (number << shift) // PAGE * PAGE


def _memory_lines(first: Mapping[str, int], anon: int, cache: int, prefix: str = "") -> str:
    active = {"inactive_anon": 0, "active_anon": anon, "inactive_file": cache, "active_file": 0, "unevictable": 0}
    return "".join(f"{prefix}{name} {value}\n" for name, value in {**first, **active}.items())


def memory_by_node(machine: Machine, group: Group) -> dict[int, list[int]]:
    """Private memory and page cache by NUMA node: spread evenly over the nodes of the CPUs each group may use, as first
    touch would, where it may take memory there."""
    node_of = {cpu.id: cpu.node for cpu in machine.cpus}
    by_node: dict[int, list[int]] = {node.id: [0, 0] for node in machine.nodes}
    for each in group.walk():
        mems = set(effective(each, "mems", machine.mems))
        nodes = sorted({node_of[cpu] for cpu in effective(each, "cpus", machine.cpuset)} & mems or mems)
        for node in nodes:
            by_node[node][0] += each.anon // len(nodes)
            by_node[node][1] += each.cache // len(nodes)
    return by_node
