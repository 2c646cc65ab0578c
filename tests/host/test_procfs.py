"""/proc: CPU ticks, memory, mounts, threads."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from koordlite.host import procfs
from koordlite.host.files import RealFiles

if TYPE_CHECKING:
    from planted import Rooted

STAT = "cpu  100 20 30 4000 500 6 7 80 9 1\ncpu0 1 1 1 1 1 1 1 1 1 1\nintr 1\n"


def test_idle_iowait_steal_and_guest_are_not_busy(machine: Rooted) -> None:
    machine.plant({"/proc/stat": STAT})
    assert procfs.node_cpu_ticks(machine) == 100 + 20 + 30 + 6 + 7


@pytest.mark.parametrize("text", ["", "cpu 1 2 3\n", "cpu0 1 2 3 4 5 6 7\n"])
def test_a_stat_file_without_the_cpu_line_is_an_error(machine: Rooted, text: str) -> None:
    machine.plant({"/proc/stat": text})
    with pytest.raises(ValueError, match="/proc/stat"):
        procfs.node_cpu_ticks(machine)


def test_memory_is_in_bytes(machine: Rooted) -> None:
    machine.plant({"/proc/meminfo": "MemTotal:       1000 kB\nMemFree:  1 kB\nMemAvailable:    400 kB\n"})
    assert procfs.memory(machine) == procfs.MemInfo(1_024_000, 409_600)


def test_memory_without_available_names_the_line(machine: Rooted) -> None:
    machine.plant({"/proc/meminfo": "MemTotal:       1000 kB\n"})
    with pytest.raises(ValueError, match="MemAvailable"):
        procfs.memory(machine)


HEADER = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"


@pytest.mark.parametrize(
    ("text", "size"),
    [
        pytest.param(HEADER, 0, id="none is on"),
        pytest.param(
            f"{HEADER}/dev/zram0 partition\t1000\t\t1\t\t100\n/a\\040b file\t\t24\t\t0\t\t-2\n", 1024 << 10, id="two"
        ),
        pytest.param("", 0, id="nothing at all"),
        pytest.param(None, 0, id="a kernel without swap"),
    ],
)
def test_swap_is_that_of_all_devices(machine: Rooted, text: str | None, size: int) -> None:
    machine.plant({} if text is None else {"/proc/swaps": text})
    assert procfs.swap_bytes(machine) == size


def test_mount_points_with_blanks_are_unescaped(machine: Rooted) -> None:
    machine.plant({"/proc/self/mounts": "cgroup2 /mnt/a\\040b\\134c cgroup2 rw,nsdelegate 0 0\nshort line\n"})
    assert procfs.mounts(machine) == (procfs.Mount("cgroup2", "/mnt/a b\\c", frozenset({"rw", "nsdelegate"})),)


def test_a_container_may_only_have_proc_mounts(machine: Rooted) -> None:
    machine.plant({"/proc/mounts": "tmpfs /tmp tmpfs rw 0 0\n"})
    assert [mount.point for mount in procfs.mounts(machine)] == ["/tmp"]


def test_no_mounts_file_means_nothing_is_known(machine: Rooted) -> None:
    assert procfs.mounts(machine) == ()


INTEL = "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Xeon 8\nflags\t\t: fpu cat_l3 mba\n\nprocessor\t: 1\n"
ARM = "processor\t: 0\nBogoMIPS\t: 50\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\n\n"


@pytest.mark.parametrize(
    ("text", "model", "vendor", "flag"),
    [
        pytest.param(INTEL, "Xeon 8", "GenuineIntel", "cat_l3", id="x86 names model and vendor"),
        pytest.param(ARM, "", "0x41", "asimd", id="ARM has an implementer and no model"),
    ],
)
def test_processor(machine: Rooted, text: str, model: str, vendor: str, flag: str) -> None:
    machine.plant({"/proc/cpuinfo": text})
    found = procfs.processor(machine)
    assert (found.model, found.vendor, flag in found.flags) == (model, vendor, True)


def test_a_thread_name_with_brackets_does_not_shift_the_columns(machine: Rooted) -> None:
    columns = " ".join(str(number) for number in range(4, 53))
    machine.plant({"/proc/77/stat": f"77 (a) R (b) S {columns}\n"})
    assert procfs.start_time(machine, 77) == 22


def test_a_thread_that_is_gone_has_no_start(machine: Rooted) -> None:
    assert procfs.start_time(machine, 77) is None


def test_this_machine_agrees_with_the_c_library() -> None:
    with RealFiles() as files:
        memory = procfs.memory(files)
        assert memory.total == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        assert 0 < memory.available <= memory.total
        assert procfs.node_cpu_ticks(files) > 0
        assert os.sysconf("SC_CLK_TCK") == procfs.USER_HZ
        assert procfs.start_time(files, os.getpid()) is not None
        assert len(procfs.boot_id(files)) == 36
        assert any(mount.point == "/proc" for mount in procfs.mounts(files))


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        pytest.param(b"7 (sh) S 1 7 7 0 -1 4194560", procfs.ProcessStat(7, "sh", "S", 1, 7), id="a process"),
        pytest.param(b"7 (a) R (b) Z 0 0 0", procfs.ProcessStat(7, "a) R (b", "Z", 0, 0), id="brackets in its name"),
        pytest.param(b"7 (a\nb) R 1 2", procfs.ProcessStat(7, "a\nb", "R", 1, 2), id="a line end in its name"),
        pytest.param(b"7 () I 2 0 0\n", procfs.ProcessStat(7, "", "I", 2, 0), id="no name"),
    ],
)
def test_a_process_is_read_from_its_first_columns(raw: bytes, found: procfs.ProcessStat) -> None:
    assert procfs.process_stat(raw) == found


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"7 sh S 1 7", id="a name without brackets"),
        pytest.param(b"7 (sh) SS 1 7", id="a state of two letters"),
        pytest.param(b"7 (sh) S -1 7", id="no parent"),
        pytest.param(b"7 (sh) Z 1 -1", id="being reaped"),
        pytest.param(b"x (sh) S 1 7", id="no pid"),
        pytest.param(b"7 (sh) S 1", id="cut off"),
        pytest.param(b"7 (sh) S 1 7x", id="a group that is no number"),
    ],
)
def test_what_is_no_process_is_refused(raw: bytes, machine: Rooted) -> None:
    with pytest.raises(ValueError, match="PID"):
        procfs.process_stat(raw)
    machine.plant({"/proc/77/stat": raw.decode()})
    assert procfs.process(machine, 77) is None


def test_what_has_ended_says_so(machine: Rooted) -> None:
    machine.plant({"/proc/1/stat": "1 (a) Z 0 1 1", "/proc/2/stat": "2 (b) D 0 1 1"})
    ended = {pid: process.has_ended for pid in (1, 2) if (process := procfs.process(machine, pid))}
    assert ended == {1: True, 2: False}
    assert procfs.process(machine, 3) is None
