"""Facts from /proc about this machine: CPU time, memory, mounts, threads, pressure; and numbers of the kernel's."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from koordlite.model.picture.usage import Pressure, Stall
from koordlite.ports import Files

_LEAST, _END = -(1 << 63), 1 << 64
"""No number of the kernel's has more than 64 bits. Longer ones would pass every formula of whole numbers, and end the
first that divides."""
USER_HZ = 100
"""Ticks per second of /proc/stat. The kernel prints USER_HZ, 100 on every architecture Kubernetes runs on, whatever
its own timer does."""

_KIB = 1024
_BUSY_COLUMNS = (0, 1, 2, 5, 6)
_CPU = re.compile(rb"cpu\d{1,9}", re.ASCII)
_PROCESS = re.compile(rb"(\d+) \((.*)\) ([A-Za-z]) (\d+) (\d+)(?:\s|\Z)", re.ASCII | re.DOTALL)
_OCTAL = re.compile(rb"\\([0-7]{3})")
_PSI_LINE = re.compile(
    rb"(some|full) avg10=(\d{1,3}\.\d+) avg60=(\d{1,3}\.\d+) avg300=(\d{1,3}\.\d+) total=(\d+)",
    re.ASCII,
)
"""Source: Linux "PSI - Pressure Stall Information"."""


class MemInfo(msgspec.Struct, frozen=True):
    """The machine's memory in bytes; `available` is what could be used without swapping."""

    total: int
    available: int


class Mount(msgspec.Struct, frozen=True):
    """One mounted file system."""

    type: str
    point: str
    options: frozenset[str]


class Processor(msgspec.Struct, frozen=True):
    """Name of the CPU model; empty where /proc/cpuinfo has no such line (ARM)."""

    model: str
    vendor: str
    flags: frozenset[str]


class ProcessStat(msgspec.Struct, frozen=True):
    """A process as the kernel lists it."""

    pid: int
    name: str
    state: str
    """One letter: R running, S sleeping, Z a zombie …"""
    parent: int
    group: int

    @property
    def has_ended(self) -> bool:
        """Tell whether only its entry is left: it holds no memory and takes no settings."""
        return self.state in ("Z", "X", "x")


def node_cpu_ticks(files: Files) -> int:
    """Ticks since boot that all CPUs spent busy: user + nice + system + irq + softirq.
    Idle, iowait, steal and guest (already in user) do not count. Source: Koordinator's node resource collector."""
    fields = files.read("/proc/stat").split(b"\n", 1)[0].split()
    if len(fields) < 8 or fields[0] != b"cpu":
        raise ValueError("/proc/stat does not start with a `cpu` line of at least 7 numbers")
    return _busy(fields)


class CPUTicks(msgspec.Struct, frozen=True):
    """Clock ticks of one CPU since boot; busy as `node_cpu_ticks` counts."""

    busy: int
    idle: int
    """Idle, and waiting for disks."""


def cpu_ticks(files: Files) -> dict[int, CPUTicks]:
    """Ticks of each CPU; ValueError when no CPU has a line of its own."""
    rows = (line.split() for line in files.read("/proc/stat").split(b"\n"))
    single = [row for row in rows if row and _CPU.fullmatch(row[0])]
    if not single or any(len(row) < 8 for row in single):
        raise ValueError("/proc/stat has no lines of single CPUs with at least 7 numbers")
    return {int(row[0][3:]): CPUTicks(_busy(row), sum(map(number, row[4:6]))) for row in single}


def _busy(fields: Sequence[bytes]) -> int:
    return sum(number(fields[1 + column]) for column in _BUSY_COLUMNS)


def memory(files: Files) -> MemInfo:
    """Total and available memory from /proc/meminfo."""
    raw = files.read("/proc/meminfo")
    return MemInfo(kib(raw, b"MemTotal"), kib(raw, b"MemAvailable"))


def swap_bytes(files: Files) -> int:
    """Size of all swap devices and files in use, from /proc/swaps; 0 where the kernel has none (no CONFIG_SWAP)."""
    try:
        rows = files.read("/proc/swaps").splitlines()[1:]
    except (FileNotFoundError, NotADirectoryError):
        return 0
    # A name may hold blanks only as octal. Source: Linux `swap_show`.
    return sum(number(fields[2]) for fields in map(bytes.split, rows) if len(fields) == 5) * _KIB


def mounts(files: Files) -> tuple[Mount, ...]:
    """Mounts, as this process sees them; empty where /proc has no mounts file, as in a recording."""
    for path in ("/proc/self/mounts", "/proc/mounts"):
        try:
            raw = files.read(path)
        except (FileNotFoundError, NotADirectoryError):
            continue
        rows = (line.split(b" ") for line in raw.splitlines())
        return tuple(
            Mount(
                row[2].decode(errors="replace"),
                # Blanks, tabs, newlines and backslashes in a mount point are printed as octal.
                _OCTAL.sub(lambda match: bytes([int(match[1], 8) & 0xFF]), row[1]).decode(errors="surrogateescape"),
                frozenset(row[3].decode(errors="replace").split(",")),
            )
            for row in rows
            if len(row) >= 4
        )
    return ()


