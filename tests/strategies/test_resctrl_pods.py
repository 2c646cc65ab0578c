"""Pods with a part of their own, host applications, and machines that have no room or no resctrl."""

from __future__ import annotations

import json
from typing import Any

import pytest

from koordlite.changes.resctrl import ResctrlGroupChange, ResctrlMountChange, ResctrlReturn, SchemataChange, TasksChange
from koordlite.model import keys
from koordlite.model.decision import Decision
from koordlite.model.pod.qos import QoSClass
from koordlite.model.slo.qos import ClassQOS, ResctrlQOS, ResourceQOS
from koordlite.model.slo.settings import SLO, HostApplication
from koordlite.report.sentence import sentence
from koordlite.resctrl.values import BandwidthCapability, CacheCapability, ControlGroup, MonitorCapability, Resctrl
from koordlite.strategies import resctrl

GROUP = "koordlet-p"
HOME = "kubepods/burstable/podp"
THREADS = {f"{HOME}/main": (7, 8), f"{HOME}/pause": (6,)}
EVERYTHING = {"L3": {0: 0xFFF, 4: 0xFFF}, "MB": {0: 100, 4: 100}}


def machine(*names: str, closids: int = 8, **groups: ControlGroup) -> Resctrl:
    """Twelve ways in caches 0 and 4; groups called `names` hold everything and have no threads."""
    others = {name: ControlGroup(EVERYTHING, frozenset()) for name in names}
    return Resctrl(
        caches={"L3": CacheCapability(cbm_mask=0xFFF, min_cbm_bits=1, num_closids=16)},
        bandwidths={"MB": BandwidthCapability(10, 10, 100, num_closids=closids)},
        groups={"": ControlGroup(EVERYTHING), **others, **groups},
        threads=THREADS,
        monitor=MonitorCapability(32, ("llc_occupancy",)),
    )


def wish(cache: Any = None, percent: int = 0, caches: Any = (), percents: Any = ()) -> str:
    """The annotation; `caches` and `percents` by cache id."""
    return json.dumps(
        {
            "llc": {
                "schemata": {"range": list(cache or ())},
                "schemataPerCache": [{"cacheID": cache_id, "range": ends} for cache_id, ends in dict(caches).items()],
            },
            "mb": {
                "schemata": {"percent": percent},
                "schemataPerCache": [
                    {"cacheID": cache_id, "percent": part} for cache_id, part in dict(percents).items()
                ],
            },
        }
    )


def decide(build: Any, found: Resctrl, text: str | None, **given: Any) -> dict[str, Decision]:
    """Decisions by subject for one LS pod with this annotation; `config` are fields of the section."""
    notes = {} if text is None else {keys.POD_RESCTRL: text}
    pod = build.pod("p", "LS", annotations=notes, **given.pop("pod", {}))
    config = resctrl.Config(**given.pop("config", {}))
    picture = {"pods": (pod,), "places": {"p": build.place(HOME)}, "resctrl": found, **given}
    return {d.subject: d for d in resctrl.decide(build.snapshot(**picture), config)}


def of_pod(build: Any, found: Resctrl, text: str | None, **given: Any) -> Decision:
    return decide(build, found, text, **given)["pod/ns/p"]


def written(decision: Decision) -> dict[str, dict[int, int]]:
    return {c.resource: dict(c.values) for c in decision.changes if isinstance(c, SchemataChange)}


def enabled(*names: str) -> SLO:
    on = ClassQOS(resctrl_qos=ResctrlQOS(enable=True))
    return SLO(resource_qos=ResourceQOS(**{f"{name.lower()}_class": on for name in names}))


def test_a_pod_that_asks_gets_its_group_values_and_threads(build: Any) -> None:
    decision = of_pod(build, machine(), wish(cache=(0, 30), percent=20))
    assert (decision.verdict, decision.reason) == ("set", "PodSchemata")
    assert decision.changes[0] == ResctrlGroupChange(GROUP)
    assert written(decision) == {"L3": {0: 0xF, 4: 0xF}, "MB": {0: 20, 4: 20}}
    assert decision.changes[-1] == TasksChange(GROUP, (6, 7, 8), (f"{HOME}/main", f"{HOME}/pause"))
    assert decision.evidence["cache"] == "30 % of 12 ways is 4 ways: mask f"


