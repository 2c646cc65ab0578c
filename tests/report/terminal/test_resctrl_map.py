"""The picture of the ways, what would be programmed, and use as metrics."""

from __future__ import annotations

import dataclasses
import json

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.registry import Collector

from koordlite.changes.resctrl import ResctrlGroupChange, ResctrlMountChange, ResctrlReturn, SchemataChange, TasksChange
from koordlite.model.decision import Decision
from koordlite.report.explain import resctrl_plan
from koordlite.report.metrics.node import cache_use
from koordlite.report.node_figures import OwnedUse
from koordlite.report.terminal import resctrl_map
from koordlite.resctrl.values import (
    BandwidthCapability,
    CacheCapability,
    CacheUse,
    ControlGroup,
    MonitorCapability,
    Resctrl,
)


def machine(ways: int = 12, shareable: int = 0, absent: str = "") -> Resctrl:
    """Two caches, divided alike for LS, differently for BE."""
    full = (1 << ways) - 1
    return Resctrl(
        absent=absent,
        caches={"L3": CacheCapability(full, 1, shareable, num_closids=16)},
        bandwidths={"MB": BandwidthCapability(10, 10, 100, num_closids=8, throttle_mode="max")},
        groups={
            "": ControlGroup({"L3": {0: full, 1: full}, "MB": {0: 100, 1: 100}}, frozenset({1})),
            "BE": ControlGroup({"L3": {0: 0xF, 1: 0x3}, "MB": {0: 50, 1: 50}}, frozenset({7, 8}), "exclusive"),
            "LS": ControlGroup({"L3": {0: 0xFC, 1: 0xFC}, "MB": {0: 100, 1: 100}}, None),
        },
        monitor=MonitorCapability(32, ("llc_occupancy",)),
    )


def cells(text: str, head: str) -> list[str]:
    (row,) = [line for line in text.splitlines() if line.startswith(head)]
    return row[14:].split()


def test_a_row_for_each_cache_a_column_for_each_way_and_overlaps_together() -> None:
    text = resctrl_map.text(machine())
    assert cells(text, "L3 way") == [str(way) for way in range(11, -1, -1)]
    assert cells(text, "cache 0") == [*"····", *"BBBB", "AB", "AB", "A", "A"]
    assert cells(text, "cache 1") == [*"····", *"BBBBBB", "A", "A"]


def test_caches_that_are_divided_alike_share_a_row() -> None:
    same = machine()
    text = resctrl_map.text(Resctrl("", same.caches, same.bandwidths, {"": same.groups[""], "LS": same.groups["LS"]}))
    assert cells(text, "caches 0-1") == [*"····", *"AAAAAA", *"··"]


def test_ways_of_io_are_marked() -> None:
    assert cells(resctrl_map.text(machine(shareable=0xC00)), "  I/O too") == ["io", "io"]


@pytest.mark.parametrize(("ways", "width"), [(12, 80), (20, 80), (20, 160), (32, 80)])
def test_nothing_is_wider_than_the_terminal(ways: int, width: int) -> None:
    text = resctrl_map.text(machine(ways), width=width)
    assert max(map(len, text.splitlines())) <= width
    assert len(cells(text, "cache 0")) == ways


def test_where_letters_do_not_fit_it_says_how_many() -> None:
    assert cells(resctrl_map.text(machine(32), width=80), "cache 0")[-4:] == ["2", "2", "A", "A"]


def test_each_group_says_what_it_holds() -> None:
    text = resctrl_map.text(machine(), width=120, labels={"BE": "batch"})
    assert "A batch (exclusive)        2  L3 0-3 (33 %) in 0; L3 0-1 (16 %) in 1; MB 50 %" in text
    assert "MB no limit" in text


def test_cache_ids_with_gaps_are_all_named() -> None:
    full = ControlGroup({"L3": dict.fromkeys((0, 1, 8, 9), 0xFFF)})
    text = resctrl_map.text(dataclasses.replace(machine(), groups={"": full}))
    assert "caches 0-1,8-9  ·" in text


def test_absence_is_said() -> None:
    assert "no resctrl here; 32 ids for monitoring" in resctrl_map.text(machine(absent="no resctrl here"))


def test_the_same_as_values() -> None:
    found = json.loads(json.dumps(resctrl_map.document(machine())))
    assert found["groups"]["BE"] == {
        "schemata": {"L3": {"0": "f", "1": "3"}, "MB": {"0": 50, "1": 50}},
        "threads": 2,
        "mode": "exclusive",
    }
    assert found["caches"]["L3"]["ways"] == 12
    assert found["caches"]["L3"]["heldTwice"] == {"0": "c", "1": "0"}
    assert found["mostGroups"] == 7


