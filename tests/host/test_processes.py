"""Processes of this machine by psutil: real ones, started here."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from koordlite.cli import check
from koordlite.host import processes
from koordlite.host.processes import HostProcess
from koordlite.model.cpuset import CPUSet

BUSY = """
import os, sys, time
os.sched_setaffinity(0, {int(sys.argv[1])})
for line in sys.stdin:
    end = time.process_time() + 0.1
    while time.process_time() < end:
        pass
    print("done", flush=True)
"""


@pytest.fixture
def busy() -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process on one CPU that uses 100 ms of it for each line it is sent."""
    cpu = min(os.sched_getaffinity(0))
    command = [sys.executable, "-c", BUSY, str(cpu)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process, cpu
        process.kill()


def use_cpu(process: subprocess.Popen[str]) -> None:
    assert process.stdin and process.stdout
    print(file=process.stdin, flush=True)
    assert process.stdout.readline() == "done\n"


def test_a_busy_process_is_told_with_its_use_its_cpus_and_its_start(busy: tuple[subprocess.Popen[str], int]) -> None:
    process, cpu = busy
    use_cpu(process)  # It has pinned itself.
    row = next(each for each in processes.watch(0.1, lambda _: use_cpu(process)) if each.pid == process.pid)
    assert row.cpus == CPUSet([cpu])
    assert 900 <= row.used_milli <= 1500, "100 ms of CPU, said to be in 0.1 s"
    assert 0 <= time.time() - row.started_at < 600
    assert row.group.startswith("/")


def test_a_process_that_ends_while_it_is_watched_is_left_out(busy: tuple[subprocess.Popen[str], int]) -> None:
    process, _ = busy

    def end(_: float) -> None:
        process.kill()
        process.wait()

    assert process.pid not in {row.pid for row in processes.watch(0.1, end)}


def row(name: str, cpus: str, group: str = "/system.slice/x", used_milli: int = 0) -> HostProcess:
    return HostProcess(100, name, 1_767_225_600.0, group, CPUSet.parse(cpus), used_milli)


def test_who_may_leave_or_enter_the_reserved_cpus_is_named() -> None:
    rows = [
        row("dockerd", "0-7", used_milli=500),
        row("sshd", "0-1"),
        row("nginx", "0-7", "/kubepods.slice/kubepods-pod1.slice/cri-1.scope", 900),
        row("redis", "2-7", "/kubepods.slice/kubepods-pod2.slice/cri-2.scope"),
    ]
    busy, leaving, entering = check.beside_pods(rows, CPUSet.parse("0-1"), "")
    assert busy.detail == "2 use 0.5 CPUs: dockerd (pid 100, since 2026-01-01T00:00:00Z) 0.5"
    assert leaving.detail.startswith("1 of 2 may leave them: dockerd (pid 100")
    assert leaving.do == "AllowedCPUs=0-1 in system.slice, or CPUAffinity=0-1 in system.conf of systemd"
    assert entering.detail.startswith("1 may use them: nginx (pid 100")


def test_without_reserved_cpus_only_use_is_told() -> None:
    (only,) = check.beside_pods([row("sshd", "0-1")], CPUSet(), "/custom/kubepods")
    assert only.detail == "1 use 0.0 CPUs: all idle"


def test_names_of_processes_cannot_forge_lines() -> None:
    (only,) = check.beside_pods([row("a\nNO cgroups", "0", used_milli=10)], CPUSet(), "")
    assert "\n" not in only.detail