@pytest.mark.parametrize(
    ("text", "values"),
    [
        pytest.param(wish(caches={4: (50, 100)}), {"L3": {4: 0xFC0}}, id="one cache, the others as they are"),
        pytest.param(wish((0, 50), caches={4: (0, 25)}), {"L3": {0: 0x3F, 4: 0x7}}, id="one cache differs"),
        pytest.param(wish(percents={0: 35}), {"MB": {0: 40}}, id="bandwidth of one cache, in steps of ten"),
        pytest.param(wish(percent=30, percents={0: 100}), {"MB": {4: 30}}, id="no limit needs no write"),
    ],
)
def test_parts_of_single_caches(build: Any, text: str, values: dict[str, dict[int, int]]) -> None:
    assert written(of_pod(build, machine(), text)) == values


def test_a_cache_id_that_is_not_there_is_told_and_the_others_stand(build: Any) -> None:
    decision = of_pod(build, machine(), wish((0, 50), caches={9: (0, 25)}))
    assert written(decision) == {"L3": {0: 0x3F, 4: 0x3F}}
    assert decision.evidence["absent_caches"] == "9"


def test_a_pod_with_its_own_group_is_not_in_its_classs(build: Any) -> None:
    decisions = decide(build, machine("LS"), wish(percent=20), slo=enabled("LS"))
    assert not any(isinstance(c, TasksChange) for c in decisions["resctrl/LS"].changes)


def test_a_changed_wish_is_applied_to_the_group_there_is(build: Any) -> None:
    held = ControlGroup({"L3": {0: 0xF, 4: 0xF}, "MB": {0: 20, 4: 20}}, frozenset({6, 7, 8}))
    decision = of_pod(build, machine(**{GROUP: held}), wish((0, 50), percent=20))
    assert decision.changes == (SchemataChange(GROUP, "L3", {0: 0x3F, 4: 0x3F}),)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("[", id="no JSON"),
        pytest.param(wish((30, 30)), id="an empty range"),
        pytest.param(wish((0, 101)), id="a range beyond the cache"),
        pytest.param(wish(percent=101), id="too many percent"),
        pytest.param('{"llc":{"schemata":{"range":[1]}}}', id="half a range"),
        pytest.param('{"mb":{"schemata":{"percent":"20"}}}', id="text for a number"),
    ],
)
def test_a_wish_that_cannot_be_read_is_refused_and_the_class_holds(build: Any, text: str) -> None:
    decisions = decide(build, machine("LS"), text, slo=enabled("LS"))
    refused = decisions["pod/ns/p"]
    assert (refused.verdict, refused.reason, refused.changes) == ("refuse", "BadPodResctrl", ())
    assert any(isinstance(c, TasksChange) for c in decisions["resctrl/LS"].changes)


def test_a_wish_that_became_unreadable_leaves_the_group_as_it_is(build: Any) -> None:
    held = ControlGroup({"L3": {0: 0xF, 4: 0xF}}, frozenset({6, 7, 8}))
    found = decide(build, machine("LS", **{GROUP: held}), "[", slo=enabled("LS"), ours=frozenset({f"resctrl/{GROUP}"}))
    assert found["pod/ns/p"].reason == "BadPodResctrl"
    assert [c for d in found.values() for c in d.changes] == []


def test_a_pod_that_asks_for_nothing_stays_where_everything_is(build: Any) -> None:
    decision = of_pod(build, machine(), "{}")
    assert (decision.verdict, decision.reason, decision.changes) == ("hold", "PodAsksForNothing", ())


@pytest.mark.parametrize(
    ("text", "pod"),
    [
        pytest.param(None, {}, id="the annotation is gone"),
        pytest.param(wish(percent=20), {"phase": "Succeeded"}, id="the pod has ended"),
    ],
)
def test_a_group_of_ours_is_given_back_when(build: Any, text: str | None, pod: dict[str, str]) -> None:
    found = decide(build, machine(GROUP), text, pod=pod, ours=frozenset({f"resctrl/{GROUP}", "resctrl/koordlet-q/L3"}))
    assert found[f"resctrl/{GROUP}"].changes == (ResctrlReturn(GROUP),)
    assert found["resctrl/koordlet-q"].reason == "PodGroupEnded"


