"""Which threads and counters are read, and when."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest
from emulated import Emulated

from koordlite.observe import Observer
from koordlite.resctrl.values import Resctrl

ROOT = "/sys/fs/resctrl"
Read = Callable[[], Resctrl]


@pytest.fixture
def pair(observe_shape: Callable[[str], tuple[Emulated, Observer]]) -> tuple[Emulated, Read]:
    """The Intel machine, and a reading one second later."""
    node, observer = observe_shape("intel-2s-ht")

    def read_once() -> Resctrl:
        node.sandbox.advance(1.0)
        return observer.observe().resctrl

    return node, read_once


def test_a_container_that_starts_is_read_within_a_tick_and_alone(pair: tuple[Emulated, Read]) -> None:
    node, read_once = pair
    assert len(read_once().threads) > 2
    assert read_once().threads == {}
    node.pod("late", "BE", "100m")
    seen = read_once()
    assert seen.threads
    assert all("uid-late" in group.replace("_", "-") for group in seen.threads)


def test_a_changed_request_has_all_threads_read(pair: tuple[Emulated, Read]) -> None:
    node, read_once = pair
    everyone = set(read_once().threads)
    node.slo(resctrl=False)
    node.slo()  # Back again: what matters is what holds when it is read.
    assert read_once().threads == {}
    node.raw_slo({"resource-qos-config": {"clusterStrategy": {"beClass": {"resctrlQOS": {"enable": True}}}}})
    readings = [set(read_once().threads) for _ in range(2)]
    assert everyone in readings


def test_a_root_group_that_cannot_be_read_is_an_absence_with_the_kernels_words(pair: tuple[Emulated, Read]) -> None:
    node, read_once = pair
    read_once()
    node.sandbox.fail(f"{ROOT}/schemata", errno.EIO)
    assert "Input/output error" in read_once().absent
    assert read_once().absent == ""


def test_another_group_that_cannot_be_read_has_no_values_and_the_rest_stands(pair: tuple[Emulated, Read]) -> None:
    node, read_once = pair
    node.sandbox.files.mkdir(f"{ROOT}/theirs")
    node.sandbox.fail(f"{ROOT}/theirs/schemata", errno.EIO)
    groups = read_once().groups
    assert groups["theirs"].schemata == {}
    assert "cannot be read" in groups["theirs"].unknown[0]
    assert groups[""].schemata["L3"]


@pytest.mark.parametrize(("period", "measured"), [(0.0, [False] * 4), (2.0, [True] * 4)], ids=["never", "every 2 s"])
def test_counters_stay_in_the_picture_between_two_readings(
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


def test_rates_come_from_two_readings(observe_shape: Callable[[str], tuple[Emulated, Observer]]) -> None:
    node, _ = observe_shape("intel-2s-ht")
    observer = Observer(node.host(), node.cluster, tasks_seconds=5.0, monitor_seconds=2.0)
    node.sandbox.files.mkdir(f"{ROOT}/BE")
    uses = []
    for _ in range(4):
        node.sandbox.advance(1.0)
        uses.append(observer.observe().resctrl.use["BE"][0])
    assert [use.occupancy_bytes is not None for use in uses] == [True] * 4
    assert [use.total_bytes_per_second for use in uses] == [None, None, 0.0, 0.0]
