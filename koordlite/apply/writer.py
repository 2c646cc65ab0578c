"""One change carried out: the kernel's or the cluster's words are kept when it is refused."""

from __future__ import annotations

import errno

from koordlite.apply import block, resctrl, system
from koordlite.changes.block_device import BlockChange
from koordlite.changes.cgroup import CgroupChange
from koordlite.changes.oom_score import OOMScoreChange
from koordlite.changes.system_file import SystemFileChange
from koordlite.host import sysfs
from koordlite.host.bundle import Host
from koordlite.host.cgroups.fields import NUMBERS
from koordlite.host.cgroups.filesystem import vanished
from koordlite.model.change import Change, ResctrlChange
from koordlite.model.cpuset import CPUSet
from koordlite.model.picture.groups import Cgroup
from koordlite.model.status.outcome import AppliedStep

GONE = "gone meanwhile"


def write(host: Host, change: Change) -> AppliedStep:
    """Carry out one kernel change. A group that vanished is no error: its limit went with it."""
    started = host.clock.monotonic()
    try:
        value = _write(host, change)
    except (OSError, ValueError) as error:
        if isinstance(change, CgroupChange | BlockChange) and _went(host, change, error):
            return AppliedStep(change.place, GONE)
        return AppliedStep(change.place, change.describe(), False, words(error), host.clock.monotonic() - started)
    return AppliedStep(change.place, value, seconds=host.clock.monotonic() - started)


def stands(host: Host, change: CgroupChange, present: Cgroup) -> bool:
    """Whether a number is there already, as far as the kernel keeps it: v2 rounds shares to weights."""
    if change.gives_back or change.field not in NUMBERS:
        return False
    try:
        wanted = host.cgroups.settled(change.field, change.value)
    except ValueError:
        return False  # No value of this field: the write says so.
    return present.values.get(change.field) == wanted


def _went(host: Host, change: CgroupChange | BlockChange, error: OSError | ValueError) -> bool:
    """Whether the group is gone; one that only lacks the file is there, and the refusal stands."""
    return isinstance(error, OSError) and vanished(error) and not host.cgroups.exists(change.group)


def words(error: OSError | ValueError) -> str:
    """`EBUSY: Device or resource busy (/sys/fs/…)`: errno, the kernel's text and the file; or our own refusal."""
    if not isinstance(error, OSError):
        return str(error)
    name = errno.errorcode.get(error.errno or 0, str(error.errno))
    where = f" ({error.filename})" if error.filename else ""
    return f"{name}: {error.strerror}{where}"


def _write(host: Host, change: Change) -> str:
    match change:
        case CgroupChange(group, "cpuset.cpus", CPUSet() as cpus):
            return _write_set(host, group, cpus)
        case CgroupChange(group, field, value):
            host.cgroups.write(group, field, value)
        case _ if isinstance(change, ResctrlChange):
            return resctrl.write(host, change)
        case BlockChange():
            block.write(host, change)
        case SystemFileChange() | OOMScoreChange():
            return change.describe() if system.write(host, change) else GONE
        case _:
            raise TypeError(f"{change.place} is not the kernel's")
    return change.describe()


def _write_set(host: Host, group: str, cpus: CPUSet) -> str:
    """An empty set means the parent's CPUs on v2, but no kernel takes it while the group has tasks: all possible CPUs
    mean the same."""
    try:
        host.cgroups.write(group, "cpuset.cpus", cpus)
    except OSError as error:
        if cpus or error.errno != errno.ENOSPC:
            raise
        cpus = sysfs.possible(host.files)
        host.cgroups.write(group, "cpuset.cpus", cpus)
    return str(cpus)
