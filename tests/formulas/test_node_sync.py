"""When a node's resources are written, and in which form."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlite.formulas.allocatable import node_sync
from koordlite.model import keys
from koordlite.model.quantity import Quantity
from koordlite.model.wire.objects import Zone, ZoneResource

CPU, MEMORY = keys.BATCH_CPU, keys.BATCH_MEMORY


@pytest.mark.parametrize(
    ("old", "new", "since", "reason"),
    [
        pytest.param(1000, 1100, 10, "", id="exactly the threshold is no reason"),
        pytest.param(1000, 1101, 10, "more than 0.1", id="above it is"),
        pytest.param(1000, 899, 10, "more than 0.1", id="also downwards"),
        pytest.param(0, 1, 10, "more than 0.1", id="any change from zero"),
        pytest.param(None, None, 10, "", id="absent stays absent"),
        pytest.param(None, 0, 10, "appears", id="a key that appears"),
        pytest.param(0, None, 10, "goes away", id="a key that goes away"),
        pytest.param(1000, 1000, 300, "", id="exactly the interval is no reason"),
        pytest.param(1000, 1000, 301, "301 s ago", id="a longer time is one"),
        pytest.param(1000, 1000, None, "not written yet", id="the first time"),
    ],
)
def test_why_a_resource_is_written(old: int | None, new: int | None, since: float | None, reason: str) -> None:
    found = node_sync.must_sync(
        old={"r": old}, new={"r": new}, threshold=0.1, since_last_seconds=since, update_seconds=300
    )
    assert reason in found
    assert bool(reason) == bool(found)


def test_one_that_differs_takes_the_others_along() -> None:
    found = node_sync.must_sync(
        old={"a": 100, "b": 1}, new={"a": 100, "b": 5}, threshold=0.1, since_last_seconds=1, update_seconds=300
    )
    assert found.startswith("b 5 differs from 1")


# ── zones ──


def part(name: str, amount: str, *others: str) -> ZoneResource:
    allocatable, available = others or (amount, amount)
    return ZoneResource(name=name, capacity=amount, allocatable=allocatable, available=available)


def zone(*resources: ZoneResource) -> Zone:
    return Zone(name="node-0", type="Node", resources=(part("cpu", "8"), *resources))


def changes(held: Zone, wanted: dict[str, str], is_time: bool = False) -> dict[str, ZoneResource | None]:
    parsed = {"node-0": {name: Quantity.parse(text) for name, text in wanted.items()}} if wanted else {}
    found = node_sync.zone_changes(zones=[held], target=parsed, threshold=0.1, is_time=is_time)
    assert all(zone == "node-0" for zone, _ in found)
    return {resource: value for (_, resource), value in found.items()}


@pytest.mark.parametrize(
    ("held", "wanted", "written"),
    [
        pytest.param([], {CPU: "4k"}, {CPU: part(CPU, "4k")}, id="a zone without any gets it"),
        pytest.param([part(CPU, "4000")], {CPU: "4k"}, {}, id="the same amount in other words is the same"),
        pytest.param([part(CPU, "4000")], {CPU: "4400"}, {}, id="up to the threshold it waits"),
        pytest.param([part(CPU, "4000")], {CPU: "4401"}, {CPU: part(CPU, "4401")}, id="above it is written"),
        pytest.param(
            [part(CPU, "4000"), part(MEMORY, "10G")],
            {CPU: "4100", MEMORY: "5G"},
            {MEMORY: part(MEMORY, "5G")},
            id="each resource by itself",
        ),
        pytest.param(
            [part(CPU, "4000", "2000", "4100")],
            {CPU: "4100"},
            {CPU: part(CPU, "4000", "4100", "4100")},
            id="each amount too",
        ),
        pytest.param([part(CPU, "4000")], {}, {CPU: None}, id="what is offered no more goes"),
        pytest.param([part(CPU, "many")], {CPU: "4000"}, {CPU: part(CPU, "4k")}, id="what nobody can read is replaced"),
    ],
)
def test_what_is_written_into_a_zone(
    held: list[ZoneResource], wanted: dict[str, str], written: dict[str, ZoneResource | None]
) -> None:
    assert changes(zone(*held), wanted) == written


def test_after_a_time_small_differences_are_written_too() -> None:
    assert changes(zone(part(CPU, "4000")), {CPU: "4001"}, is_time=True) == {CPU: part(CPU, "4001")}
    assert changes(zone(part(CPU, "4000")), {CPU: "4000"}, is_time=True) == {}


AMOUNTS = st.integers(0, 10**12)


@given(held=AMOUNTS, wanted=AMOUNTS)
def test_a_second_look_finds_nothing_to_write(held: int, wanted: int) -> None:
    first = changes(zone(part(CPU, str(held))), {CPU: str(wanted)})
    after = first.get(CPU, part(CPU, str(held)))
    assert after is not None
    assert changes(zone(after), {CPU: str(wanted)}) == {}
