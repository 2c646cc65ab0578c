"""The machine's topology from /sys, for the shapes that real machines have."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from memory_files import MemoryFiles

from koordlite.host import sysfs
from koordlite.host.files import RealFiles
from koordlite.model.cpuset import CPUSet
from koordlite.model.errors import HardwareAbsent
from koordlite.model.topology import CPU, Topology

if TYPE_CHECKING:
    from planted import Rooted

CPUS = "/sys/devices/system/cpu"
NODES = "/sys/devices/system/node"


def cpu(number: int, package: int | None, core: int, **more: str) -> dict[str, str]:
    """Files of one CPU; `more` are further topology files."""
    folder = f"{CPUS}/cpu{number}/topology"
    tree = {f"{folder}/core_id": f"{core}\n", **{f"{folder}/{name}": f"{text}\n" for name, text in more.items()}}
    return tree if package is None else {**tree, f"{folder}/physical_package_id": f"{package}\n"}


def cache(number: int, index: int, level: int, **more: str) -> dict[str, str]:
    folder = f"{CPUS}/cpu{number}/cache/index{index}"
    kind = "Unified" if level > 1 else "Instruction"
    return {f"{folder}/{name}": f"{text}\n" for name, text in {"level": str(level), "type": kind, **more}.items()}


def node(number: int, cpus: str, distance: str, kib: int = 1024) -> dict[str, str]:
    folder = f"{NODES}/node{number}"
    return {
        f"{folder}/cpulist": f"{cpus}\n",
        f"{folder}/distance": f"{distance}\n",
        f"{folder}/meminfo": f"Node {number} MemTotal:       {kib} kB\nNode {number} MemFree: 1 kB\n",
    }


def joined(*trees: dict[str, str]) -> dict[str, str]:
    return {path: text for tree in trees for path, text in tree.items()}


def read(machine: Rooted, *trees: dict[str, str]) -> Topology:
    return sysfs.topology(machine.plant(joined({"/proc/meminfo": "MemTotal: 8 kB\nMemAvailable: 8 kB\n"}, *trees)))


def columns(found: Topology, field: str) -> list[int | None]:
    return [getattr(cpu, field) for cpu in found.cpus]


TWO_SOCKETS = joined(
    {f"{CPUS}/online": "0-7\n"},
    *(cpu(number, number % 4 // 2, number % 2) for number in range(8)),
    node(0, "0-1,4-5", "10 21"),
    node(1, "2-3,6-7", "21 10", kib=2048),
)


def test_core_ids_that_repeat_in_each_socket_are_distinguished(machine: Rooted) -> None:
    found = read(machine, TWO_SOCKETS)
    assert columns(found, "core") == [0, 1, 2, 3, 0, 1, 2, 3]
    assert columns(found, "socket") == [0, 0, 1, 1, 0, 0, 1, 1]
    assert columns(found, "node") == [0, 0, 1, 1, 0, 0, 1, 1]
    assert [(n.id, str(n.cpus), n.memory, n.distances) for n in found.nodes] == [
        (0, "0-1,4-5", 1 << 20, ((0, 10), (1, 21))),
        (1, "2-3,6-7", 2 << 20, ((0, 21), (1, 10))),
    ]


@pytest.mark.parametrize(
    "told",
    [
        pytest.param({f"{CPUS}/online": "0,2-7\n"}, id="by the list of online CPUs"),
        pytest.param({f"{CPUS}/online": "0,2-8\n"}, id="ids without a folder are ignored"),
        pytest.param({f"{CPUS}/cpu1/online": "0\n", f"{CPUS}/cpu2/online": "1\n"}, id="by each CPU's own file"),
    ],
)
def test_offline_cpus_are_left_out(machine: Rooted, told: dict[str, str]) -> None:
    tree = {path: text for path, text in TWO_SOCKETS.items() if path != f"{CPUS}/online"}
    found = read(machine, tree, told)
    assert found.cpuset == CPUSet({0, 2, 3, 4, 5, 6, 7})
    assert str(found.nodes[0].cpus) == "0,4-5"
    assert [c.core for c in found.cpus] == [0, 1, 2, 0, 3, 1, 2]


def test_arm_without_packages_is_one_socket_with_a_core_a_cpu_in_each_cluster(machine: Rooted) -> None:
    found = read(machine, *(cpu(n, -1, n % 2, cluster_id=str(n // 2)) for n in range(4)))
    assert columns(found, "core") == [0, 1, 2, 3]
    assert columns(found, "socket") == [0, 0, 0, 0]


def test_without_topology_files_each_cpu_is_a_core(machine: Rooted) -> None:
    found = read(machine, {f"{CPUS}/{name}/uevent": "" for name in ("cpu0", "cpu1", "cpu2", "cpufreq", "cpuidle")})
    assert found.cpus == (CPU(0, 0, 0, 0), CPU(1, 1, 0, 0), CPU(2, 2, 0, 0))


def test_thread_siblings_win_over_core_ids(machine: Rooted) -> None:
    found = read(machine, *(cpu(n, 0, 0, thread_siblings_list=f"{n % 2},{n % 2 + 2}") for n in range(4)))
    assert columns(found, "core") == [0, 1, 0, 1]


def test_sockets_are_numbered_as_lscpu_does_whatever_firmware_calls_them(machine: Rooted) -> None:
    assert columns(read(machine, cpu(0, 36, 0), cpu(1, 3180, 0)), "socket") == [0, 1]


def test_l3_ids_are_those_of_resctrl_and_may_have_gaps(machine: Rooted) -> None:
    shapes = [joined(cpu(n, 0, n), cache(n, 0, 1), cache(n, 3, 3, id=str(n * 2))) for n in range(3)]
    found = read(machine, *shapes)
    assert columns(found, "l3") == [0, 2, 4]
    assert found.l3_ids == (0, 2, 4)


def test_l3_without_ids_is_counted_by_who_shares_it(machine: Rooted) -> None:
    shapes = [
        joined(cpu(n, 0, n), cache(n, 2, 2, id=str(n)), cache(n, 3, 3, shared_cpu_list="0-1" if n < 2 else "2-3"))
        for n in range(4)
    ]
    assert columns(read(machine, *shapes), "l3") == [0, 0, 1, 1]


@pytest.mark.parametrize(
    "caches",
    [
        pytest.param([], id="no cache folder at all"),
        pytest.param([cache(0, 0, 1), cache(0, 2, 2, id="0")], id="L2 is the last"),
        pytest.param([cache(0, 3, 3)], id="an L3 that neither has an id nor says who shares it"),
    ],
)
def test_no_usable_l3_is_none(machine: Rooted, caches: list[dict[str, str]]) -> None:
    assert columns(read(machine, cpu(0, 0, 0), *caches), "l3") == [None]


def test_sparse_and_memory_only_nodes(machine: Rooted) -> None:
    found = read(machine, cpu(0, 0, 0), cpu(1, 0, 1), node(0, "0-1", "10 28"), node(8, "", "28 10", kib=4096))
    assert [(n.id, len(n.cpus), n.distances) for n in found.nodes] == [
        (0, 2, ((0, 10), (8, 28))),
        (8, 0, ((0, 28), (8, 10))),
    ]
    assert columns(found, "node") == [0, 0]


def test_a_kernel_without_numa_has_one_node_with_all_memory(machine: Rooted) -> None:
    found = read(machine, cpu(0, 0, 0), cpu(1, 0, 1))
    assert [(n.id, str(n.cpus), n.memory, n.distances) for n in found.nodes] == [(0, "0-1", 8192, ((0, 10),))]


def test_a_machine_that_lists_no_cpu_is_refused(machine: Rooted) -> None:
    with pytest.raises(HardwareAbsent, match="lists no CPU"):
        read(machine, {f"{CPUS}/online": "0-3\n"})


@pytest.mark.parametrize(("text", "expected"), [("1\n", True), ("0\n", False), (None, False)])
def test_smt(machine: Rooted, text: str | None, expected: bool) -> None:
    machine.plant({} if text is None else {f"{CPUS}/smt/active": text})
    assert sysfs.smt_active(machine) is expected


@pytest.mark.parametrize(("text", "expected"), [("0\n", True), ("1\n", False), (None, False)])
def test_turbo(machine: Rooted, text: str | None, expected: bool) -> None:
    machine.plant({} if text is None else {f"{CPUS}/intel_pstate/no_turbo": text})
    assert sysfs.turbo_enabled(machine) is expected


MEMINFO = {"/proc/meminfo": "MemTotal: 8 kB\nMemAvailable: 8 kB\n"}


def places(count: int) -> Iterable[tuple[int, int]]:
    return some.lists(some.tuples(some.integers(0, 3), some.integers(0, 5)), min_size=1, max_size=count)


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=60)
@given(machine=places(24))
def test_two_cpus_share_a_core_exactly_when_package_and_core_id_agree(machine: list[tuple[int, int]]) -> None:
    found = sysfs.topology(MemoryFiles(MEMINFO | joined(*(cpu(n, *place) for n, place in enumerate(machine)))))
    for one, first in zip(found.cpus, machine, strict=True):
        for other, second in zip(found.cpus, machine, strict=True):
            assert (one.core == other.core) == (first == second)
            assert (one.socket == other.socket) == (first[0] == second[0])
    assert sorted({c.core for c in found.cpus}) == list(range(len(set(machine))))


def test_this_machine_has_the_cpus_the_kernel_says_are_online() -> None:
    with RealFiles() as files:
        found = sysfs.topology(files)
        assert str(found.cpuset) == files.read(f"{CPUS}/online").decode().strip()
    assert sum(node.memory for node in found.nodes) > 0


def pages(folder: str, **counts: int) -> dict[str, str]:
    sizes = {"small": 2048, "large": 1048576}
    return {f"{folder}/hugepages-{sizes[name]}kB/nr_hugepages": f"{count}\n" for name, count in counts.items()}


def test_huge_pages_are_counted_on_their_numa_node(machine: Rooted) -> None:
    found = read(
        machine, TWO_SOCKETS, pages(f"{NODES}/node0/hugepages", small=512, large=0), pages(f"{NODES}/node1/hugepages")
    )
    assert [node.huge_pages for node in found.nodes] == [((2**21, 2**30),), ()]


def test_without_numa_they_are_the_machines(machine: Rooted) -> None:
    tree = pages("/sys/kernel/mm/hugepages", large=3)
    (node,) = read(machine, {f"{CPUS}/online": "0\n"}, cpu(0, 0, 0), tree).nodes
    assert node.huge_pages == ((2**30, 3 * 2**30),)
