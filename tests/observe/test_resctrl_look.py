"""Which threads and counters are looked at, and when."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest
from emulated import Emulated

from koordlite.observe import Observer
from koordlite.resctrl.values import Resctrl

ROOT = "/sys/fs/resctrl"
Look = Callable[[], Resctrl]


@pytest.fixture
def pair(observe_shape: Callable[[str], tuple[Emulated, Observer]]) -> tuple[Emulated, Look]:
    """The Intel machine, and a look one second later."""
    node, observer = observe_shape("intel-2s-ht")

    def look() -> Resctrl:
        node.sandbox.advance(1.0)
        return observer.observe().resctrl

    return node, look


def test_a_container_that_starts_is_looked_at_within_a_tick_and_alone(pair: tuple[Emulated, Look]) -> None:
    node, look = pair
    assert len(look().threads) > 2
    assert look().threads == {}
    node.pod("late", "BE", "100m")
    seen = look()
    assert seen.threads
    assert all("uid-late" in group.replace("_", "-") for group in seen.threads)


def test_a_changed_wish_has_all_threads_looked_at(pair: tuple[Emulated, Look]) -> None:
    node, look = pair
    everyone = set(look().threads)
    node.slo(resctrl=False)
    node.slo()  # Back again: what matters is what holds at the look.
    assert look().threads == {}
    node.raw_slo({"resource-qos-config": {"clusterStrategy": {"beClass": {"resctrlQOS": {"enable": True}}}}})
    looks = [set(look().threads) for _ in range(2)]
    assert everyone in looks


def test_a_root_group_that_cannot_be_read_is_an_absence_with_the_kernels_words(pair: tuple[Emulated, Look]) -> None:
    node, look = pair
    look()
    node.sandbox.fail(f"{ROOT}/schemata", errno.EIO)
    assert "Input/output error" in look().absent
    assert look().absent == ""


def test_another_group_that_cannot_be_read_has_no_values_and_the_rest_stands(pair: tuple[Emulated, Look]) -> None:
    node, look = pair
    node.sandbox.files.mkdir(f"{ROOT}/theirs")
    node.sandbox.fail(f"{ROOT}/theirs/schemata", errno.EIO)
    groups = look().groups
    assert groups["theirs"].schemata == {}
    assert "cannot be read" in groups["theirs"].unknown[0]
    assert groups[""].schemata["L3"]


@pytest.mark.parametrize(("period", "measured"), [(0.0, [False] * 4), (2.0, [True] * 4)], ids=["never", "every 2 s"])
def test_counters_stay_in_the_picture_between_two_looks(
    observe_shape: Callable[[str], tuple[Emulated, Observer]], period: float, measured: list[bool]
) -> None:
    node, _ = observe_shape("intel-2s-ht")
    observer = Observer(node.host(), node.cluster, tasks_seconds=5.0, monitor_seconds=period)
    node.sandbox.files.mkdir(f"{ROOT}/BE")
    found = []
    for _ in range(4):
        node.sandbox.advance(1.0)
        found.append("BE" in observer.observe().resctrl.use)
    assert found == measured


def test_rates_come_from_two_looks(observe_shape: Callable[[str], tuple[Emulated, Observer]]) -> None:
    node, _ = observe_shape("intel-2s-ht")
    observer = Observer(node.host(), node.cluster, tasks_seconds=5.0, monitor_seconds=2.0)
    node.sandbox.files.mkdir(f"{ROOT}/BE")
    uses = []
    for _ in range(4):
        node.sandbox.advance(1.0)
        uses.append(observer.observe().resctrl.use["BE"][0])
    assert [use.occupancy_bytes is not None for use in uses] == [True] * 4
    assert [use.total_bytes_per_second for use in uses] == [None, None, 0.0, 0.0]
