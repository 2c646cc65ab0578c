"""What NUMA zones have, and what of it may be handed out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from koordlite.formulas.topology import zones
from koordlite.model.cpuset import CPUSet
from koordlite.model.quantity import Quantity
from koordlite.model.topology import NUMANode

GIB = 2**30
PAGES = ((2**21, 4 * GIB), (GIB, 8 * GIB), (2**16, GIB))


def of(**amounts: str) -> dict[str, Quantity]:
    return {name: Quantity.parse(text) for name, text in amounts.items()}


def texts(found: dict[str, Quantity]) -> dict[str, str]:
    return {name: str(amount) for name, amount in found.items()}


@pytest.mark.parametrize(
    ("node", "huge_pages", "has"),
    [
        pytest.param(NUMANode(0, CPUSet.parse("0-3"), 16 * GIB), True, ("4", "0", "0", "16Gi"), id="no huge pages"),
        pytest.param(NUMANode(0, CPUSet([0]), 16 * GIB, (), PAGES), True, ("1", "8Gi", "4Gi", "4Gi"), id="less memory"),
        pytest.param(NUMANode(0, CPUSet([0]), 16 * GIB, (), PAGES), False, ("1", "0", "0", "16Gi"), id="not counted"),
        pytest.param(NUMANode(2, CPUSet(), 64 * GIB), True, ("0", "0", "0", "64Gi"), id="memory without CPUs"),
        pytest.param(NUMANode(0, CPUSet([0]), GIB, (), PAGES), True, ("1", "8Gi", "4Gi", "0"), id="never below 0"),
    ],
)
def test_capacity(node: NUMANode, huge_pages: bool, has: tuple[str, ...]) -> None:
    names = ("cpu", "hugepages-1Gi", "hugepages-2Mi", "memory")
    assert texts(zones.capacity(node, huge_pages=huge_pages)) == dict(zip(names, has, strict=True))


@pytest.mark.parametrize(
    ("having", "reserved", "left"),
    [
        pytest.param([of(cpu="4"), of(cpu="4")], of(cpu="3"), ["2500m", "2500m"], id="evenly"),
        pytest.param([of(cpu="4"), of(cpu="0")], of(cpu="3"), ["1", "0"], id="a zone without CPUs bears nothing"),
        pytest.param([of(cpu="1")], of(cpu="4"), ["0"], id="never below 0"),
        pytest.param([of(cpu="1")], of(cpu="-4"), ["1"], id="a negative amount takes nothing"),
        pytest.param([of(cpu="1")], of(memory="1Gi"), ["1"], id="other resources are not touched"),
        pytest.param([of(cpu="1")], {}, ["1"], id="nothing reserved"),
    ],
)
def test_allocatable(having: list[dict[str, Quantity]], reserved: dict[str, Quantity], left: list[str]) -> None:
    assert [str(zone["cpu"]) for zone in zones.allocatable(having, reserved)] == left


@given(some.lists(some.integers(0, 256), min_size=1, max_size=12), some.integers(0, 64_000))
def test_what_is_reserved_is_taken_and_at_most_a_thousandth_more_for_each_zone(cpus: list[int], milli: int) -> None:
    having = [{"cpu": Quantity.of(count)} for count in cpus]
    left = zones.allocatable(having, {"cpu": Quantity.of_milli(milli)})
    assert all(0 <= now["cpu"].nano <= was["cpu"].nano for now, was in zip(left, having, strict=True))
    taken = sum(cpus) * 1000 - sum(zone["cpu"].milli for zone in left)
    bearing = [count for count in cpus if count]
    each = -(-milli // len(bearing)) if bearing else 0
    assert taken == sum(min(count * 1000, each) for count in bearing)