def test_a_pods_group_that_is_not_ours_stays(build: Any) -> None:
    found = decide(build, machine(GROUP), None)
    assert [d for d in found.values() if d.changes] == []


def test_pods_without_a_group_where_they_may_not_have_one(build: Any) -> None:
    found = decide(build, machine("LS"), wish(percent=20), slo=enabled("LS"), config={"pods": False})
    assert "pod/ns/p" not in found
    assert found["resctrl/LS"].changes == (TasksChange("LS", (6, 7, 8), (f"{HOME}/main", f"{HOME}/pause")),)


# ── room ──


def test_classes_come_first_and_who_gets_no_group_is_told_who_has_them(build: Any) -> None:
    found = decide(build, machine("theirs", closids=3), wish(percent=20), slo=enabled("LS"))
    assert found["resctrl/LS"].changes[0] == ResctrlGroupChange("LS")
    refused = found["pod/ns/p"]
    assert (refused.verdict, refused.reason, refused.changes) == ("refuse", "NoGroupLeft", ())
    assert refused.evidence == {"groups": 2, "held_by": "theirs"}
    assert found["resctrl/LS"].changes[-1] == TasksChange("LS", (6, 7, 8), (f"{HOME}/main", f"{HOME}/pause"))


def test_a_group_that_is_there_needs_no_room(build: Any) -> None:
    found = decide(build, machine("LS", closids=2), None, slo=enabled("LS", "BE"))
    assert found["resctrl/LS"].reason == "ClassSchemata"
    assert found["resctrl/BE"].reason == "NoGroupLeft"


def test_a_group_that_is_there_takes_no_other_room(build: Any) -> None:
    found = decide(build, machine("LSR", closids=3), None, slo=enabled("LSR", "LS"))
    assert ResctrlGroupChange("LS") in found["resctrl/LS"].changes


# ── hardware that divides something else ──


def l2_only(monitor: MonitorCapability | None, *names: str) -> Resctrl:
    held = ControlGroup({"L2": {0: 0xFF}}, frozenset())
    return Resctrl(
        caches={"L2": CacheCapability(0xFF, 1, num_closids=8)},
        groups={"": held, **dict.fromkeys(names, held)},
        threads={f"{HOME}/main": (7, 8), f"{HOME}/pause": (6,)},
        monitor=monitor,
    )


@pytest.mark.parametrize("subject", ["resctrl/LS", "pod/ns/p"])
def test_no_group_is_made_that_neither_divides_nor_measures(build: Any, subject: str) -> None:
    decision = decide(build, l2_only(None), wish(percent=20), slo=enabled("LS"))[subject]
    assert (decision.verdict, decision.reason, decision.changes) == ("skip", "NothingToDivide", ())
    assert decision.evidence == {"divided": "L2"}


def test_a_group_that_neither_divides_nor_measures_is_given_back(build: Any) -> None:
    ours = frozenset({"resctrl/LS"})
    decision = decide(build, l2_only(None, "LS"), None, slo=enabled("LS"), ours=ours)["resctrl/LS"]
    assert (decision.verdict, decision.changes) == ("release", (ResctrlReturn("LS"),))


def test_a_group_that_can_only_be_measured_is_made_and_says_so(build: Any) -> None:
    decision = decide(build, l2_only(MonitorCapability(8, ("llc_occupancy",))), None, slo=enabled("LS"))["resctrl/LS"]
    assert decision.changes[0] == ResctrlGroupChange("LS")
    assert sentence(decision) == "the class gets nothing of its own and is only measured"


# ── host applications ──


