"""Workloads answer to cpusets, quotas and weights, and the counters say so."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import slices
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from koordlite.host import procfs
from koordlite.host.cgroups.filesystem import Cgroups
from koordlite.lab import Sandbox, shapes
from koordlite.model.wire import objects

MakePod = Callable[..., objects.PodObject]


def used(sandbox: Sandbox, name: str) -> int:
    """Millicores in the last step."""
    return round(sandbox.stats(f"uid-{name}").used_milli)


def container(sandbox: Sandbox, name: str) -> str:
    """The group of the pod's first container."""
    return sandbox.kubelet.running[f"uid-{name}"].workloads[0].group


def test_a_constant_load_uses_what_it_wants(v2: Sandbox, make_pod: MakePod) -> None:
    v2.sync([make_pod("a", cpu="1500m")])
    v2.advance(10)
    stats = v2.stats("uid-a")
    assert (stats.used_milli, stats.used_us, stats.unmet_us) == (1500, 15_000_000, 0)


def test_a_cpuset_limits_at_once(v2: Sandbox, make_pod: MakePod) -> None:
    v2.sync([make_pod("a", cpu="greedy")])
    v2.advance(1)
    assert used(v2, "a") == 32_000
    v2.files.write(f"/sys/fs/cgroup/{v2.kubelet.layout.besteffort}/cpuset.cpus", b"0-3")
    v2.advance(0.1)
    assert used(v2, "a") == 4000


def test_a_quota_of_a_group_is_shared_below_it(v2: Sandbox, make_pod: MakePod) -> None:
    v2.sync([make_pod("a", cpu="greedy"), make_pod("b", cpu="greedy"), make_pod("c", cpu="500m")])
    group = v2.kubelet.layout.besteffort
    v2.files.write(f"/sys/fs/cgroup/{group}/cpu.max", b"250000")
    v2.advance(1)
    assert [used(v2, name) for name in "abc"] == [1000, 1000, 500]
    assert b"nr_periods 10\nnr_throttled 10\n" in v2.files.read(f"/sys/fs/cgroup/{group}/cpu.stat")


def test_best_effort_gives_way_by_weight(v2: Sandbox, make_pod: MakePod) -> None:
    service = make_pod("ls", requests={"cpu": "4"}, cpu="30")
    v2.sync([service, make_pod("be", cpu="greedy")])
    v2.advance(1)
    assert used(v2, "ls") > 29_900
    assert used(v2, "be") <= 2100


def test_without_limits_best_effort_takes_every_idle_cycle(v2: Sandbox, make_pod: MakePod) -> None:
    v2.sync([make_pod("ls", requests={"cpu": "4"}, cpu="10"), make_pod("be", cpu="greedy")])
    v2.advance(1)
    assert (used(v2, "ls"), used(v2, "be")) == (10_000, 22_000)


def test_a_pod_on_taken_cpus_is_hungry(v2: Sandbox, make_pod: MakePod) -> None:
    v2.sync([make_pod(name, requests={"cpu": "2"}, cpu="2") for name in "ab"])
    for running in v2.kubelet.running.values():
        v2.files.write(f"/sys/fs/cgroup/{running.group}/cpuset.cpus", b"0-1")
    v2.advance(2)
    assert (used(v2, "a"), used(v2, "b")) == (1000, 1000)
    assert v2.stats("uid-a").unmet_us == 2_000_000
    assert b"total=0" not in v2.files.read("/proc/pressure/cpu").splitlines()[0]


def test_system_processes_use_the_node_but_not_kubepods(v2: Sandbox) -> None:
    node = objects.NodeObject(metadata=objects.ObjectMeta(annotations={"sandbox.koordlite.io/system-cpu": "1500m"}))
    v2.sync([], node)
    v2.advance(10)
    assert procfs.node_cpu_ticks(v2.files) == pytest.approx(1500, abs=32)
    assert Cgroups.detect(v2.files).cpu_usage_ns(v2.kubelet.layout.kubepods) == 0


