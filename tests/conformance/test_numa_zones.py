"""What NUMA nodes still have: taken, taken from several, and given back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlite.model.quantity import Quantity
from tests.conformance import numa_zones
from tests.conformance.numa_zones import Released

Zones = dict[int, dict[str, Quantity]]


def amounts(**written: str) -> dict[str, Quantity]:
    return {name.replace("_", "/"): Quantity.parse(text) for name, text in written.items()}


def zones(*each: dict[str, Quantity]) -> Zones:
    return dict(enumerate(each))


@pytest.mark.parametrize(
    ("guaranteed", "left"),
    [
        pytest.param(True, amounts(cpu="2", memory="3Gi", x_gpu="1"), id="a Guaranteed pod takes all"),
        pytest.param(False, amounts(cpu="4", memory="4Gi", x_gpu="1"), id="others take devices only"),
    ],
)
def test_what_a_container_takes(guaranteed: bool, left: dict[str, Quantity]) -> None:
    before = zones(amounts(cpu="4", memory="4Gi", x_gpu="2"))
    asked = amounts(cpu="2", memory="1Gi", x_gpu="1")
    assert numa_zones.take(before, 0, asked, guaranteed=guaranteed) == {0: left}
    assert numa_zones.take(before, 7, asked, guaranteed=guaranteed) == before, "there is no such NUMA node"


cpus = st.integers(0, 20)


@given(st.lists(cpus, min_size=1, max_size=5), cpus)
def test_several_nodes_give_all_they_have_before_the_next_is_asked(free: list[int], asked: int) -> None:
    before: Zones = {n: {"cpu": Quantity.of(count)} for n, count in enumerate(free)}
    after = numa_zones.take_from_several(before, range(len(free)), {"cpu": Quantity.of(asked)})
    left = [after[n]["cpu"].value for n in range(len(free))]
    assert sum(left) == max(0, sum(free) - asked)
    touched = [n for n in range(len(free)) if left[n] < free[n]]
    assert all(left[n] == 0 for n in touched[:-1])


@pytest.mark.parametrize(
    ("asked", "guaranteed", "own"),
    [
        pytest.param(amounts(cpu="2", memory="1Gi"), True, {"cpu", "memory"}, id="whole CPUs and memory"),
        pytest.param(amounts(cpu="1500m"), True, set(), id="a part of a CPU is shared"),
        pytest.param(amounts(cpu="2"), False, set(), id="only of Guaranteed pods"),
        pytest.param(amounts(x_gpu="1", y_nic="1"), False, {"x/gpu"}, id="devices that zones list"),
        pytest.param({"ephemeral-storage": Quantity.parse("1Gi")}, True, set(), id="storage is nobody's own"),
    ],
)
def test_what_is_a_containers_own(asked: dict[str, Quantity], guaranteed: bool, own: set[str]) -> None:
    assert numa_zones.exclusive(asked, guaranteed=guaranteed, listed={"x/gpu"}).keys() == own


def test_what_evicted_containers_give_back() -> None:
    available, totals = zones(amounts(cpu="1"), amounts(cpu="1")), zones(amounts(cpu="8"), amounts(cpu="8"))
    victims = [Released(amounts(cpu="2"), 1), Released(amounts(cpu="3"), 1), Released(amounts(cpu="3"), None)]
    assert numa_zones.after_eviction(available, totals, victims) == zones(amounts(cpu="1"), amounts(cpu="6"))
    with pytest.raises(ValueError, match="exceeds NUMA allocatable"):
        numa_zones.after_eviction(available, totals, [Released(amounts(cpu="9"), 0)])
    with pytest.raises(ValueError, match="no resources to add"):
        numa_zones.after_eviction(available, totals, [Released({}, 0)])


def test_resources_that_no_node_lists_need_no_alignment() -> None:
    listed = zones(amounts(cpu="1"), amounts(x_gpu="1"))
    assert numa_zones.only_elsewhere(listed, ["y/nic", "ephemeral-storage"])
    assert not numa_zones.only_elsewhere(listed, ["y/nic", "x/gpu"])
