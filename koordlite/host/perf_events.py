"""Hardware counters of a cgroup by perf_event_open(2), which Python and the C library have no binding for.

Source: Linux, `include/uapi/linux/perf_event.h` and the manual page.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import pathlib
import platform
import struct
from collections.abc import Iterable, Sequence

import msgspec

from koordlite.model.errors import HardwareAbsent

Event = tuple[int, int]
"""Type of counter, and which one of that type."""
CYCLES: Event = (0, 0)
INSTRUCTIONS: Event = (0, 1)
FEATURE = "hardware counters"

_SYSCALL = {"x86_64": 298, "aarch64": 241, "riscv64": 241, "loongarch64": 241, "ppc64le": 319, "s390x": 331}
_ATTRIBUTES = struct.Struct("=IIQQQQQIIQ")
"""perf_event_attr in its first version, of 64 bytes."""
_TIMES_AND_GROUP = 0b1011
"""Read the time enabled, the time running, and all counters of the group at once."""
_OF_CGROUP, _CLOSE_ON_EXEC = 1 << 2, 1 << 3
_PARANOID = "/proc/sys/kernel/perf_event_paranoid"
_NO_COUNTERS = "this CPU has none that Linux can use, as in most virtual machines"
_REASONS = {
    errno.ENOENT: _NO_COUNTERS,
    errno.EOPNOTSUPP: _NO_COUNTERS,
    errno.ENODEV: _NO_COUNTERS,
    errno.ENOSYS: "this kernel was built without perf events",
    errno.EINVAL: "this kernel cannot count by cgroup (CONFIG_CGROUP_PERF)",
    errno.EBADF: "the folder is in no hierarchy of the perf_event controller",
    errno.EMFILE: "the process may open no more files (limit of open files)",
    errno.ENFILE: "the machine may open no more files (fs.file-max)",
    errno.EBUSY: "another program has them to itself",
}


class Reading(msgspec.Struct, frozen=True):
    """The counters of one CPU."""

    enabled_ns: int
    """Time for which the group ran there."""
    running_ns: int
    """Time for which it was counted meanwhile: less where more is asked for than the CPU has counters."""
    counts: tuple[int, ...]


class CgroupCounters:
    """Counts the same events of one cgroup on several CPUs, from the moment it is made until it is closed."""

    def __init__(self, folder: str, cpus: Iterable[int], events: Sequence[Event] = (CYCLES, INSTRUCTIONS)) -> None:
        """FileNotFoundError when the group is gone; HardwareAbsent says why the kernel does not count."""
        self._events, self._leaders = len(events), list[int]()
        with contextlib.ExitStack() as opened:
            group = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            opened.callback(os.close, group)
            for cpu in cpus:
                leader = -1
                for event in events:
                    fd = _open(event, group, cpu, leader)
                    opened.callback(os.close, fd)
                    if leader == -1:
                        leader = fd
                        self._leaders.append(fd)
            self._opened = opened.pop_all()

    def read(self) -> list[Reading]:
        """Counts so far, CPU by CPU."""
        form = struct.Struct(f"={3 + self._events}Q")
        words = (form.unpack(os.read(fd, form.size)) for fd in self._leaders)
        return [Reading(enabled, running, tuple(counts)) for _, enabled, running, *counts in words]

    def close(self) -> None:
        """Stop counting."""
        self._opened.close()


_LIBRARY = ctypes.CDLL(None, use_errno=True)


def _open(event: Event, group: int, cpu: int, leader: int) -> int:
    kind, config = event
    attributes = _ATTRIBUTES.pack(kind, _ATTRIBUTES.size, config, 0, 0, _TIMES_AND_GROUP, 0, 0, 0, 0)
    number = _SYSCALL.get(platform.machine())
    if number is None:
        raise HardwareAbsent(FEATURE, f"the number of perf_event_open on {platform.machine()} is not known")
    fd: int = _LIBRARY.syscall(
        ctypes.c_long(number), attributes, group, cpu, leader, ctypes.c_ulong(_OF_CGROUP | _CLOSE_ON_EXEC)
    )
    if fd < 0:
        raise HardwareAbsent(FEATURE, _why(ctypes.get_errno()))
    return fd


def _why(number: int) -> str:
    word = errno.errorcode.get(number, str(number))
    if number in (errno.EACCES, errno.EPERM):
        try:
            paranoid = pathlib.Path(_PARANOID).read_text(encoding="utf-8").strip()
        except OSError as error:
            paranoid = f"not readable ({error.strerror})"
        return f"perf_event_open: {word}: it takes the capability PERFMON; {_PARANOID} is {paranoid}"
    return f"perf_event_open: {word}: {_REASONS.get(number, os.strerror(number))}"
