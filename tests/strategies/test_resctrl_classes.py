"""Which control groups are made, with which values, and how they are given back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from koordlite.changes.resctrl import ResctrlGroupChange, ResctrlReturn, SchemataChange, TasksChange
from koordlite.model import keys
from koordlite.model.decision import Decision
from koordlite.model.slo.qos import ClassQOS, ResctrlQOS, ResourceQOS
from koordlite.model.slo.settings import SLO
from koordlite.resctrl.values import BandwidthCapability, CacheCapability, ControlGroup, Resctrl
from koordlite.strategies import resctrl

FULL = {"L3": {0: 0xFFF, 4: 0xFFF}, "MB": {0: 100, 4: 100}}
BE_SHARE = {"L3": {0: 0xF, 4: 0xF}, "MB": {0: 50, 4: 50}}
INTEL = BandwidthCapability(min_bandwidth=10, bandwidth_gran=10, maximum=100)
AMD = BandwidthCapability(min_bandwidth=0, bandwidth_gran=1, maximum=2048)
MADE = frozenset({"resctrl/BE"})


def hardware(
    bandwidth: BandwidthCapability | None = INTEL, caches: tuple[str, ...] = ("L3",), **groups: ControlGroup
) -> Resctrl:
    """Cache ids 0 and 4: gaps are normal."""
    root = {**{name: {0: 0xFFF, 4: 0xFFF} for name in caches}}
    if bandwidth:
        root["MB"] = dict.fromkeys((0, 4), bandwidth.maximum)
    return Resctrl(
        caches={name: CacheCapability(cbm_mask=0xFFF, min_cbm_bits=1) for name in caches},
        bandwidths={"MB": bandwidth} if bandwidth else {},
        groups={"": ControlGroup(root), **groups},
        threads={"kubepods/besteffort/podb/main": (7, 8), "kubepods/besteffort/podb/pause": (6,)},
    )


def asked(**be: Any) -> SLO:
    """Only class BE is enabled: 30 % of the cache, half the bandwidth."""
    config = ResctrlQOS(**{"enable": True, "cat_range_end_percent": 30, "mba_percent": 50, **be})
    return SLO(resource_qos=ResourceQOS(be_class=ClassQOS(resctrl_qos=config)))


def decide(
    build: Any,
    found: Resctrl,
    slo: SLO,
    ours: frozenset[str] = frozenset(),
    config: resctrl.Config = resctrl.Config(),  # noqa: B008
    **pod: Any,
) -> Decision:
    worker = build.pod("b", "BE", "BestEffort", **pod)
    places = {"b": build.place("kubepods/besteffort/podb")}
    seen = build.snapshot(resctrl=found, slo=slo, ours=ours, pods=(worker,), places=places)
    decisions = {d.subject: d for d in resctrl.decide(seen, config)}
    assert {"resctrl/LSR", "resctrl/LS", "resctrl/BE"} <= set(decisions)
    return decisions["resctrl/BE"]


def values(decision: Decision) -> Mapping[str, Mapping[int, int]]:
    return {c.resource: c.values for c in decision.changes if isinstance(c, SchemataChange)}


def moved(decision: Decision) -> list[tuple[str, tuple[int, ...]]]:
    return [(c.group, c.tids) for c in decision.changes if isinstance(c, TasksChange)]


def test_a_class_that_is_enabled_gets_group_values_and_threads(build: Any) -> None:
    decision = decide(build, hardware(), asked())
    assert (decision.verdict, decision.reason) == ("set", "ClassSchemata")
    assert decision.changes[0] == ResctrlGroupChange("BE")
    assert values(decision) == BE_SHARE
    assert moved(decision) == [("BE", (6, 7, 8))]
    assert decision.evidence == {
        "L3": "L3:0=f;4=f",
        "MB": "MB:0=50;4=50",
        "cache": "30 % of 12 ways is 4 ways: mask f",
        "bandwidth": "50 % of the bandwidth",
    }


def test_a_group_that_is_as_wanted_is_left_alone(build: Any) -> None:
    group = ControlGroup(BE_SHARE, frozenset({6, 7, 8}))
    decision = decide(build, hardware(BE=group), asked())
    assert (decision.verdict, decision.changes) == ("hold", ())


def test_only_what_differs_is_written(build: Any) -> None:
    group = ControlGroup({"L3": BE_SHARE["L3"], "MB": FULL["MB"]}, frozenset({7}))
    decision = decide(build, hardware(BE=group), asked())
    assert values(decision) == {"MB": BE_SHARE["MB"]}
    assert moved(decision) == [("BE", (6, 8))]


def test_a_group_without_schemata_is_not_written(build: Any) -> None:
    decision = decide(build, hardware(BE=ControlGroup({}, frozenset({6, 7, 8}))), asked())
    assert decision.changes == ()


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(hardware(AMD), {"L3": BE_SHARE["L3"], "MB": {0: 80, 4: 80}}, id="AMD counts in 1/8 GB/s"),
        pytest.param(hardware(None), {"L3": BE_SHARE["L3"]}, id="a machine that allocates no bandwidth"),
        pytest.param(hardware(INTEL, ()), {"MB": BE_SHARE["MB"]}, id="a machine that allocates no cache"),
        pytest.param(
            hardware(INTEL, ("L3CODE", "L3DATA")),
            {"L3CODE": BE_SHARE["L3"], "L3DATA": BE_SHARE["L3"], "MB": BE_SHARE["MB"]},
            id="code and data apart get the same mask",
        ),
        pytest.param(hardware(INTEL, ("L2", "L3")), BE_SHARE, id="L2 is nobody's business"),
    ],
)
def test_values_fit_the_hardware(build: Any, found: Resctrl, expected: Mapping[str, Mapping[int, int]]) -> None:
    assert values(decide(build, found, asked())) == expected


def test_an_impossible_range_is_refused_with_the_reason(build: Any) -> None:
    decision = decide(build, hardware(), asked(cat_range_start_percent=50))
    assert (decision.verdict, decision.reason, decision.changes) == ("refuse", "BadResctrlRange", ())
    assert "50-30" in str(decision.evidence["why"])


def test_no_bandwidth_percent_leaves_bandwidth_alone(build: Any) -> None:
    assert values(decide(build, hardware(), asked(mba_percent=None))) == {"L3": BE_SHARE["L3"]}


def test_without_resctrl_every_class_is_skipped_with_the_machines_reason(build: Any) -> None:
    decision = decide(build, Resctrl(absent="this CPU has no resctrl"), asked())
    assert (decision.verdict, decision.reason) == ("skip", "NoResctrl")
    assert decision.evidence == {"why": "this CPU has no resctrl"}


@pytest.mark.parametrize(
    "ours",
    [
        pytest.param(MADE, id="the group"),
        pytest.param(frozenset({"resctrl/BE/L3"}), id="a value in a group that was there"),
        pytest.param(frozenset({"resctrl/BE/tasks/7@100"}), id="a thread in it"),
    ],
)
def test_a_disabled_class_is_given_back_as_far_as_it_is_ours(build: Any, ours: frozenset[str]) -> None:
    group = ControlGroup(BE_SHARE, frozenset({8, 7}))
    decision = decide(build, hardware(BE=group), asked(enable=False), ours)
    assert (decision.verdict, decision.reason) == ("release", "ClassDisabled")
    assert decision.changes == (ResctrlReturn("BE"),)


def test_a_disabled_class_holds_when_the_group_is_not_ours(build: Any) -> None:
    found = hardware(BE=ControlGroup(BE_SHARE, frozenset({7})))
    decision = decide(build, found, asked(enable=False), frozenset({"resctrl/LS", "resctrl/koordlet-BE"}))
    assert (decision.verdict, decision.changes) == ("hold", ())


@pytest.mark.parametrize(
    "part",
    [
        pytest.param({"phase": "Succeeded"}, id="it has ended"),
        pytest.param({"annotations": {keys.POD_RESCTRL: '{"mb":{"schemata":{"percent":20}}}'}}, id="it has its own"),
    ],
)
def test_a_pods_threads_stay_where_they_are_when(build: Any, part: dict[str, Any]) -> None:
    assert moved(decide(build, hardware(), asked(), **part)) == []


@pytest.mark.parametrize(("beyond", "threads"), [(False, [("BE", (6, 7, 8))]), (True, [])])
def test_a_pod_that_asks_for_nothing_leaves_its_class_only_where_it_may(
    build: Any, beyond: bool, threads: list[Any]
) -> None:
    note = {"annotations": {keys.POD_RESCTRL: "{}"}}
    config = resctrl.Config(pods_beyond_class=beyond)
    assert moved(decide(build, hardware(), asked(), config=config, **note)) == threads
