"""Memory by NUMA node, as kernels print it."""

from __future__ import annotations

import pytest

from koordlite.host import sysfs

V2 = b"anon N0=8192 N2=4096\nfile N0=65536 N2=0\nfile_mapped N0=1 N2=1\n"
MEMINFO = b"""
Node 1 MemTotal:        1000 kB
Node 1 MemFree:          300 kB
Node 1 Active(file):     100 kB
Node 1 Inactive(file):    50 kB
Node 1 SReclaimable:      %d kB
"""


@pytest.mark.parametrize(
    ("raw", "version", "page", "bytes_used"),
    [
        pytest.param(b"total=30 N0=10 N1=20\nfile=1 N0=1 N1=0\n", 1, 4096, {0: 40960, 1: 81920}, id="v1 counts pages"),
        pytest.param(b"total=1 N0=1\n", 1, 65536, {0: 65536}, id="v1 counts pages of the machine"),
        pytest.param(b"total N0=2 N3=1\n", 1, 4096, {0: 8192, 3: 4096}, id="the sum may be missing, and ids have gaps"),
        pytest.param(V2, 2, 65536, {0: 73728, 2: 4096}, id="v2 counts bytes, whatever the page"),
    ],
)
def test_a_group_holds_what_its_rows_say(raw: bytes, version: int, page: int, bytes_used: dict[int, int]) -> None:
    assert sysfs.numa_memory_of_group(raw, version=version, page_bytes=page) == bytes_used


def test_a_group_of_v1_counts_the_groups_below_when_asked() -> None:
    raw = b"total=1 N0=1 N1=0\nhierarchical_total=30 N0=10 N1=20\n"
    assert sysfs.numa_memory_of_group(raw, version=1, page_bytes=4096) == {0: 4096, 1: 0}
    assert sysfs.numa_memory_of_group(raw, version=1, page_bytes=4096, below=True) == {0: 40960, 1: 81920}
    assert sysfs.numa_memory_of_group(V2, version=2, page_bytes=4096, below=True) == {0: 73728, 2: 4096}


@pytest.mark.parametrize(
    ("raw", "version"),
    [
        pytest.param(b"file=1 N0=1\n", 1, id="v1 without total"),
        pytest.param(b"anon N0=1\n", 2, id="v2 without file"),
        pytest.param(b"total=1 N0-1\n", 1, id="a word that is no amount"),
        pytest.param(b"total=1 N0=1a\n", 1, id="an amount that is no number"),
        pytest.param(b"total=0\n", 1, id="a row without nodes"),
    ],
)
def test_what_is_no_numa_stat_is_refused(raw: bytes, version: int) -> None:
    with pytest.raises(ValueError, match="no "):
        sysfs.numa_memory_of_group(raw, version=version, page_bytes=4096)


@pytest.mark.parametrize(
    ("reclaimable", "used_kib"),
    [pytest.param(25, 525, id="free and reclaimable is not used"), pytest.param(9999, 0, id="never below 0")],
)
def test_a_node_uses_what_is_neither_free_nor_reclaimable(reclaimable: int, used_kib: int) -> None:
    assert sysfs.numa_memory_of_node(MEMINFO % reclaimable) == used_kib * 1024


def test_a_meminfo_without_a_line_is_refused() -> None:
    with pytest.raises(ValueError, match="SReclaimable"):
        sysfs.numa_memory_of_node(MEMINFO.replace(b"SReclaimable", b"Slab"))
