"""cgroup v1 refuses what the kernel refuses. Each row was seen on Linux 6.1."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from koordlite.lab import Sandbox
from koordlite.lab.machine.tree import Tree

Attempt = Callable[[Tree, str, str], str]

CPUSET = "/sys/fs/cgroup/cpuset"
CPU = "/sys/fs/cgroup/cpu"


def a_thread(sandbox: Sandbox) -> int:
    """The processes outside Kubernetes: something that lives from the start."""
    return next(iter(sandbox.workloads)).process.pid


@pytest.fixture
def files(v1: Sandbox) -> Tree:
    """A machine of 4 CPUs with the groups a and a/b; a has the CPUs 0-2, a/b has 0-1."""
    for controller in ("cpuset", "cpu"):
        v1.files.mkdir(f"/sys/fs/cgroup/{controller}/a")
        v1.files.mkdir(f"/sys/fs/cgroup/{controller}/a/b")
    for group, cpus in (("a", "0-2"), ("a/b", "0-1")):
        v1.files.write(f"{CPUSET}/{group}/cpuset.cpus", cpus.encode())
        v1.files.write(f"{CPUSET}/{group}/cpuset.mems", b"0\n")
    return v1.files


@pytest.mark.parametrize(
    ("group", "text", "answer", "after"),
    [
        pytest.param("a/b", "0-2\n", "ok", "0-2\n", id="a child may fill its parent"),
        pytest.param("a/b", "2-3\n", "EACCES", "0-1\n", id="a child may not leave its parent"),
        pytest.param("a", "0\n", "EBUSY", "0-2\n", id="a parent may not shrink below its child"),
        pytest.param("a", "3\n", "EBUSY", "0-2\n", id="a parent may not move away from its child"),
        pytest.param("a", "\n", "EBUSY", "0-2\n", id="a parent may not be emptied above its child"),
        pytest.param("a/b", "\n", "ok", "\n", id="without threads a cpuset may be emptied"),
        pytest.param("a/b", "", "ok", "0-1\n", id="a write of nothing does nothing"),
        pytest.param("a", "0-3", "ok", "0-3\n", id="the newline is optional"),
        pytest.param("a", " 1 , 0 \n", "ok", "0-1\n", id="blanks and order do not matter"),
        pytest.param("a", "4\n", "ERANGE", "0-2\n", id="an id the machine cannot have is out of range"),
        pytest.param("a", "3-1\n", "EINVAL", "0-2\n", id="a backward range is no list"),
        pytest.param("a", "x\n", "EINVAL", "0-2\n", id="letters are no list"),
        pytest.param("a", "0-\n", "EINVAL", "0-2\n", id="half a range is no list"),
        pytest.param("a", "all\n", "ok", "0-3\n", id="all means all"),
        pytest.param("", "0\n", "EACCES", "0-3\n", id="the root cpuset cannot be written"),
    ],
)
def test_cpuset_cpus(files: Tree, attempt: Attempt, *, group: str, text: str, answer: str, after: str) -> None:
    path = f"{CPUSET}/{group}/cpuset.cpus".replace("//", "/")
    assert attempt(files, path, text) == answer
    assert files.read(path) == after.encode()


def test_a_cpuset_in_use_cannot_be_emptied(v1: Sandbox, files: Tree, attempt: Attempt) -> None:
    tid = a_thread(v1)
    assert attempt(files, f"{CPUSET}/a/b/tasks", f"{tid}\n") == "ok"
    assert attempt(files, f"{CPUSET}/a/b/cpuset.cpus", "\n") == "ENOSPC"
    assert attempt(files, f"{CPUSET}/a/b/cpuset.mems", "\n") == "ENOSPC"


def test_an_empty_cpuset_takes_no_threads(v1: Sandbox, files: Tree, attempt: Attempt) -> None:
    files.mkdir(f"{CPUSET}/fresh")
    assert files.read(f"{CPUSET}/fresh/cpuset.cpus") == b"\n"
    assert attempt(files, f"{CPUSET}/fresh/tasks", str(a_thread(v1))) == "ENOSPC"
    assert attempt(files, f"{CPUSET}/fresh/cpuset.mems", "7\n") == "EINVAL"


@pytest.mark.parametrize(
    ("file", "text", "answer", "after"),
    [
        pytest.param("cpu.cfs_quota_us", "50000\n", "ok", "50000\n", id="a quota"),
        pytest.param("cpu.cfs_quota_us", "-5\n", "ok", "-1\n", id="any negative quota means unlimited"),
        pytest.param("cpu.cfs_quota_us", "999\n", "EINVAL", "-1\n", id="below a millisecond is refused"),
        pytest.param("cpu.cfs_quota_us", "1000\n", "ok", "1000\n", id="a millisecond is accepted"),
        pytest.param("cpu.cfs_quota_us", "0\n", "EINVAL", "-1\n", id="zero is refused"),
        pytest.param("cpu.cfs_quota_us", "abc\n", "EINVAL", "-1\n", id="words are refused"),
        pytest.param("cpu.cfs_quota_us", "max\n", "EINVAL", "-1\n", id="max is a word of v2"),
        pytest.param("cpu.cfs_quota_us", "0x10000\n", "ok", "65536\n", id="hexadecimal is accepted"),
        pytest.param("cpu.cfs_quota_us", "50000 100000\n", "EINVAL", "-1\n", id="two numbers are refused"),
        pytest.param("cpu.cfs_quota_us", "99999999999999\n", "EINVAL", "-1\n", id="more than fits is refused"),
        pytest.param("cpu.cfs_period_us", "999\n", "EINVAL", "100000\n", id="a period below 1 ms is refused"),
        pytest.param("cpu.cfs_period_us", "1000000\n", "ok", "1000000\n", id="a period of a second is accepted"),
        pytest.param("cpu.cfs_period_us", "1000001\n", "EINVAL", "100000\n", id="a longer period is refused"),
        pytest.param("cpu.shares", "1\n", "ok", "2\n", id="shares are raised to 2"),
        pytest.param("cpu.shares", "262145\n", "ok", "262144\n", id="shares are cut at 262144"),
        pytest.param("cpu.shares", "-1\n", "EINVAL", "1024\n", id="negative shares are refused"),
        pytest.param("cpu.stat", "0\n", "EINVAL", None, id="a read-only file answers EINVAL, not EACCES"),
    ],
)
def test_cpu_files(files: Tree, attempt: Attempt, *, file: str, text: str, answer: str, after: str | None) -> None:
    assert attempt(files, f"{CPU}/a/b/{file}", text) == answer
    if after is not None:
        assert files.read(f"{CPU}/a/b/{file}") == after.encode()


@pytest.mark.parametrize(
    ("above", "text", "answer"),
    [
        pytest.param("50000", "50000\n", "ok", id="a child may have as much as its parent"),
        pytest.param("50000", "50001\n", "EINVAL", id="a child may not have more than its parent"),
        pytest.param("50000", "-1\n", "ok", id="an unlimited child of a limited parent is fine"),
        pytest.param("-1", "90000\n", "ok", id="an unlimited parent allows anything"),
    ],
)
def test_a_childs_quota_fits_its_parents(files: Tree, attempt: Attempt, above: str, text: str, answer: str) -> None:
    files.write(f"{CPU}/a/cpu.cfs_quota_us", above.encode())
    assert attempt(files, f"{CPU}/a/b/cpu.cfs_quota_us", text) == answer


def test_a_parents_quota_holds_its_childrens(files: Tree, attempt: Attempt) -> None:
    files.write(f"{CPU}/a/b/cpu.cfs_quota_us", b"40000")
    assert attempt(files, f"{CPU}/a/cpu.cfs_quota_us", "39999") == "EINVAL"
    assert files.read(f"{CPU}/a/cpu.cfs_quota_us") == b"-1\n"
    assert attempt(files, f"{CPU}/a/cpu.cfs_quota_us", "40000") == "ok"


def test_a_quota_is_compared_with_the_nearest_limit_above(v1: Sandbox, files: Tree, attempt: Attempt) -> None:
    files.mkdir(f"{CPU}/a/b/c")
    files.write(f"{CPU}/a/cpu.cfs_quota_us", b"50000")
    assert attempt(files, f"{CPU}/a/b/c/cpu.cfs_quota_us", "60000") == "EINVAL"
    assert attempt(files, f"{CPU}/a/b/c/cpu.cfs_quota_us", "50000") == "ok"


def test_bandwidth_is_compared_as_a_fraction_of_the_period(files: Tree, attempt: Attempt) -> None:
    files.write(f"{CPU}/a/cpu.cfs_quota_us", b"50000")
    assert attempt(files, f"{CPU}/a/b/cpu.cfs_quota_us", "30000") == "ok"
    assert attempt(files, f"{CPU}/a/b/cpu.cfs_period_us", "50000") == "EINVAL"


def test_the_root_has_no_bandwidth(v1: Sandbox, attempt: Attempt) -> None:
    assert attempt(v1.files, f"{CPU}/cpu.cfs_quota_us", "50000") == "EINVAL"
    assert attempt(v1.files, f"{CPU}/cpu.shares", "50000") == "EINVAL"


def test_controllers_are_separate_trees(v1: Sandbox) -> None:
    v1.files.mkdir(f"{CPUSET}/only-here")
    assert "only-here/" in v1.files.list(CPUSET)
    assert "only-here/" not in v1.files.list(CPU)
    assert v1.files.read("/sys/fs/cgroup/cpu,cpuacct/cpu.shares") == v1.files.read("/sys/fs/cgroup/cpuacct/cpu.shares")


def test_memory_without_a_limit_shows_the_largest_number(v1: Sandbox) -> None:
    assert v1.files.read("/sys/fs/cgroup/memory/kubepods/memory.limit_in_bytes") == b"9223372036854771712\n"
