"""What NUMA zones have, and what of it may be handed out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from koordlite.formulas.topology import zones
from koordlite.model.quantity import Quantity


def of(**amounts: str) -> dict[str, Quantity]:
    return {name: Quantity.parse(text) for name, text in amounts.items()}


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
