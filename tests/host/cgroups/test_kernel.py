"""Groups on the real cgroup v1 of this machine, with cgroupspy as a second opinion."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from koordlite.clock import RealClock
from koordlite.host import bundle
from koordlite.host.cgroups.filesystem import Cgroups, vanished
from koordlite.host.files import RealFiles
from koordlite.model.cpuset import CPUSet

if TYPE_CHECKING:
    from conftest import RealGroups

V1_ROOT = Path("/sys/fs/cgroup")

pytestmark = pytest.mark.kernel


@pytest.fixture
def files() -> Iterator[RealFiles]:
    with RealFiles() as real:
        yield real


@pytest.fixture
def top(groups: RealGroups) -> str:
    return groups.make("kubepods")


@pytest.fixture
def cgroups(files: RealFiles, top: str) -> Cgroups:
    return Cgroups.detect(files, kubepods=top)


def second_opinion(controller: str, group: str) -> Any:
    from cgroupspy.nodes import Node

    node = Node(str(V1_ROOT / controller).encode(), parent=None)
    node.name = str(V1_ROOT / controller / group).encode()
    return Node.CONTROLLERS[controller.encode()](node)


def test_our_reader_agrees_with_cgroupspy(cgroups: Cgroups, top: str, resident: Callable[[str], int]) -> None:
    pid = resident(top)
    cgroups.write(top, "cpu.quota", 50_000)
    state = cgroups.state(top)
    assert state.quota_us == second_opinion("cpu", top).cfs_quota_us
    assert state.period_us == second_opinion("cpu", top).cfs_period_us
    assert state.cpuset == CPUSet(second_opinion("cpuset", top).cpus)
    stat = second_opinion("memory", top).stat
    names = ("total_inactive_anon", "total_active_anon", "total_unevictable")
    assert abs(cgroups.memory(top) - sum(stat[name] for name in names)) < 4 << 20
    assert cgroups.memory(top) > 30 << 20
    assert cgroups.cpu_usage_ns(top) <= second_opinion("cpuacct", top).usage
    assert pid in second_opinion("cpu", top).procs
    assert cgroups.procs(top) == (pid,)


def test_values_are_written_and_put_back_byte_for_byte(cgroups: Cgroups, top: str) -> None:
    found = {field: cgroups.read_raw(top, field) for field in ("cpu.quota", "cpuset.cpus")}
    first = CPUSet([min(cgroups.state(top).cpuset or ())])
    cgroups.write(top, "cpu.quota", 20_000)
    cgroups.write(top, "cpuset.cpus", first)
    changed = cgroups.state(top)
    assert (changed.quota_us, changed.cpuset) == (20_000, first)
    for field, raw in found.items():
        cgroups.write_raw(top, field, raw)
    assert {field: cgroups.read_raw(top, field) for field in found} == found


def test_the_kernels_refusals_keep_errno_and_path(cgroups: Cgroups, groups: RealGroups, top: str) -> None:
    child = groups.make("kubepods/besteffort")
    cgroups.write(top, "cpu.quota", 50_000)
    with pytest.raises(OSError) as child_above_parent:
        cgroups.write(child, "cpu.quota", 60_000)
    with pytest.raises(OSError) as no_such_cpu:
        cgroups.write(child, "cpuset.cpus", CPUSet({4000}))
    assert child_above_parent.value.errno == errno.EINVAL
    assert no_such_cpu.value.errno in (errno.EINVAL, errno.ERANGE)
    assert child_above_parent.value.filename == cgroups.path(child, "cpu.quota")


def test_a_parent_narrower_than_its_child_is_busy(cgroups: Cgroups, groups: RealGroups, top: str) -> None:
    cpus = sorted(cgroups.state(top).cpuset or ())
    if len(cpus) < 2:
        pytest.skip("one CPU only")
    groups.make("kubepods/besteffort")
    with pytest.raises(OSError) as caught:
        cgroups.write(top, "cpuset.cpus", CPUSet(cpus[:1]))
    assert caught.value.errno == errno.EBUSY


def test_a_group_that_is_made_again_is_read_again(cgroups: Cgroups, groups: RealGroups, top: str) -> None:
    pod = groups.make("kubepods/pod1")
    cgroups.write(pod, "cpu.quota", 30_000)
    assert cgroups.state(pod).quota_us == 30_000
    assert cgroups.cpu_usage_ns(pod) == 0
    groups.remove(pod)
    with pytest.raises(FileNotFoundError):
        cgroups.state(pod)
    with pytest.raises(OSError) as caught:
        cgroups.cpu_usage_ns(pod)
    assert vanished(caught.value)
    groups.make("kubepods/pod1")
    assert cgroups.state(pod).quota_us == -1
    assert cgroups.children(top) == ["pod1"]


def test_threads_of_a_real_process_are_found_from_above(
    cgroups: Cgroups, groups: RealGroups, resident: Callable[[str], int]
) -> None:
    pod = groups.make("kubepods/pod1")
    container = groups.make("kubepods/pod1/c0")
    pid = resident(container)
    assert pid in cgroups.threads(pod)
    assert cgroups.procs(container) == (pid,)
    assert cgroups.memory(pod) > 30 << 20
    assert cgroups.cpu_usage_ns(pod) > 0


def test_another_thread_reads_the_same_groups_and_keeps_no_descriptor_of_ours(files: RealFiles, top: str) -> None:
    host = bundle.bind(files, RealClock(), kubepods=top)
    host.cgroups.write(top, "cpu.quota", 50_000)
    theirs = host.for_another_thread()
    assert theirs.cgroups.quota_us(top) == 50_000
    # RealFiles is for one thread: what it keeps open is closed and used again by that one.
    assert not files._descriptors
    assert host.cgroups.quota_us(top) == 50_000
    assert files._descriptors