@pytest.mark.parametrize(
    ("qos", "moved"),
    [(QoSClass.LS, (20, 21)), (QoSClass.BE, ()), (QoSClass.SYSTEM, ())],
    ids=["in the class", "in another", "in none"],
)
def test_threads_of_host_applications_follow_their_class(build: Any, qos: QoSClass, moved: tuple[int, ...]) -> None:
    slo = enabled("LS")
    app = HostApplication(name="nginx", qos=qos)
    slo = SLO(resource_qos=slo.resource_qos, host_applications=(app,))
    found = machine("LS")
    threads = Resctrl("", found.caches, found.bandwidths, found.groups, {"host/nginx": (20, 21)})
    decisions = decide(build, threads, None, slo=slo, host_groups={"nginx": "host/nginx"})
    tids = [tid for c in decisions["resctrl/LS"].changes if isinstance(c, TasksChange) for tid in c.tids]
    assert tuple(tids) == moved


# ── absence ──


@pytest.mark.parametrize(
    ("config", "changes", "reasons"),
    [
        pytest.param({}, 1, {"ResctrlMounted", "NoResctrl"}, id="it is mounted"),
        pytest.param({"mount": "never"}, 0, {"NoResctrl"}, id="it may not be mounted"),
        pytest.param({"mount": "never", "require": "required"}, 0, {"ResctrlRequired", "NoResctrl"}, id="required"),
    ],
)
def test_where_resctrl_is_not_mounted(build: Any, config: Any, changes: int, reasons: set[str]) -> None:
    absent = Resctrl(absent="not mounted", mountable=True)
    found = decide(build, absent, None, slo=enabled("LS"), config=config)
    assert [c for d in found.values() for c in d.changes] == [ResctrlMountChange()] * changes
    assert {d.reason for d in found.values()} == reasons


def test_a_pod_that_asks_where_there_is_none_hears_of_it(build: Any) -> None:
    found = decide(build, Resctrl(absent="this CPU has none"), wish(percent=20))
    asking = [d for subject, d in found.items() if subject.startswith("pod/")]
    assert [(d.verdict, d.reason, d.evidence) for d in asking] == [("skip", "NoResctrl", {"why": "this CPU has none"})]


def test_nothing_is_mounted_while_nobody_asks(build: Any) -> None:
    found = decide(build, Resctrl(absent="not mounted", mountable=True), None)
    assert {d.reason for d in found.values()} == {"NoResctrl"}


def test_switched_off_gives_everything_of_ours_back(build: Any) -> None:
    ours = frozenset({"resctrl/LS", f"resctrl/{GROUP}", "kubepods/cpu.quota"})
    slo, config = enabled("LS"), {"require": "off"}
    found = decide(build, machine("LS", GROUP), wish(percent=20), slo=slo, config=config, ours=ours)
    assert {c for d in found.values() for c in d.changes} == {ResctrlReturn("LS"), ResctrlReturn(GROUP)}
    assert found["resctrl/BE"].verdict == "hold"


# ── monitoring groups ──


MONITOR = "LS/mon_groups/koordlet-p"


def test_a_pod_of_a_class_is_monitored_once_its_threads_are_in_the_class(build: Any) -> None:
    found = machine(LS=ControlGroup(EVERYTHING, frozenset({6, 7})))
    decision = decide(build, found, None, slo=enabled("LS"), config={"monitor_pods": True})[f"resctrl/{MONITOR}"]
    assert decision.changes == (
        ResctrlGroupChange(MONITOR),
        TasksChange(MONITOR, (6, 7), (f"{HOME}/main", f"{HOME}/pause")),
    )


def test_monitoring_ends_with_the_option(build: Any) -> None:
    found = decide(build, machine("LS"), None, slo=enabled("LS"), ours=frozenset({f"resctrl/{MONITOR}"}))
    assert found[f"resctrl/{MONITOR}"].changes == (ResctrlReturn(MONITOR),)


def test_pods_without_an_id_to_monitor_them_are_told_once(build: Any) -> None:
    found = machine("LS")
    few = Resctrl("", found.caches, found.bandwidths, found.groups, monitor=MonitorCapability(2, ()))
    decisions = decide(build, few, None, slo=enabled("LS"), config={"monitor_pods": True})
    assert decisions["resctrl/monitoring"].evidence == {"pods": 1, "monitored": 0, "num_rmids": 2}
