"""The difference between cgroup v1 and v2, in one place: file names, value forms, accounting."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import get_args

import msgspec

from koordlite.host import procfs
from koordlite.host.cgroups.fields import NUMBERS
from koordlite.model import file_names
from koordlite.model.cgroup_fields import CgroupField
from koordlite.model.cpuset import CPUSet

UNLIMITED = -1
WRITABLE: frozenset[str] = frozenset(get_args(CgroupField))

_PRESSURES = ("cpu.pressure", "memory.pressure", "io.pressure")
"""Pressure files, which on v1 only Anolis has, beside `cpuacct.usage`."""
_V2_ONLY = {field for field, number in NUMBERS.items() if not number.in_v1}
_FILES: Mapping[str, tuple[tuple[str, str] | None, str]] = {
    **{
        field: (None if field in _V2_ONLY else (field.partition(".")[0], names[0]), names[-1])
        for field, names in file_names.CGROUP.items()
    },
    "cpuset.effective": (("cpuset", "cpuset.cpus"), "cpuset.cpus.effective"),
    "cpuset.mems.effective": (("cpuset", "cpuset.effective_mems"), "cpuset.mems.effective"),
    "cpu.period": (("cpu", "cpu.cfs_period_us"), "cpu.max"),
    "cpu.stat": (("cpu", "cpu.stat"), "cpu.stat"),
    "cpu.usage": (("cpuacct", "cpuacct.usage"), "cpu.stat"),
    "memory.stat": (("memory", "memory.stat"), "memory.stat"),
    "memory.current": (("memory", "memory.usage_in_bytes"), "memory.current"),
    "memory.numa_stat": (("memory", "memory.numa_stat"), "memory.numa_stat"),
    **{name: (("cpuacct", name), name) for name in _PRESSURES},
    "threads": (("cpu", "tasks"), "cgroup.threads"),
    "procs": (("cpu", "cgroup.procs"), "cgroup.procs"),
}
"""Controller and file on v1, None where v1 has none; the file on v2."""
_V1 = {field: v1 for field, (v1, _) in _FILES.items() if v1}
_V2 = {field: ("", v2) for field, (_, v2) in _FILES.items()}
_ANONYMOUS_MEMORY = (b"inactive_anon", b"active_anon", b"unevictable")
_FILE_CACHE = (b"inactive_file", b"active_file")
_TOTAL_ANONYMOUS = tuple(b"total_" + name for name in _ANONYMOUS_MEMORY)


class Throttled(msgspec.Struct, frozen=True):
    """Number of periods with a quota, of those in which the group was stopped, and the time of all stops."""

    periods: int
    throttled: int
    time_ns: int


class Version(msgspec.Struct, frozen=True):
    """One version of the cgroup interface: where a logical field lies and how its value is written."""

    number: int

    @property
    def files(self) -> Mapping[str, tuple[str, str]]:
        """Controller (empty on v2) and file name of every logical field."""
        return _V1 if self.number == 1 else _V2

    def encode(self, field: str, value: CPUSet | int) -> bytes:
        """`value` as the kernel wants it; ValueError when it is no value of `field`.
        A quota is written without its period, which keeps the period on both versions. An empty set is a newline: a
        write of no bytes never reaches the kernel's parser."""
        if field == "cpuset.cpus" and isinstance(value, CPUSet):
            return str(value).encode() or b"\n"
        if field == "cpu.quota" and isinstance(value, int) and value >= UNLIMITED:
            return b"max" if self.number == 2 and value == UNLIMITED else b"%d" % value
        number = NUMBERS.get(field)
        if number and self.has(field) and isinstance(value, int) and number.allows(value):
            return ((number.print_v2 if self.number == 2 else None) or number.print)(value)
        raise ValueError(f"{value!r} is no value for {field} on cgroup v{self.number}: {_range_of(field)}")

    def decode(self, field: CgroupField, raw: bytes) -> CPUSet | int:
        """The value the kernel printed; ValueError when it has another form."""
        if field == "cpuset.cpus":
            return cpus(raw)
        return self.quota_us(raw) if field == "cpu.quota" else self.integer(field, raw)

    def integer(self, field: str, raw: bytes) -> int:
        """A number of the table in `cgroup_fields`; ValueError when the file holds something else."""
        number = NUMBERS[field]
        return procfs.checked_number(((number.parse_v2 if self.number == 2 else None) or number.parse)(raw), raw)

    def settled(self, field: CgroupField, value: CPUSet | int) -> CPUSet | int:
        """Value that will be read after `value` was written: on v2, shares pass through a coarser weight."""
        return self.decode(field, self.encode(field, value)) if field == "cpu.shares" else value

    def has(self, field: str) -> bool:
        """Tell whether this version has a file for the field at all."""
        return field in self.files

    def quota_us(self, raw: bytes) -> int:
        """µs of CPU per period, -1 unlimited; the first field of v2's `cpu.max`."""
        if self.number == 1:
            return procfs.number(raw)
        text = _field(raw, 0)
        return UNLIMITED if text == b"max" else procfs.number(text)

    def period_us(self, raw: bytes) -> int:
        """µs of a period, above 0; the second field of v2's `cpu.max`."""
        period_us = procfs.number(raw if self.number == 1 else _field(raw, 1))
        if period_us <= 0:
            raise ValueError(f"a period of {period_us} µs in {raw[:80]!r}")
        return period_us

    def usage_ns(self, raw: bytes) -> int:
        """CPU time used, in nanoseconds, from `cpuacct.usage` or v2's `cpu.stat`."""
        return procfs.number(raw) if self.number == 1 else _counter(raw, b"usage_usec") * 1000

    def throttling(self, raw: bytes) -> Throttled:
        """nr_periods, nr_throttled and the throttled time of `cpu.stat`: v1 prints ns, v2 µs."""
        stat = keyed(raw)
        name, unit_ns = ("throttled_time", 1) if self.number == 1 else ("throttled_usec", 1000)
        try:
            periods, throttled, time = (procfs.number(stat[n].encode()) for n in ("nr_periods", "nr_throttled", name))
            return Throttled(periods, throttled, time * unit_ns)
        except KeyError as missing:
            raise ValueError(f"no line {missing.args[0]} in {raw[:80]!r}") from None

    def working_memory(self, raw: bytes) -> int:
        """inactive_anon + active_anon + unevictable of `memory.stat`: bytes in use without page cache.
        v1 counts the groups below only in the total_ lines. Source: Koordinator's pod resource collector."""
        names = _TOTAL_ANONYMOUS if self.number == 1 else _ANONYMOUS_MEMORY
        return sum([_counter(raw, name) for name in names])

    def file_cache(self, raw: bytes) -> int:
        """inactive_file + active_file of `memory.stat`: bytes of page cache, with the groups below."""
        prefix = b"total_" if self.number == 1 else b""
        return sum([_counter(raw, prefix + name) for name in _FILE_CACHE])


