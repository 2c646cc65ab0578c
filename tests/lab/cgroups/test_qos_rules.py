"""Files that quality of service lives in take and refuse what the kernel does: burst, idle, weights, memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from koordlite.lab import Sandbox
from koordlite.lab.machine.tree import Tree

Attempt = Callable[[Tree, str, str], str]

V2 = "/sys/fs/cgroup"
V1 = f"{V2}/cpu"
MEMORY_V1 = f"{V2}/memory"


@pytest.fixture
def files(v2: Sandbox) -> Tree:
    """cgroup v2 with the group a."""
    v2.files.mkdir(f"{V2}/a")
    return v2.files


@pytest.fixture
def old(v1: Sandbox) -> Tree:
    """cgroup v1 with the group a of the cpu and memory controllers."""
    v1.files.mkdir(f"{V1}/a")
    v1.files.mkdir(f"{MEMORY_V1}/a")
    return v1.files


@pytest.fixture
def extended() -> Tree:
    """cgroup v1 of an Anolis kernel."""
    files = Sandbox("anolis").files
    files.mkdir(f"{V1}/a")
    files.mkdir(f"{MEMORY_V1}/a")
    return files


def test_an_idle_group_has_no_weight_of_its_own(files: Tree, attempt: Attempt) -> None:
    files.write(f"{V2}/a/cpu.weight", b"300")
    files.write(f"{V2}/a/cpu.idle", b"1")
    assert files.read(f"{V2}/a/cpu.weight") == b"0\n"
    assert attempt(files, f"{V2}/a/cpu.weight", "300") == "EINVAL"
    assert attempt(files, f"{V2}/a/cpu.weight", "0") == "ERANGE", "the range is checked first"
    files.write(f"{V2}/a/cpu.idle", b"0")
    assert files.read(f"{V2}/a/cpu.weight") == b"100\n", "the weight from before is lost"


def test_idle_is_the_same_on_v1(old: Tree, attempt: Attempt) -> None:
    old.write(f"{V1}/a/cpu.shares", b"300")
    old.write(f"{V1}/a/cpu.idle", b"1")
    assert old.read(f"{V1}/a/cpu.shares") == b"3\n"
    assert attempt(old, f"{V1}/a/cpu.shares", "300") == "EINVAL"
    old.write(f"{V1}/a/cpu.idle", b"0")
    assert old.read(f"{V1}/a/cpu.shares") == b"1024\n"
    assert attempt(old, f"{V1}/cpu.idle", "1") == "EINVAL", "the root is never idle"


def test_burst_stays_within_the_quota_on_v1(old: Tree, attempt: Attempt) -> None:
    assert attempt(old, f"{V1}/a/cpu.cfs_burst_us", "30000") == "ok", "without a quota any burst will do"
    assert attempt(old, f"{V1}/a/cpu.cfs_quota_us", "20000") == "EINVAL"
    assert attempt(old, f"{V1}/a/cpu.cfs_quota_us", "40000") == "ok"
    assert attempt(old, f"{V1}/a/cpu.cfs_burst_us", "40001") == "EINVAL"
    assert attempt(old, f"{V1}/cpu.cfs_burst_us", "1") == "EINVAL", "the root has none"


@pytest.mark.parametrize(
    ("file", "text", "answer", "after"),
    [
        pytest.param("memory.low", "5000", "ok", "4096\n", id="low is in pages"),
        pytest.param("memory.low", "max", "ok", "max\n", id="low may be all"),
        pytest.param("memory.high", "1G", "ok", "1073741824\n", id="high takes a suffix"),
        pytest.param("memory.high", "-1", "EINVAL", "max\n", id="-1 is no word of v2"),
        pytest.param("memory.oom.group", "1", "ok", "1\n", id="die together"),
        pytest.param("memory.oom.group", "2", "EINVAL", "0\n", id="together is yes or no"),
        pytest.param("memory.priority", "1", "ENOENT", "", id="priorities need the Anolis kernel"),
        pytest.param("cpu.bvt_warp_ns", "1", "ENOENT", "", id="group identity needs the Anolis kernel"),
    ],
)
def test_memory_of_v2(files: Tree, attempt: Attempt, *, file: str, text: str, answer: str, after: str) -> None:
    assert attempt(files, f"{V2}/a/{file}", text) == answer
    if answer != "ENOENT":
        assert files.read(f"{V2}/a/{file}") == after.encode()


@pytest.mark.parametrize("file", ["memory.min", "memory.low", "memory.high", "memory.oom.group", "memory.wmark_ratio"])
def test_v1_protects_no_memory(old: Tree, attempt: Attempt, file: str) -> None:
    assert attempt(old, f"{MEMORY_V1}/a/{file}", "0") == "ENOENT"


@pytest.mark.parametrize(
    ("file", "first", "fits", "refused"),
    [
        pytest.param("memory.min", "0", "4096", "-1", id="min"),
        pytest.param("memory.wmark_ratio", "0", "100", "101", id="wmark_ratio is percent"),
        pytest.param("memory.wmark_scale_factor", "50", "1000", "0", id="wmark_scale_factor is 1 to 1000"),
        pytest.param("memory.wmark_min_adj", "0", "-25", "51", id="wmark_min_adj is -25 to 50"),
        pytest.param("memory.priority", "0", "12", "13", id="priority is 0 to 12"),
        pytest.param("memory.use_priority_oom", "0", "1", "2", id="use_priority_oom is yes or no"),
        pytest.param("memory.oom.group", "0", "1", "x", id="oom.group is yes or no"),
    ],
)
def test_memory_of_the_anolis_kernel(
    extended: Tree, attempt: Attempt, *, file: str, first: str, fits: str, refused: str
) -> None:
    path = f"{MEMORY_V1}/a/{file}"
    assert extended.read(path) == f"{first}\n".encode()
    assert attempt(extended, path, refused) == "EINVAL"
    assert attempt(extended, path, fits) == "ok"
    assert extended.read(path) == f"{fits}\n".encode()


def test_group_identity_of_the_anolis_kernel(extended: Tree, attempt: Attempt) -> None:
    path = f"{V1}/a/cpu.bvt_warp_ns"
    assert [attempt(extended, path, text) for text in ("-1", "2", "3")] == ["ok", "ok", "EINVAL"]
    assert extended.read(path) == b"2\n"
