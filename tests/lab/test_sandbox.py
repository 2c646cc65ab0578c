"""The sandbox as a whole: real code reads it, time passes as asked, two runs are the same run."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Sequence

import pytest

from koordlite.changes.eviction import EvictPod
from koordlite.changes.published import NodeResourceChange
from koordlite.host import procfs, sysfs
from koordlite.lab import Sandbox, shapes
from koordlite.lab.cluster.cluster import SandboxCluster
from koordlite.lab.machine import shapes as machines
from koordlite.lab.machine.clock import SandboxClock
from koordlite.lab.pods import kubelet
from koordlite.model.change import ClusterChange
from koordlite.model.picture.kubelet import Kubelet
from koordlite.model.wire import objects
from koordlite.ports import ClusterView
from koordlite.resctrl.filesystem import ResctrlFS

MakePod = Callable[..., objects.PodObject]


@pytest.mark.parametrize("shape", shapes())
def test_the_host_code_reads_the_topology_back(shape: str) -> None:
    sandbox, described = Sandbox(shape), machines.machine(shape)
    seen = sysfs.topology(sandbox.files)
    assert {cpu.id: (cpu.node, cpu.l3) for cpu in seen.cpus} == {c.id: (c.node, c.l3) for c in described.cpus}
    assert len({cpu.core for cpu in seen.cpus}) == len({(cpu.package, cpu.core) for cpu in described.cpus})
    assert {cpu.socket for cpu in seen.cpus} == set(range(len({cpu.package for cpu in described.cpus})))
    assert [(node.id, node.memory) for node in seen.nodes] == [(node.id, node.memory) for node in described.nodes]
    assert sysfs.smt_active(sandbox.files) == (len(seen.cpus) > len({cpu.core for cpu in seen.cpus}))
    assert procfs.memory(sandbox.files).total == described.memory
    assert procfs.processor(sandbox.files).flags


@pytest.mark.parametrize("shape", shapes())
def test_the_host_code_reads_resctrl_back(shape: str) -> None:
    sandbox = Sandbox(shape)
    seen = ResctrlFS(sandbox.files).read(with_tasks=None)
    rdt = sandbox.machine.rdt
    if rdt is None:
        assert "no resctrl" in seen.absent
        return
    if sandbox.machine.resctrl is None:
        assert "not mounted" in seen.absent
        return
    masks = {name: cache.cbm_mask for name, cache in seen.caches.items()}
    described = {name: cache.full for name, cache in (("L3", rdt.l3), ("L2", rdt.l2)) if cache}
    assert {name.removesuffix("CODE").removesuffix("DATA"): mask for name, mask in masks.items()} == described
    if rdt.mb and "mba_MBps" not in (sandbox.machine.resctrl or ""):
        assert seen.bandwidths["MB"].maximum == rdt.mb.full
        assert seen.bandwidths["MB"].absolute == rdt.amd
        assert tuple(seen.groups[""].schemata["MB"]) == sandbox.machine.l3_ids


def test_an_unknown_shape_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match="intel-2s-ht, amd-ccd, arm, small"):
        Sandbox("toaster")


def run(seed: int, make_pod: MakePod) -> dict[str, bytes]:
    """Every byte of a machine after a short life."""
    sandbox = Sandbox("intel-2s-ht", seed=seed)
    noisy = make_pod("ls", requests={"cpu": "4"}, cpu="wave(low=2,high=30,period=7,noise=0.1)")
    sandbox.sync([noisy, make_pod("be", cpu="greedy", containers=2)])
    sandbox.advance(3.3)
    sandbox.files.write(f"/sys/fs/cgroup/{sandbox.kubelet.layout.besteffort}/cpuset.cpus", b"0-5")
    sandbox.advance(2)
    return {path: sandbox.files.read(path) for path in sandbox.files.paths() if not path.endswith("/cgroup.kill")}


def test_two_runs_write_the_same_bytes(make_pod: MakePod) -> None:
    assert run(1, make_pod) == run(1, make_pod)


def test_another_seed_is_another_run(make_pod: MakePod) -> None:
    first, second = run(1, make_pod), run(2, make_pod)
    assert first["/proc/sys/kernel/random/boot_id"] != second["/proc/sys/kernel/random/boot_id"]
    assert first["/proc/stat"] != second["/proc/stat"]


def test_time_passes_only_by_waiting(v2: Sandbox) -> None:
    begin, wall = v2.clock.monotonic(), v2.clock.wall()
    assert v2.clock.wait(2.5) is False
    assert v2.clock.monotonic() - begin == pytest.approx(2.5)
    assert v2.clock.wall() - wall == pytest.approx(2.5)
    assert v2.files.read("/proc/uptime").startswith(f"{begin + 2.5:.2f}".encode())


def test_a_wait_ends_when_the_run_is_stopped() -> None:
    stop = threading.Event()
    steps: list[float] = []

    def advance(seconds: float) -> None:
        steps.append(seconds)
        if len(steps) == 3:
            stop.set()

    clock = SandboxClock(advance, start=0, stop=stop)
    assert clock.wait(10) is True
    assert steps == [0.1, 0.1, 0.1]


def test_a_paced_clock_takes_real_time() -> None:
    stop = threading.Event()
    clock = SandboxClock(lambda _: None, start=0, pace=0.05, stop=stop)
    timer = threading.Timer(0.2, stop.set)
    timer.start()
    assert clock.wait(1000) is True
    timer.join()
    assert clock.seconds < 1000, "at 20 times real speed the stop came long before the end"


def test_ticks_of_proc_stat_add_up_to_the_time(v2: Sandbox, make_pod: MakePod) -> None:
    v2.sync([make_pod("a", cpu="3")])
    v2.files.write(f"/sys/fs/cgroup/{v2.kubelet.running['uid-a'].group}/cpuset.cpus", b"0-2")
    v2.advance(10)
    rows = {
        line.split()[0]: [int(n) for n in line.split()[1:]] for line in v2.files.read("/proc/stat").splitlines()[:33]
    }
    assert rows[b"cpu0"][0] == 1000
    assert rows[b"cpu31"][0] == 0
    assert sum(rows[b"cpu"]) == 32 * 11_000, "100 s before the start and 10 s since, on 32 CPUs"


def test_a_fault_strikes_one_read(v2: Sandbox) -> None:
    v2.fail("/proc/stat", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        procfs.node_cpu_ticks(v2.files)
    assert procfs.node_cpu_ticks(v2.files) == 0


def test_a_thread_can_be_looked_up_by_its_own_id(v2: Sandbox, make_pod: MakePod) -> None:
    v2.clock.wait(5)
    v2.sync([make_pod("a", cpu="1")])
    process = v2.kubelet.running["uid-a"].workloads[0].process
    second = process.tids[1]
    assert procfs.start_time(v2.files, second) == 10_500
    group = v2.kubelet.running["uid-a"].workloads[0].group
    assert v2.files.read(f"/proc/{second}/cgroup") == f"0::/{group}\n".encode()
    assert b"Cpus_allowed_list:\t0-31\n" in v2.files.read(f"/proc/{process.pid}/task/{second}/status")
    listed = v2.files.list("/proc")
    assert f"{process.pid}/" in listed
    assert f"{second}/" not in listed, "threads are not listed beside processes"


def test_a_node_object_fits_the_machine() -> None:
    node = kubelet.registered_node(machines.machine("small"), "n1")
    assert node.metadata.name == "n1"
    assert node.status.capacity == {"cpu": "4", "memory": "8388608Ki", "pods": "110"}
    assert (node.status.allocatable or {})["memory"] == "8286208Ki"


def test_a_node_without_a_status_gets_the_machines(v1: Sandbox) -> None:
    node, problems = v1.reported_node(objects.NodeObject(metadata=objects.ObjectMeta(name="n1")))
    assert node.status == kubelet.registered_node(v1.machine, "n1").status
    assert problems == ()


def test_a_node_that_is_right_is_not_touched(v1: Sandbox) -> None:
    right = kubelet.registered_node(v1.machine, "n1")
    assert v1.reported_node(right) == (right, ())
    assert v1.reported_node(right)[0] is right


def test_a_node_of_another_size_becomes_the_machines(v1: Sandbox) -> None:
    capacity: dict[str, str | int | float] = {"cpu": "32", "memory": "8388608Ki", "example.com/gpu": "1"}
    written = objects.NodeObject(
        metadata=objects.ObjectMeta(name="n1"),
        status=objects.NodeStatus(capacity=capacity, allocatable={**capacity, "cpu": "31500m"}),
    )
    node, (problem,) = v1.reported_node(written)
    assert node.status.capacity == {**capacity, "cpu": "4", "pods": "110"}
    assert (node.status.allocatable or {})["cpu"] == "3500m", "what kubelet holds back is held back here too"
    assert "status.capacity.cpu = '32': the emulated machine has 4" in str(problem)
    assert v1.reported_node(written)[0] is node


class OneView:
    """A cluster that always says the same and remembers what is published."""

    def __init__(self, view: ClusterView) -> None:
        self.seen = view
        self.published: list[ClusterChange] = []

    def view(self) -> ClusterView:
        return self.seen

    def publish(self, changes: Sequence[ClusterChange]) -> None:
        self.published.extend(changes)

    def evict(self, pod: EvictPod) -> None:
        raise AssertionError(pod)


def test_a_sandboxed_cluster_runs_the_pods_it_shows(v2: Sandbox, make_pod: MakePod) -> None:
    inner = OneView(ClusterView(node=None, pods=(make_pod("a"),), config=None, topology=None, kubelet=Kubelet()))
    cluster = SandboxCluster(inner, v2)
    first, second = cluster.view(), cluster.view()
    assert first.pods[0].status.container_statuses
    assert first.pods[0] is second.pods[0]
    assert "uid-a" in v2.kubelet.running
    change = NodeResourceChange("kubernetes.io/batch-cpu", 1000)
    cluster.publish([change])
    assert inner.published == [change]
