"""Numbers in cgroup files: where they lie, which are allowed, how no limit is written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from koordlite.host.cgroups.fields import NUMBERS, UNLIMITED
from koordlite.host.cgroups.versions import WRITABLE, Version
from koordlite.model import cgroup_fields

V1, V2 = Version(1), Version(2)


def test_every_number_of_the_vocabulary_has_a_file() -> None:
    assert set(NUMBERS) | {"cpuset.cpus", "cpu.quota"} == WRITABLE


@pytest.mark.parametrize(
    ("version", "field", "value", "raw"),
    [
        pytest.param(V1, "cpu.shares", 1024, b"1024", id="v1 takes shares"),
        pytest.param(V2, "cpu.shares", 1024, b"39", id="v2 takes a weight"),
        pytest.param(V2, "memory.high", UNLIMITED, b"max", id="v2 says max"),
        pytest.param(V1, "memory.high", UNLIMITED, b"9223372036854775807", id="v1 takes the greatest number for max"),
        pytest.param(V1, "memory.wmark_min_adj", -25, b"-25", id="an adjustment may be negative"),
        pytest.param(V1, "cpu.bvt_warp_ns", -1, b"-1", id="-1 is no limit but a value here"),
    ],
)
def test_a_value_as_the_kernel_takes_it(version: Version, field: str, value: int, raw: bytes) -> None:
    assert version.encode(field, value) == raw


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("cpu.shares", 1),
        ("cpu.shares", 262_145),
        ("cpu.burst", -1),
        ("cpu.idle", 2),
        ("cpu.bvt_warp_ns", 3),
        ("memory.min", -2),
        ("memory.wmark_ratio", 101),
        ("memory.wmark_scale_factor", 0),
        ("memory.priority", 13),
    ],
)
def test_what_is_out_of_range_is_refused_with_the_range(field: str, value: int) -> None:
    with pytest.raises(ValueError, match=rf"{field} on cgroup v2: it takes"):
        V2.encode(field, value)


def test_v1_has_no_limit_on_page_cache() -> None:
    assert not V1.has("memory.pagecache_limit.size")
    with pytest.raises(ValueError, match="is no value for"):
        V1.encode("memory.pagecache_limit.size", 1)


LARGEST = (1 << 63) - 1


@pytest.mark.parametrize("page", [4096, 16384, 65536])
def test_v1_prints_no_limit_in_whole_pages(page: int) -> None:
    assert V1.integer("memory.limit", b"%d\n" % (LARGEST // page * page)) == UNLIMITED
    assert V1.integer("memory.limit", b"%d\n" % (LARGEST // 65536 * 65536 - 1)) != UNLIMITED


@pytest.mark.parametrize("raw", [b"max\n", b"9223372036854771712\n", b"9223372036854775807\n", b"-1\n"])
def test_no_limit_is_read_in_every_form(raw: bytes) -> None:
    assert V1.integer("memory.high", raw) == V2.integer("memory.high", raw) == UNLIMITED


def test_an_idle_group_has_the_least_shares() -> None:
    assert V2.integer("cpu.shares", b"0\n") == 2


@given(shares=some.integers(2, 262_144))
def test_shares_settle_after_one_pass_through_a_weight(shares: int) -> None:
    settled = V2.settled("cpu.shares", shares)
    assert isinstance(settled, int)
    assert 0 <= shares - settled <= 53
    assert V1.settled("cpu.shares", shares) == shares


@given(weight=some.integers(1, 10_000))
def test_a_weight_gives_allowed_shares(weight: int) -> None:
    assert NUMBERS["cpu.shares"].allows(cgroup_fields.shares_of_weight(weight))
