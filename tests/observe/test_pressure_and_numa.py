"""Waiting and memory by NUMA node are in the picture where the kernel tells them, and missing where it does not."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest
from emulated import Emulated
from hooked_files import HookedFiles, nothing, refusing

from koordlite.host.cgroups.filesystem import Cgroups
from koordlite.model.settings import MetricsSettings
from koordlite.model.snapshot import Snapshot
from koordlite.observe import Observer, numa, pressure
from koordlite.observe.wants import Wants

ObserveShape = Callable[[str], tuple[Emulated, Observer]]


def after(node: Emulated, observer: Observer, seconds: int) -> Snapshot:
    for _ in range(seconds):
        observer.observe()
        node.sandbox.advance(1.0)
    return observer.observe()


def test_a_node_of_cgroup_v2_has_pressure_of_machine_best_effort_and_pods(observe_shape: ObserveShape) -> None:
    node, observer = observe_shape("intel-2s-ht")
    seen = after(node, observer, 3)
    groups = {place.group for place in seen.places.values()}
    assert set(seen.pressure) == {pressure.MACHINE, seen.layout.besteffort, *groups}
    assert all(set(each) == {"cpu", "memory", "io"} for each in seen.pressure.values())


def test_waiting_work_shows(tmp_path: Path) -> None:
    node = Emulated("small", tmp_path)
    node.pod("web", "LS", "4")
    node.pod("crunch", "BE", "greedy")
    observer = Observer(node.host(), node.cluster, tasks_seconds=5.0)
    first = after(node, observer, 1).pressure[pressure.MACHINE]["cpu"].some
    last = after(node, observer, 5).pressure[pressure.MACHINE]["cpu"].some
    assert last.total_us > first.total_us


def test_a_node_of_cgroup_v1_has_that_of_the_machine(node: Emulated, observer: Observer) -> None:
    assert set(after(node, observer, 1).pressure) == {pressure.MACHINE}


def noting_reads(node: Emulated) -> tuple[list[str], HookedFiles]:
    """The paths that are read, and the files to read them from."""
    reads: list[str] = []

    def content(path: str, content: bytes) -> bytes:
        reads.append(path)
        return content

    return reads, HookedFiles(node.sandbox.files, content=content)


@pytest.mark.parametrize("refusal", [errno.ENOENT, errno.EOPNOTSUPP, errno.EACCES])
def test_a_kernel_without_pressure_is_no_error(node: Emulated, refusal: int) -> None:
    files = HookedFiles(node.sandbox.files, look=refusing("pressure", refusal))
    observer = Observer(node.host(files), node.cluster, tasks_seconds=5.0)
    assert observer.observe().pressure == {}


def test_pressure_that_comes_later_is_seen(node: Emulated) -> None:
    files = HookedFiles(node.sandbox.files, look=refusing("pressure", errno.ENOENT))
    observer = Observer(node.host(files), node.cluster, tasks_seconds=5.0)
    assert observer.observe().pressure == {}
    files.look = nothing
    assert set(observer.observe().pressure) == {pressure.MACHINE}


def test_pods_without_such_files_are_not_asked_for_them(node: Emulated) -> None:
    reads, files = noting_reads(node)
    reader = pressure.PressureReader(files, Cgroups.detect(files))
    reads.clear()
    reader.read(0.0, [f"kubepods/pod{number}" for number in range(100)])
    assert len(reads) <= 3, "only the three of the machine are there"


def test_pods_take_turns(observe_shape: ObserveShape) -> None:
    node, _ = observe_shape("intel-2s-ht")
    for number in range(60):
        node.pod(f"p{number}", "LS", "0.1")
    node.sandbox.advance(1.0)
    reads, files = noting_reads(node)
    cgroups = Cgroups.detect(files)
    below = [f"{cgroups.layout.burstable}/{name}" for name in cgroups.children(cgroups.layout.burstable)]
    reader = pressure.PressureReader(files, cgroups)
    reader.read(0.0, below)
    read: list[set[str]] = []
    for second in range(1, 16):
        reads.clear()
        assert set(reader.read(float(second), below)) == {pressure.MACHINE, cgroups.layout.besteffort, *below}
        read.append({path for path in reads if "-pod" in path})
    assert max(map(len, read)) <= 3 * pressure.AT_LEAST_PODS
    assert set().union(*read) == {
        cgroups.path(group, f"{resource}.pressure") for group in below for resource in pressure.RESOURCES
    }


def test_memory_is_told_by_numa_node(observe_shape: ObserveShape) -> None:
    node, observer = observe_shape("intel-2s-ht")
    seen = after(node, observer, 6)
    assert set(seen.numa_memory) == {numa.MACHINE, seen.layout.besteffort}
    assert set(seen.numa_memory[numa.MACHINE]) == {each.id for each in seen.topology.nodes}
    machine, best_effort = seen.numa_memory.values()
    assert all(machine[node_id] >= best_effort[node_id] > 0 for node_id in machine)


@pytest.mark.parametrize(
    ("wanted", "machine"),
    [
        pytest.param(frozenset(), [True, *[False] * 4, True, *[False] * 4, True, False], id="for reports"),
        pytest.param(frozenset({"memory_places"}), [True] * 12, id="while pods go by it"),
    ],
)
def test_memory_by_numa_node_is_read_every_five_seconds_or_each_tick(
    node: Emulated, wanted: frozenset[str], machine: list[bool]
) -> None:
    reads, files = noting_reads(node)
    observer = Observer(node.host(files), node.cluster, tasks_seconds=5.0, needs_of=lambda *_: Wants(reads=wanted))
    looks = []
    for _ in range(12):
        reads.clear()
        observer.observe()
        looks.append(any("node0/meminfo" in path for path in reads))
        node.sandbox.advance(1.0)
    # The first look reads it for the topology as well.
    assert looks == machine


def test_a_machine_without_numa_folders_has_none(node: Emulated) -> None:
    files = HookedFiles(node.sandbox.files)
    reader = numa.NumaMemoryReader(files, Cgroups.detect(files))
    seen = Observer(node.host(), node.cluster, tasks_seconds=5.0).observe()
    files.look = refusing("/node", errno.ENOENT)
    assert numa.MACHINE not in reader.read(0.0, seen.topology)


def test_the_pressure_of_containers_is_read_only_where_it_is_asked_for(observe_shape: ObserveShape) -> None:
    node, _ = observe_shape("intel-2s-ht")
    asked = Observer(node.host(), node.cluster, tasks_seconds=5.0, metrics=MetricsSettings(container_psi=True))
    seen = after(node, asked, 1)
    containers = {group for place in seen.places.values() for group in place.containers.values()}
    assert containers
    assert containers <= set(seen.pressure)
    assert all(set(seen.pressure[group]) == {"cpu", "memory", "io"} for group in containers)


def test_use_by_numa_node_is_read_without_a_node_metric_where_it_is_asked_for(observe_shape: ObserveShape) -> None:
    node, usual = observe_shape("intel-2s-ht")
    asked = Observer(node.host(), node.cluster, tasks_seconds=5.0, metrics=MetricsSettings(numa_system_usage=True))
    assert set(after(node, asked, 12).numa_use) == {0, 1}
    seen = after(node, usual, 12)
    assert not seen.numa_use
    assert not seen.node_windows