@pytest.mark.parametrize("shape", shapes())
def test_counters_agree_on_every_machine(shape: str, make_pod: MakePod) -> None:
    sandbox = Sandbox(shape)
    sandbox.sync([make_pod("a", requests={"cpu": "1"}, cpu="1"), make_pod("b", cpu="greedy", containers=2)])
    cgroups = Cgroups.detect(sandbox.files)
    sandbox.advance(5)
    layout, capacity = sandbox.kubelet.layout, len(sandbox.machine.cpus) * 1_000_000_000
    assert cgroups.cpu_usage_ns(layout.burstable) == pytest.approx(5 * 1_000_000_000, rel=0.001)
    assert cgroups.cpu_usage_ns(layout.kubepods) == pytest.approx(5 * capacity, rel=0.001)
    parts = [cgroups.cpu_usage_ns(group) for group in (layout.burstable, layout.besteffort)]
    assert sum(parts) == cgroups.cpu_usage_ns(layout.kubepods)
    assert procfs.node_cpu_ticks(sandbox.files) == pytest.approx(500 * len(sandbox.machine.cpus), rel=0.01)


def test_a_moved_process_lives_under_its_new_limits(v2: Sandbox, make_pod: MakePod) -> None:
    v2.sync([make_pod("a", cpu="greedy"), make_pod("b", cpu="0")])
    v2.files.write(f"/sys/fs/cgroup/{container(v2, 'b')}/cpu.max", b"50000")
    pid = v2.kubelet.running["uid-a"].workloads[0].process.pid
    v2.files.write(f"/sys/fs/cgroup/{container(v2, 'b')}/cgroup.procs", str(pid).encode())
    v2.advance(0.1)
    assert used(v2, "a") == 500


def test_memory_is_what_the_annotation_says(make_pod: MakePod) -> None:
    for shape in ("small", "intel-2s-ht"):
        sandbox = Sandbox(shape)
        before = procfs.memory(sandbox.files)
        sandbox.sync([make_pod("a", cpu="1", memory="2Gi"), make_pod("b", cpu="1", requests={"memory": "1Gi"})])
        cgroups = Cgroups.detect(sandbox.files)
        assert cgroups.memory(container(sandbox, "a")) == 2 * 2**30
        assert cgroups.memory(container(sandbox, "b")) == 2**29, "half the request"
        assert before.available - procfs.memory(sandbox.files).available == 5 * 2**29


CHANGE = st.one_of(
    st.tuples(st.just("cpuset.cpus"), st.sets(st.integers(0, 31), min_size=1).map(lambda s: ",".join(map(str, s)))),
    st.tuples(st.just("cpu.max"), st.integers(1000, 4_000_000).map(str)),
    st.tuples(st.just("cpu.weight"), st.integers(1, 10_000).map(str)),
)
WHERE = st.integers(0, 4)


@settings(
    max_examples=slices.amount(40, 15), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(st.lists(st.tuples(WHERE, CHANGE), max_size=12))
def test_whatever_is_written_limits_hold(make_pod: MakePod, changes: list[tuple[int, tuple[str, str]]]) -> None:
    sandbox = Sandbox("intel-2s-ht")
    pods = [make_pod("a", requests={"cpu": "4"}, cpu="20"), make_pod("b", cpu="greedy"), make_pod("c", cpu="greedy")]
    sandbox.sync(pods)
    layout = sandbox.kubelet.layout
    groups = [layout.kubepods, layout.besteffort, *(container(sandbox, name) for name in "abc")]
    for where, (file, text) in changes:
        sandbox.files.write(f"/sys/fs/cgroup/{groups[where]}/{file}", text.encode())
        sandbox.advance(0.1)
        _check_limits(sandbox)


def _check_limits(sandbox: Sandbox) -> None:
    total = 0.0
    for workload in sandbox.workloads:
        total += workload.used_milli
        group = sandbox.cgroups.cpu.find(workload.group)
        assert group is not None
        assert workload.used_milli <= 1000 * len(sandbox.cgroups.allowed(group)) + 0.01
        for above in group.lineage():
            if above.quota_us >= 0:
                assert workload.used_milli <= 1000 * above.quota_us / above.period_us + 0.01
    assert total <= 32_000.01
