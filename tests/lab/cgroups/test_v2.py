"""cgroup v2 takes and refuses what the kernel does. Each row was seen on Linux 6.1 and 6.12."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from koordlite.lab import Sandbox
from koordlite.lab.machine.tree import Tree

Attempt = Callable[[Tree, str, str], str]

ROOT = "/sys/fs/cgroup"


def a_thread(sandbox: Sandbox) -> int:
    """The processes outside Kubernetes: something that lives from the start."""
    return next(iter(sandbox.workloads)).process.pid


@pytest.fixture
def files(v2: Sandbox) -> Tree:
    """A machine of 32 CPUs with the groups a and a/b."""
    v2.files.mkdir(f"{ROOT}/a")
    v2.files.mkdir(f"{ROOT}/a/b")
    return v2.files


def test_a_new_group_inherits_everything(files: Tree) -> None:
    shown = {name: files.read(f"{ROOT}/a/b/{name}") for name in ("cpuset.cpus", "cpuset.cpus.effective", "cpu.max")}
    assert shown == {"cpuset.cpus": b"\n", "cpuset.cpus.effective": b"0-31\n", "cpu.max": b"max 100000\n"}


@pytest.mark.parametrize(
    ("text", "answer", "after"),
    [
        pytest.param("0-3\n", "ok", "0-3\n", id="a list"),
        pytest.param("1,,2\n", "ok", "1-2\n", id="an empty piece is passed over"),
        pytest.param("0-6:1/2\n", "ok", "0,2,4,6\n", id="strides are understood"),
        pytest.param("N\n", "ok", "31\n", id="N is the last CPU"),
        pytest.param("\n", "ok", "\n", id="without threads it may be emptied"),
        pytest.param("32\n", "ERANGE", "\n", id="an id the machine cannot have is out of range"),
        pytest.param("-1\n", "EINVAL", "\n", id="a negative id is no list"),
        pytest.param("0x1\n", "EINVAL", "\n", id="hexadecimal is no list"),
    ],
)
def test_cpuset_cpus(files: Tree, attempt: Attempt, text: str, answer: str, after: str) -> None:
    assert attempt(files, f"{ROOT}/a/b/cpuset.cpus", text) == answer
    assert files.read(f"{ROOT}/a/b/cpuset.cpus") == after.encode()


@pytest.mark.parametrize(
    ("above", "own", "effective"),
    [
        pytest.param("0-1", "1-5", "1\n", id="a child gets what its parent has of what it asks"),
        pytest.param("0-1", "4-5", "0-1\n", id="a child that gets nothing gets all its parent has"),
        pytest.param("0-1", "", "0-1\n", id="a child that asks nothing gets all its parent has"),
        pytest.param("", "4-5", "4-5\n", id="a parent that asks nothing passes the machine on"),
    ],
)
def test_effective_cpus(files: Tree, above: str, own: str, effective: str) -> None:
    files.write(f"{ROOT}/a/b/cpuset.cpus", f"{own}\n".encode())
    files.write(f"{ROOT}/a/cpuset.cpus", f"{above}\n".encode())
    assert files.read(f"{ROOT}/a/b/cpuset.cpus.effective") == effective.encode()


def test_a_cpuset_with_threads_below_cannot_be_emptied(v2: Sandbox, files: Tree, attempt: Attempt) -> None:
    files.write(f"{ROOT}/a/b/cgroup.procs", str(a_thread(v2)).encode())
    assert attempt(files, f"{ROOT}/a/b/cpuset.cpus", "\n") == "ok"  # It was empty, so nothing is taken away.
    for group in ("a/b", "a"):
        files.write(f"{ROOT}/{group}/cpuset.cpus", b"0-3")
        assert attempt(files, f"{ROOT}/{group}/cpuset.cpus", "\n") == "ENOSPC"
    assert attempt(files, f"{ROOT}/a/b/cpuset.mems", "7\n") == "EINVAL"


@pytest.mark.parametrize(
    ("text", "answer", "after"),
    [
        pytest.param("50000\n", "ok", "50000 200000\n", id="a lone quota keeps the period"),
        pytest.param("50000 100000\n", "ok", "50000 100000\n", id="quota and period"),
        pytest.param("max\n", "ok", "max 200000\n", id="max keeps the period"),
        pytest.param("max 100000\n", "ok", "max 100000\n", id="max and period"),
        pytest.param("max max\n", "ok", "max 200000\n", id="an unreadable period is not read"),
        pytest.param("70000 100000 7\n", "ok", "70000 100000\n", id="a third word is not read"),
        pytest.param("999\n", "EINVAL", "40000 200000\n", id="below a millisecond is refused"),
        pytest.param("-1\n", "EINVAL", "40000 200000\n", id="-1 is a word of v1"),
        pytest.param("0x1000\n", "EINVAL", "40000 200000\n", id="hexadecimal reads as 0"),
        pytest.param("50000 1000001\n", "EINVAL", "40000 200000\n", id="a period above a second is refused"),
        pytest.param("\n", "EINVAL", "40000 200000\n", id="an empty line is refused"),
        pytest.param("", "ok", "40000 200000\n", id="a write of nothing does nothing"),
        pytest.param("18446744073709\n", "EINVAL", "40000 200000\n", id="more than fits is refused"),
    ],
)
def test_cpu_max(files: Tree, attempt: Attempt, text: str, answer: str, after: str) -> None:
    files.write(f"{ROOT}/a/b/cpu.max", b"40000 200000")
    assert attempt(files, f"{ROOT}/a/b/cpu.max", text) == answer
    assert files.read(f"{ROOT}/a/b/cpu.max") == after.encode()


def test_a_child_may_ask_for_more_than_its_parent_has(files: Tree, attempt: Attempt) -> None:
    files.write(f"{ROOT}/a/cpu.max", b"20000")
    assert attempt(files, f"{ROOT}/a/b/cpu.max", "50000") == "ok"


def test_burst_stays_within_the_quota(files: Tree, attempt: Attempt) -> None:
    files.write(f"{ROOT}/a/b/cpu.max", b"40000")
    assert attempt(files, f"{ROOT}/a/b/cpu.max.burst", "40001") == "EINVAL"
    assert attempt(files, f"{ROOT}/a/b/cpu.max.burst", "30000") == "ok"
    assert attempt(files, f"{ROOT}/a/b/cpu.max", "20000") == "EINVAL"


@pytest.mark.parametrize(
    ("file", "text", "answer"),
    [
        pytest.param("cpu.weight", "10000", "ok", id="the largest weight"),
        pytest.param("cpu.weight", "0", "ERANGE", id="no weight"),
        pytest.param("cpu.weight", "10001", "ERANGE", id="too much weight"),
        pytest.param("cpu.weight", "x", "EINVAL", id="a word for a weight"),
        pytest.param("cpu.idle", "2", "EINVAL", id="idle is yes or no"),
        pytest.param("memory.min", "1G", "ok", id="memory with a suffix"),
        pytest.param("memory.min", "-1", "EINVAL", id="-1 is a word of v1 for memory too"),
        pytest.param("memory.max", "max", "ok", id="memory without a limit"),
        pytest.param("cpu.stat", "x", "EINVAL", id="a read-only file answers EINVAL, not EACCES"),
        pytest.param("cgroup.procs", "999999", "ESRCH", id="a process that is not there"),
        pytest.param("cgroup.procs", "x", "EINVAL", id="a process that is no number"),
        pytest.param("nope", "x", "ENOENT", id="a file that is not there"),
    ],
)
def test_other_files(files: Tree, attempt: Attempt, file: str, text: str, answer: str) -> None:
    assert attempt(files, f"{ROOT}/a/b/{file}", text) == answer


def test_memory_is_counted_in_pages(files: Tree) -> None:
    files.write(f"{ROOT}/a/b/memory.min", b"5000\n")
    assert files.read(f"{ROOT}/a/b/memory.min") == b"4096\n"


def test_threads_live_in_leaves_only(v2: Sandbox, files: Tree, attempt: Attempt) -> None:
    tid = str(a_thread(v2))
    assert attempt(files, f"{ROOT}/a/cgroup.procs", tid) == "EBUSY"
    assert attempt(files, f"{ROOT}/a/b/cgroup.procs", tid) == "ok"
    assert files.read(f"{ROOT}/a/cgroup.events") == b"populated 1\nfrozen 0\n"


def test_the_root_has_no_limits(v2: Sandbox, attempt: Attempt) -> None:
    assert attempt(v2.files, f"{ROOT}/cpuset.cpus", "0") == "ENOENT"
    assert attempt(v2.files, f"{ROOT}/cpu.max", "max") == "ENOENT"
    assert v2.files.read(f"{ROOT}/cpuset.cpus.effective") == b"0-31\n"


def test_numa_memory_follows_the_cpus_a_group_may_use(v2: Sandbox, make_pod: Callable[..., object]) -> None:
    v2.sync([make_pod("p", cpu="1", memory="8Gi")])  # type: ignore[list-item]
    group = v2.kubelet.running["uid-p"].workloads[0].group
    v2.files.write(f"{ROOT}/{group}/cpuset.cpus", b"0-1,8")
    assert v2.files.read(f"{ROOT}/{group}/memory.numa_stat").startswith(b"anon N0=4294967296 N1=4294967296\n")
