"""Zones by what kubelet may give out and has given."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as some

from koordlite.formulas.topology import zones
from koordlite.model.cpuset import CPUSet
from koordlite.model.picture.kubelet import Devices, MemoryBlock, ResourceSet
from koordlite.model.topology import NUMANode

GIB = 2**30
NODES = (NUMANode(0, CPUSet(range(4)), 8 * GIB), NUMANode(2, CPUSet(range(4, 8)), 8 * GIB))
MAY = ResourceSet(
    CPUSet(range(1, 8)),
    (Devices("x.io/nic", ("n0", "n1"), (0,)), Devices("x.io/nic", ("n2",), (2,)), Devices("x.io/any", ("a",))),
    (MemoryBlock("memory", 7 * GIB, (0,)), MemoryBlock("memory", 6 * GIB, (2,))),
)


def found(*held: ResourceSet, may: ResourceSet = MAY) -> list[dict[str, tuple[str, str, str]]]:
    has = [zones.capacity(node) for node in NODES]
    amounts = zones.amounts(NODES, has, unmanaged=has, allocatable=may, allocations=held)
    return [
        {name: (str(part.capacity), str(part.allocatable), str(part.available)) for name, part in zone.items()}
        for zone in amounts
    ]


def test_a_reserved_cpu_is_capacity_only() -> None:
    first, second = found()
    assert (first["cpu"], second["cpu"]) == (("4", "3", "3"), ("4", "4", "4"))


def test_cpus_held_twice_are_taken_once() -> None:
    first, _ = found(ResourceSet(CPUSet([1, 2])), ResourceSet(CPUSet([2, 3])))
    assert first["cpu"] == ("4", "3", "0")


def test_memory_of_two_nodes_is_split_from_the_lowest() -> None:
    both = ResourceSet(memory=(MemoryBlock("memory", 9 * GIB, (0, 2)),))
    one = ResourceSet(memory=(MemoryBlock("memory", GIB, (0,)),))
    first, second = found(both, one)
    assert (first["memory"], second["memory"]) == (("8Gi", "7Gi", "0"), ("8Gi", "6Gi", "3Gi"))


def test_memory_beyond_what_there_is_leaves_nothing() -> None:
    first, second = found(ResourceSet(memory=(MemoryBlock("memory", 99 * GIB, (0, 2)),)))
    assert (first["memory"][2], second["memory"][2]) == ("0", "0")


def test_devices_are_counted_where_they_are() -> None:
    first, second = found(ResourceSet(devices=(Devices("x.io/nic", ("n1",), (0,)),)))
    assert (first["x.io/nic"], second["x.io/nic"]) == (("2", "2", "1"), ("1", "1", "1"))
    assert "x.io/any" not in first


def test_a_device_of_two_nodes_can_be_had_at_either_once() -> None:
    may = ResourceSet(devices=(Devices("x.io/gpu", ("g",), (0, 2)),))
    assert [zone["x.io/gpu"] for zone in found(may=may)] == [("1", "1", "1")] * 2
    assert [zone["x.io/gpu"][2] for zone in found(may, may=may)] == ["0", "0"]


def test_what_kubelet_does_not_manage_is_as_the_machine_has_it() -> None:
    first, _ = found(ResourceSet(CPUSet([1])), may=ResourceSet())
    assert (first["cpu"], first["memory"]) == (("4", "4", "4"), ("8Gi", "8Gi", "8Gi"))


def test_capacity_is_never_less_than_allocatable() -> None:
    first, _ = found(may=ResourceSet(memory=(MemoryBlock("memory", 9 * GIB, (0,)),)))
    assert first["memory"] == ("9Gi", "9Gi", "9Gi")


BLOCKS = some.builds(
    MemoryBlock,
    some.sampled_from(["memory", "hugepages-2Mi", "other"]),
    some.integers(0, 20 * GIB),
    some.lists(some.sampled_from([0, 2, 9]), max_size=3, unique=True).map(tuple),
)
DEVICES = some.builds(
    Devices,
    some.sampled_from(["x.io/nic", "y.io/gpu"]),
    some.lists(some.sampled_from(["n0", "n1", "n2", "z"]), max_size=3).map(tuple),
    some.lists(some.sampled_from([0, 2, 9]), max_size=2).map(tuple),
)
GIVEN = some.builds(
    ResourceSet,
    some.sets(some.integers(0, 12), max_size=6).map(CPUSet),
    some.lists(DEVICES, max_size=3).map(tuple),
    some.lists(BLOCKS, max_size=3).map(tuple),
)


@given(GIVEN, some.lists(GIVEN, max_size=4))
def test_available_is_never_more_than_allocatable_than_capacity(may: ResourceSet, held: list[ResourceSet]) -> None:
    has = [zones.capacity(node) for node in NODES]
    for zone in zones.amounts(NODES, has, unmanaged=has, allocatable=may, allocations=held):
        for part in zone.values():
            assert 0 <= part.available.nano <= part.allocatable.nano <= part.capacity.nano