def keyed(raw: bytes) -> dict[str, str]:
    """A file of `name value` lines; what is no such line is left out. Source: Koordinator `ParseKVMap`."""
    rows = (line.split() for line in raw.decode().splitlines())
    return {row[0]: row[1] for row in rows if len(row) == 2}


def _range_of(field: str) -> str:
    if field not in WRITABLE:
        return f"{field} is only read"
    number = NUMBERS.get(field)
    if number is None:
        return "a CPUSet for cpuset.cpus, µs or -1 for cpu.quota"
    return f"it takes {number.minimum} to {number.maximum}"


@functools.lru_cache(maxsize=4096)
def cpus(raw: bytes) -> CPUSet:
    """A printed CPU list. Kept: hundreds of groups hold the same few sets, tick after tick."""
    return CPUSet.parse(raw.decode().strip())


def _field(raw: bytes, index: int) -> bytes:
    fields = raw.split()
    if len(fields) <= index:
        raise ValueError(f"{raw!r} has fewer than {index + 1} fields")
    return fields[index]


def _counter(raw: bytes, name: bytes) -> int:
    """The number after `name` in a file of `name number` lines.
    Searched for, since splitting all the lines of memory.stat costs five times as much."""
    begin = 0 if raw.startswith(name + b" ") else raw.find(b"\n" + name + b" ") + 1
    if not begin and not raw.startswith(name + b" "):
        raise ValueError(f"no line {name.decode()} in {raw[:80]!r}")
    begin += len(name) + 1
    end = raw.find(b"\n", begin)
    return procfs.number(raw[begin:] if end < 0 else raw[begin:end])
