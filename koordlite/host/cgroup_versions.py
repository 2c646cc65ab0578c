"""The difference between cgroup v1 and v2, in one place: file names, value forms, accounting."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import assert_never, get_args

from koordlite.model.cpuset import CPUSet
from koordlite.model.decision import CgroupField

UNLIMITED = -1
WRITABLE: frozenset[str] = frozenset(get_args(CgroupField))

_V1: Mapping[str, tuple[str, str]] = {
    "cpuset.cpus": ("cpuset", "cpuset.cpus"),
    "cpuset.effective": ("cpuset", "cpuset.cpus"),
    "cpu.quota": ("cpu", "cpu.cfs_quota_us"),
    "cpu.period": ("cpu", "cpu.cfs_period_us"),
    "cpu.stat": ("cpu", "cpu.stat"),
    "cpu.usage": ("cpuacct", "cpuacct.usage"),
    "memory.stat": ("memory", "memory.stat"),
    "memory.current": ("memory", "memory.usage_in_bytes"),
    "threads": ("cpu", "tasks"),
    "procs": ("cpu", "cgroup.procs"),
}
_V2: Mapping[str, tuple[str, str]] = {
    "cpuset.cpus": ("", "cpuset.cpus"),
    "cpuset.effective": ("", "cpuset.cpus.effective"),
    "cpu.quota": ("", "cpu.max"),
    "cpu.period": ("", "cpu.max"),
    "cpu.stat": ("", "cpu.stat"),
    "cpu.usage": ("", "cpu.stat"),
    "memory.stat": ("", "memory.stat"),
    "memory.current": ("", "memory.current"),
    "threads": ("", "cgroup.threads"),
    "procs": ("", "cgroup.procs"),
}
_ANONYMOUS_MEMORY = (b"inactive_anon", b"active_anon", b"unevictable")


@dataclasses.dataclass(frozen=True, slots=True)
class Version:
    """One version of the cgroup interface: where a logical field lies and how its value is written."""

    number: int

    def file(self, field: str) -> tuple[str, str]:
        """Controller (empty on v2) and file name of a logical field."""
        return (_V1 if self.number == 1 else _V2)[field]

    def encode(self, field: str, value: CPUSet | int) -> bytes:
        """`value` as the kernel wants it; ValueError when it is no value of `field`.

        A quota is written without its period, which keeps the period on both versions. An empty set is a newline: a
        write of no bytes never reaches the kernel's parser.
        """
        if field == "cpuset.cpus" and isinstance(value, CPUSet):
            return str(value).encode() or b"\n"
        if field == "cpu.quota" and isinstance(value, int) and value >= UNLIMITED:
            return b"max" if self.number == 2 and value == UNLIMITED else b"%d" % value
        raise ValueError(f"{value!r} is no value for {field}: a CPUSet for cpuset.cpus, µs or -1 for cpu.quota")

    def decode(self, field: CgroupField, raw: bytes) -> CPUSet | int:
        """The value the kernel printed; ValueError when it does not look like one."""
        match field:
            case "cpuset.cpus":
                return self.cpus(raw)
            case "cpu.quota":
                return self.quota_us(raw)
            case _:
                assert_never(field)

    def cpus(self, raw: bytes) -> CPUSet:
        """A printed CPU list."""
        return _cpus(raw)

    def quota_us(self, raw: bytes) -> int:
        """µs of CPU per period, -1 unlimited; the first field of v2's `cpu.max`."""
        text = _first_field(raw, 0)
        return UNLIMITED if text == b"max" else int(text)

    def period_us(self, raw: bytes) -> int:
        """µs of a period; the second field of v2's `cpu.max`."""
        return int(_first_field(raw, self.number - 1))

    def usage_ns(self, raw: bytes) -> int:
        """CPU time used, in nanoseconds, from `cpuacct.usage` or v2's `cpu.stat`."""
        return int(raw) if self.number == 1 else _counter(raw, b"usage_usec") * 1000

    def working_memory(self, raw: bytes) -> int:
        """inactive_anon + active_anon + unevictable of `memory.stat`: bytes in use without page cache.

        v1 counts the groups below only in the total_ lines. Source: Koordinator's pod resource collector.
        """
        prefix = b"total_" if self.number == 1 else b""
        return sum(_counter(raw, prefix + name) for name in _ANONYMOUS_MEMORY)


@functools.lru_cache(maxsize=4096)
def _cpus(raw: bytes) -> CPUSet:
    # Hundreds of groups hold the same few sets, tick after tick.
    return CPUSet.parse(raw.decode().strip())


def _first_field(raw: bytes, index: int) -> bytes:
    fields = raw.split()
    if len(fields) <= index:
        raise ValueError(f"{raw!r} has fewer than {index + 1} fields")
    return fields[index]


def _counter(raw: bytes, name: bytes) -> int:
    """The number after `name` in a file of `name number` lines.

    Searched for, since splitting all the lines of memory.stat costs five times as much.
    """
    wanted = name + b" "
    begin = 0 if raw.startswith(wanted) else raw.find(b"\n" + wanted) + 1
    if not raw.startswith(wanted, begin):
        raise ValueError(f"no line {name.decode()} in {raw[:80]!r}")
    return int(raw[begin + len(wanted) :].split(b"\n", 1)[0])
