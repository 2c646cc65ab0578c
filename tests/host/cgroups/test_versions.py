"""Value forms of cgroup v1 and v2."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from koordlite.host.cgroups import versions
from koordlite.host.cgroups.versions import Version
from koordlite.model.cpuset import CPUSet

V1, V2 = Version(1), Version(2)


@pytest.mark.parametrize(
    ("version", "field", "value", "raw"),
    [
        pytest.param(V1, "cpuset.cpus", CPUSet({0, 1, 2, 5}), b"0-2,5", id="a CPU list has no newline"),
        pytest.param(V1, "cpuset.cpus", CPUSet(), b"\n", id="v1: an empty set is a newline"),
        pytest.param(V2, "cpuset.cpus", CPUSet(), b"\n", id="v2: an empty set is a newline"),
        pytest.param(V1, "cpu.quota", -1, b"-1", id="v1: unlimited is -1"),
        pytest.param(V2, "cpu.quota", -1, b"max", id="v2: unlimited is max"),
        pytest.param(V1, "cpu.quota", 20000, b"20000", id="v1: a quota"),
        pytest.param(V2, "cpu.quota", 20000, b"20000", id="v2: a quota alone keeps the period"),
    ],
)
def test_encode(version: Version, field: str, value: CPUSet | int, raw: bytes) -> None:
    assert version.encode(field, value) == raw


@pytest.mark.parametrize(
    ("field", "value"),
    [("cpuset.cpus", 3), ("cpu.quota", CPUSet({1})), ("cpu.quota", -2), ("memory.stat", 1), ("cpu.shares", 1)],
)
@pytest.mark.parametrize("version", [V1, V2], ids=["v1", "v2"])
def test_what_is_no_value_of_a_field_is_refused(version: Version, field: str, value: CPUSet | int) -> None:
    with pytest.raises(ValueError, match="is no value for"):
        version.encode(field, value)


@pytest.mark.parametrize(
    ("version", "raw", "quota_us", "period_us"),
    [
        pytest.param(V2, b"max 100000\n", -1, 100_000, id="v2 unlimited"),
        pytest.param(V2, b"25000 50000\n", 25_000, 50_000, id="v2 limited"),
    ],
)
def test_cpu_max_has_both(version: Version, raw: bytes, quota_us: int, period_us: int) -> None:
    assert (version.quota_us(raw), version.period_us(raw)) == (quota_us, period_us)


@pytest.mark.parametrize("raw", [b"20 000\n", b"max\n", b""])
def test_v1_has_one_number_in_a_file_and_nothing_else(raw: bytes) -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        V1.quota_us(raw)
    with pytest.raises(ValueError, match="invalid literal"):
        V1.period_us(raw)


@given(cpus=some.frozensets(some.integers(0, 4096)), version=some.sampled_from([V1, V2]))
def test_a_set_survives_writing_and_reading(cpus: frozenset[int], version: Version) -> None:
    assert version.decode("cpuset.cpus", version.encode("cpuset.cpus", CPUSet(cpus))) == CPUSet(cpus)


@given(quota_us=some.integers(-1, 10**12), version=some.sampled_from([V1, V2]))
def test_a_quota_survives_writing_and_reading(quota_us: int, version: Version) -> None:
    assert version.decode("cpu.quota", version.encode("cpu.quota", quota_us)) == quota_us


@pytest.mark.parametrize("raw", [b"", b"\n", b"100000"], ids=["empty", "newline", "one field"])
def test_a_cpu_max_without_a_period_is_an_error(raw: bytes) -> None:
    with pytest.raises(ValueError, match="fewer than"):
        V2.period_us(raw)


STAT_V1 = b"cache 1\ninactive_anon 2\nactive_anon 3\nunevictable 4\ntotal_cache 900\ntotal_inactive_anon 20\n"
STAT_V1 += b"total_active_anon 30\ntotal_inactive_file 500\ntotal_active_file 600\ntotal_unevictable 40\n"
STAT_V2 = b"inactive_anon 20\nanon 5\nfile 900\nactive_anon 30\nunevictable 40"


@pytest.mark.parametrize(
    ("version", "raw"),
    [
        pytest.param(V1, STAT_V1, id="v1 counts the groups below in total_ lines"),
        pytest.param(V2, STAT_V2, id="v2, first and last line, no newline at the end"),
    ],
)
def test_memory_is_without_page_cache(version: Version, raw: bytes) -> None:
    assert version.working_memory(raw) == 90


def test_memory_stat_without_a_line_names_it() -> None:
    with pytest.raises(ValueError, match="total_active_anon"):
        V1.working_memory(b"total_inactive_anon 20\nxtotal_active_anon 1\n")


def test_cpu_time_is_in_nanoseconds() -> None:
    assert V1.usage_ns(b"123456789\n") == 123_456_789
    assert V2.usage_ns(b"usage_usec 1234\nuser_usec 1000\n") == 1_234_000


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        pytest.param(b"", {}, id="an empty file"),
        pytest.param(b"a 1\nb x\n", {"a": "1", "b": "x"}, id="values are text"),
        pytest.param(b"a 1\n\nb\nc 1 2\n", {"a": "1"}, id="other lines are left out"),
    ],
)
def test_a_keyed_file(raw: bytes, found: dict[str, str]) -> None:
    assert versions.keyed(raw) == found


def test_a_missing_line_of_throttling_is_named() -> None:
    with pytest.raises(ValueError, match="nr_throttled"):
        versions.Version(1).throttling(b"nr_periods 1\nthrottled_time 2\n")
