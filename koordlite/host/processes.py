"""Processes of this machine as psutil reads them: what they use, since when, and on which CPUs they may run.

For questions that a person asks, never for a tick. psutil knows no cgroups, so the group is read beside it; and a
process's CPUs come from a system call, so it answers for this machine alone, not for a recorded or emulated one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from koordlite.model.cpuset import CPUSet

if TYPE_CHECKING:
    import psutil

_KTHREADD = 2
"""Parent of every thread of the kernel, which nobody confines by cgroups."""


class HostProcess(msgspec.Struct, frozen=True):
    """One process; its name is what the process says of itself."""

    pid: int
    name: str
    started_at: float
    """Unix time, which tells it from a later process of the same id."""
    group: str
    """Its cgroup, of the hierarchy with the CPU controller; `/` at the root."""
    cpus: CPUSet
    """CPUs that its main thread may run on."""
    used_milli: int
    """CPU that its threads used while it was watched, in millicores."""


def watch(seconds: float, sleep: Callable[[float], None]) -> list[HostProcess]:
    """Processes that lived through the next `seconds`, the busiest first; threads of the kernel are left out."""
    import psutil

    before = dict(_cpu_seconds())
    sleep(seconds)
    rows = []
    for process, used_seconds in _cpu_seconds():
        if process not in before:
            continue
        try:
            rows.append(
                HostProcess(
                    pid=process.pid,
                    name=process.name(),
                    started_at=process.create_time(),
                    group=_group(Path(f"/proc/{process.pid}/cgroup").read_text()),
                    cpus=CPUSet(process.cpu_affinity()),
                    used_milli=round((used_seconds - before[process]) / seconds * 1000),
                )
            )
        except (psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
            continue
    return sorted(rows, key=lambda row: (-row.used_milli, row.pid))


def _cpu_seconds() -> Iterator[tuple[psutil.Process, float]]:
    """CPU time of each process; psutil compares processes by id and start."""
    import psutil

    for process in psutil.process_iter():
        try:
            if process.pid != _KTHREADD and process.ppid() != _KTHREADD:
                times = process.cpu_times()
                yield process, times.user + times.system
        except psutil.NoSuchProcess:
            continue


def _group(text: str) -> str:
    """The path in `/proc/PID/cgroup` of the hierarchy with the CPU controller; of v2 where there is no other."""
    rows = [line.split(":", 2) for line in text.splitlines()]
    by_controller = {name: row[2] for row in rows for name in row[1].split(",")}
    return by_controller.get("cpu") or by_controller[""]