def processor(files: Files) -> Processor:
    """Model, vendor and flags of the first CPU in /proc/cpuinfo."""
    first = files.read("/proc/cpuinfo").decode(errors="replace").split("\n\n", 1)[0]
    pairs = (line.partition(":") for line in first.splitlines())
    fields = {name.strip(): value.strip() for name, _, value in pairs}
    flags = fields.get("flags") or fields.get("Features") or ""
    vendor = fields.get("vendor_id") or fields.get("CPU implementer") or ""
    return Processor(fields.get("model name", ""), vendor, frozenset(flags.split()))


def boot_id(files: Files) -> str:
    """The name of this boot: kernel files hold nothing from another one."""
    return files.read("/proc/sys/kernel/random/boot_id").decode().strip()


def process_stat(raw: bytes) -> ProcessStat:
    """The first columns of `/proc/PID/stat`; ValueError for what is none, and for a process that is being reaped.
    The name may hold blanks and brackets: it ends at the last bracket. A process that is being reaped has -1 for its
    group. Source: proc_pid_stat(5), Koordinator `ParseProcPIDStat`."""
    match = _PROCESS.match(raw.strip())
    if not match:
        raise ValueError(f"{raw[:80]!r} does not begin like /proc/PID/stat: PID (NAME) STATE PARENT GROUP")
    pid, name, state, parent, group = match.groups()
    return ProcessStat(int(pid), name.decode(errors="replace"), state.decode(), int(parent), int(group))


def process(files: Files, pid: int) -> ProcessStat | None:
    """A process as it is; None when it is gone, or about to go."""
    try:
        return process_stat(files.read(f"/proc/{pid}/stat"))
    except (FileNotFoundError, ProcessLookupError, ValueError):
        return None


def start_time(files: Files, tid: int) -> int | None:
    """Ticks after boot at which the thread began, which tells it from a later one of the same id; None when gone."""
    return _column(files, tid, 22)


def last_cpu(files: Files, tid: int) -> int | None:
    """CPU that the thread ran on last; None when gone."""
    return _column(files, tid, 39)


def _column(files: Files, tid: int, number: int) -> int | None:
    """A column of stat, as proc_pid_stat(5) numbers them."""
    try:
        raw = files.read(f"/proc/{tid}/stat")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name in column 2 may hold blanks and brackets: count from the last bracket.
    fields = raw.rpartition(b")")[2].split()
    if len(fields) <= number - 3:
        raise ValueError(f"{raw[:80]!r} has no column {number}, as /proc/PID/stat has")
    return int(fields[number - 3])


def run_delay(files: Files, tid: int) -> tuple[int, int] | None:
    """Nanoseconds that a thread ran, and that it was ready and waited for a CPU; None when it is gone, or the kernel
    does not count (no CONFIG_SCHED_INFO). Source: Linux `proc_pid_schedstat`."""
    try:
        raw = files.read(f"/proc/{tid}/schedstat")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = raw.split()
    if len(fields) < 2:
        raise ValueError(f"{raw[:80]!r} has no two numbers, as /proc/TID/schedstat has")
    return number(fields[0]), number(fields[1])


def kib(raw: bytes, name: bytes) -> int:
    """Bytes in a line of /proc/meminfo, or of a NUMA node's meminfo; ValueError when it is missing."""
    match = re.search(rb"(?:^| )" + re.escape(name) + rb":\s+(\d+) kB$", raw, re.MULTILINE)
    if not match:
        raise ValueError(f"meminfo has no line {name.decode()} in kB: {raw[:80]!r}")
    return number(match[1]) * _KIB


def pressure(raw: bytes) -> Pressure:
    """Contents of a pressure file; ValueError when a line is none of its two, or `some` is missing."""
    stalls: dict[bytes, Stall] = {}
    for line in raw.strip().splitlines():
        match = _PSI_LINE.fullmatch(line.strip())
        if not match:
            raise ValueError(f"{line[:80]!r} is no line of a pressure file: some|full avg10= avg60= avg300= total=")
        stalls[match[1]] = Stall(float(match[2]), float(match[3]), float(match[4]), number(match[5]))
    if b"some" not in stalls:
        raise ValueError(f"no line some in {raw[:80]!r}")
    return Pressure(stalls[b"some"], stalls.get(b"full"))


def number(raw: bytes) -> int:
    """The number in `raw`; ValueError when there is none, or one that no kernel prints."""
    return checked_number(int(raw), raw)


def checked_number(value: int, raw: bytes) -> int:
    """`value`, read from `raw`; ValueError when it has more than 64 bits."""
    if not _LEAST <= value < _END:
        raise ValueError(f"a number of more than 64 bits: {raw[:80]!r}")
    return value