PLAN = (
    Decision(
        "resctrl/LSR",
        "set",
        "ClassSchemata",
        {"L3": "L3:0=f;1=f", "cache": "30 % of 12 ways is 4 ways: mask f"},
        (ResctrlGroupChange("LSR"), SchemataChange("LSR", "L3", {0: 0xF, 1: 0xF}), TasksChange("LSR", (9, 10))),
    ),
    Decision("resctrl/BE", "release", "ClassDisabled", {}, (ResctrlReturn("BE"),)),
    Decision("resctrl/LS", "hold", "ClassSchemata", {"L3": "L3:0=fc"}),
    Decision("pod/ns/p", "refuse", "NoGroupLeft", {"groups": 7, "held_by": "others"}),
)


def test_a_plan_says_what_would_be_done_and_what_would_be_refused() -> None:
    text = resctrl_plan.text(PLAN)
    done, rest = text.split("as it is:")
    kept, refused = rest.split("refused or not possible:")
    assert "- make group LSR" in done
    assert "- write L3:0=f;1=f to LSR" in done
    assert "- move 2 threads into LSR" in done
    assert "- give BE back as it was found" in done
    assert "30 % of 12 ways is 4 ways: mask f" in done
    assert "resctrl/LS:" in kept
    assert "pod/ns/p: the hardware has 7 groups and all are taken: others" in refused


@pytest.mark.parametrize(
    ("theirs", "ours", "held", "told"),
    [
        pytest.param("exclusive", "", {"L3": {0: 0xFF0, 1: 0xF}}, "ways 0-3 of cache 1", id="exclusive"),
        pytest.param("exclusive", "", {"L3": {0: 0xF0, 1: 0xF00}}, "", id="exclusive elsewhere"),
        pytest.param("exclusive", "", {"L3DATA": {0: 1}}, "ways 0 of cache 0", id="its data counts as well"),
        pytest.param("exclusive", "", {"L2": {0: 0xF}}, "", id="another cache"),
        pytest.param("shareable", "", {"L3": {0: 0xF, 1: 0xF}}, "", id="it shares"),
        pytest.param("shareable", "exclusive", {"L3": {0: 0x18}}, "ways 3 of cache 0", id="ours is exclusive"),
    ],
)
def test_what_a_group_has_for_itself_is_refused(
    theirs: str, ours: str, held: dict[str, dict[int, int]], told: str
) -> None:
    groups = {"theirs": ControlGroup(held, mode=theirs)} | ({"LSR": ControlGroup({}, mode=ours)} if ours else {})
    found = list(resctrl_plan.overlaps(dataclasses.replace(machine(), groups=groups), PLAN))
    assert [told in sentence for sentence in found] == ([True] if told else [])
    assert all(sentence in " ".join(resctrl_plan.text(PLAN, found).split()) for sentence in found)


def test_the_machine_as_it_would_be() -> None:
    after = resctrl_plan.planned(machine(), PLAN)
    assert list(after.groups) == ["", "LS", "LSR"]
    assert after.groups["LSR"].schemata == {"L3": {0: 0xF, 1: 0xF}, "MB": {0: 100, 1: 100}}
    assert after.groups["LSR"].tasks == {9, 10}


def test_a_plan_as_values() -> None:
    mount = Decision("resctrl", "set", "ResctrlMounted", {"why": "absent"}, (ResctrlMountChange(),))
    (found,) = resctrl_plan.document([mount])
    assert (found["reason"], found["steps"]) == ("ResctrlMounted", ["mount resctrl"])


class Rows(Collector):
    """The families of these rows."""

    def __init__(self, *rows: OwnedUse) -> None:
        self.rows = rows

    def collect(self):  # type: ignore[no-untyped-def]
        return cache_use(self.rows)


def test_use_has_koordinators_names_and_labels_for_classes_and_ours_for_pods() -> None:
    registry = CollectorRegistry()
    registry.register(
        Rows(
            OwnedUse("BE", 0, CacheUse(4096, 2000.0, None)),
            OwnedUse("BE", 1, CacheUse(None, None, 500.0)),
            OwnedUse("LS", 0, CacheUse(64, 1.0, 2.0), "shop", "web"),
        )
    )
    value = registry.get_sample_value
    of = {"cache_id": "0", "qos": "BE"}
    assert value("koordlet_resctrl_llc_occupancy", of) == 4096
    assert value("koordlet_resctrl_memory_bandwidth", {**of, "mb_type": "total"}) == 2000
    assert value("koordlet_resctrl_memory_bandwidth", {**of, "mb_type": "local"}) is None
    assert value("koordlet_resctrl_memory_bandwidth", {**of, "cache_id": "1", "mb_type": "local"}) == 500
    assert value("koordlet_resctrl_llc_occupancy", {**of, "qos": "LS"}) is None
    pod = {"cache_id": "0", "pod_namespace": "shop", "pod_name": "web"}
    assert value("koordlite_resctrl_pod_llc_occupancy_bytes", pod) == 64
    assert value("koordlite_resctrl_pod_memory_bandwidth", {**pod, "mb_type": "local"}) == 2
