"""Numbers that no kernel prints are none, wherever they stand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from koordlite.host import procfs, sysfs
from koordlite.host.cgroups.versions import Version
from koordlite.resctrl import monitoring

V1, V2, LONG = Version(1), Version(2), b"9" * 400
STAT = b"nr_periods %s\nnr_throttled 1\nthrottled_time 1\n"


@pytest.mark.parametrize("text", [b"%d" % 2**64, b"%d" % (-(2**63) - 1), LONG, b"9" * 5000, b"", b"nan", b"1.5"])
def test_what_is_no_number_of_a_kernel_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"64 bits|invalid literal|integer string"):
        procfs.number(text)


@pytest.mark.parametrize("number", [0, -1, 2**64 - 1, -(2**63)])
def test_what_a_kernel_prints_is_read(number: int) -> None:
    assert procfs.number(b"%d\n" % number) == number


@pytest.mark.parametrize(
    "read",
    [
        pytest.param(lambda: V1.usage_ns(LONG), id="cpuacct.usage"),
        pytest.param(lambda: V2.usage_ns(b"usage_usec " + LONG), id="cpu.stat"),
        pytest.param(lambda: V1.quota_us(LONG), id="cpu.cfs_quota_us"),
        pytest.param(lambda: V2.quota_us(LONG + b" 100000"), id="cpu.max"),
        pytest.param(lambda: V1.integer("cpu.shares", LONG), id="cpu.shares"),
        pytest.param(lambda: V1.throttling(STAT % LONG), id="throttling"),
        pytest.param(lambda: procfs.pressure(b"some avg10=0.00 avg60=0.00 avg300=0.00 total=" + LONG), id="pressure"),
        pytest.param(
            lambda: procfs.pressure(b"some avg10=%s.0 avg60=0.00 avg300=0.00 total=1" % LONG), id="mean pressure"
        ),
        pytest.param(
            lambda: sysfs.numa_memory_of_group(b"total=1 N0=" + LONG, version=1, page_bytes=4096), id="by NUMA node"
        ),
        pytest.param(lambda: V1.period_us(b"0"), id="a period of nothing on v1"),
        pytest.param(lambda: V2.period_us(b"max 0"), id="a period of nothing on v2"),
        pytest.param(lambda: V2.period_us(b"max -5"), id="a period below nothing"),
    ],
)
def test_it_is_refused_in_every_file(read: Callable[[], object]) -> None:
    with pytest.raises(ValueError):
        read()


class Files:
    """One file."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw

    def read(self, path: str) -> bytes:
        return self._raw


@pytest.mark.parametrize(
    "read",
    [
        pytest.param(lambda: procfs.node_cpu_ticks(Files(b"cpu %s 2 3 4 5 6 7 8\n" % LONG)), id="/proc/stat"),
        pytest.param(lambda: procfs.memory(Files(b"MemTotal: %s kB\nMemAvailable: 1 kB\n" % LONG)), id="meminfo"),
        pytest.param(lambda: procfs.start_time(Files(b"1 (x) S 1 1"), 1), id="a process cut off"),
    ],
)
def test_it_is_refused_in_every_file_of_proc(read: Callable[[], object]) -> None:
    with pytest.raises(ValueError):
        read()


def test_a_counter_of_resctrl_of_more_than_64_bits_is_none() -> None:
    assert monitoring._number(Files(b"%d\n" % (2**64 - 1)), "") == 2**64 - 1
    assert monitoring._number(Files(b"9" * 5000), "") is None
