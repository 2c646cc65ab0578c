"""Refusals of the kernel in cgroups of either version: bandwidth out of range, threads that are not there.

Each rule was checked against Linux 6.1 and 6.12; tests/lab holds the table.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping

import msgspec

from koordlite.lab.cgroups.trees import UNLIMITED, Group, Hierarchy
from koordlite.lab.machine import kernel_text
from koordlite.lab.machine.processes import Processes
from koordlite.lab.machine.tree import File, refusal
from koordlite.model.cpuset import CPUSet

MIN_US = 1_000
MAX_PERIOD_US = 1_000_000
MAX_RUNTIME_US = 2**44 // 1_000
"""The scheduler keeps bandwidth as a fraction with 20 bits behind the point: more runtime does not fit 64 bits."""

PAGE = 4096


class Attribute(msgspec.Struct, frozen=True):
    """One file of every group, as a function of the group; `root` says whether the root group has it."""

    read: Callable[[Group], str]
    write: Callable[[Group, bytes], None] | None = None
    root: bool = True


AttributeTable = dict[str, Attribute]
"""The files of a group by name."""


def files(table: Mapping[str, Attribute], group: Group) -> dict[str, File]:
    """The files of one group. Root writes the read-only ones in vain: cgroups say EINVAL, not EACCES."""
    return {
        name: File(_reader(each, group), _writer(each, group), errno.EINVAL)
        for name, each in table.items()
        if each.root or group.parent is not None
    }


def _reader(attribute: Attribute, group: Group) -> Callable[[], str]:
    return lambda: attribute.read(group)


def _writer(attribute: Attribute, group: Group) -> Callable[[bytes], None] | None:
    write = attribute.write
    if write is None:
        return None
    # Writing nothing is a success that does nothing, whatever the file.
    return lambda data: write(group, data) if data else None


def set_bandwidth(group: Group, *, quota_us: int, period_us: int, burst_us: int) -> None:
    """Store a quota, or EINVAL as `tg_set_cfs_bandwidth` of the kernel."""
    if not MIN_US <= period_us <= MAX_PERIOD_US:
        raise refusal(errno.EINVAL)
    if quota_us != UNLIMITED and not max(MIN_US, burst_us) <= quota_us <= MAX_RUNTIME_US - burst_us:
        raise refusal(errno.EINVAL)
    group.quota_us, group.period_us, group.burst_us = quota_us, period_us, burst_us


def set_weight(group: Group, weight: int) -> None:
    """Store a weight; EINVAL for the root and for an idle group, as `sched_group_set_shares`."""
    if group.parent is None or group.idle:
        raise refusal(errno.EINVAL)
    group.weight = weight


def set_idle(group: Group, data: bytes) -> None:
    """cpu.idle, as `sched_group_set_idle`: the weight from before is lost, a group that wakes up has the default."""
    idle = kernel_text.integer(data, low=0, high=1, outside=errno.EINVAL)
    if group.parent is None:
        raise refusal(errno.EINVAL)
    if idle != group.idle:
        group.idle, group.weight = idle, group.default_weight


def empties_busy(group: Group, before: CPUSet, after: CPUSet) -> None:
    """ENOSPC: a cpuset with threads in or below it cannot be made empty, on v2 neither."""
    if before and not after and group.populated:
        raise refusal(errno.ENOSPC)


def shown_list(ids: CPUSet) -> str:
    """CPUs or memory nodes as cpuset files print them."""
    return f"{ids}\n"


def threads(group: Group) -> str:
    """One thread a line."""
    return "".join(f"{tid}\n" for tid in sorted(group.tids))


def processes_of(group: Group, processes: Processes) -> str:
    """One process a line."""
    found = {processes.of(tid).pid for tid in group.tids}
    return "".join(f"{pid}\n" for pid in sorted(found))


def moved(data: bytes, processes: Processes, *, whole: bool) -> tuple[int, ...]:
    """The threads a write of `data` to `tasks` names, or to `cgroup.procs` when `whole`."""
    number = kernel_text.integer(data, low=0, high=2**31 - 1, outside=errno.EINVAL)
    process = processes.find(number)
    if process is None:
        raise refusal(errno.ESRCH)
    return process.tids if whole else (number,)


def membership(hierarchy: Hierarchy, processes: Processes, admit: Callable[[Group], None]) -> dict[str, Attribute]:
    """The files through which threads and processes move; `admit` refuses a group that takes none.

    Keys are `threads` and `procs`: their file names differ by version.
    """

    def mover(*, whole: bool) -> Callable[[Group, bytes], None]:
        def move(group: Group, data: bytes) -> None:
            tids = moved(data, processes, whole=whole)
            admit(group)
            hierarchy.attach(group, tids)

        return move

    return {
        "threads": Attribute(threads, mover(whole=False)),
        "procs": Attribute(lambda group: processes_of(group, processes), mover(whole=True)),
    }


def memory_amount(data: bytes) -> int:
    """A memory limit: bytes with an optional K, M, G suffix, rounded down to pages; `max` and -1 mean no limit."""
    text = data.decode("latin-1").strip()
    if text in ("max", "-1"):
        return UNLIMITED
    shift = {"k": 10, "m": 20, "g": 30, "t": 40}.get(text[-1:].lower(), 0)
    number = kernel_text.integer((text[:-1] if shift else text).encode(), low=0, outside=errno.EINVAL)
    return (number << shift) // PAGE * PAGE
