"""The rows of pods: what a pod uses and may use once the writes of the tick have landed, and what was decided last."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest
from reported import tick_built, tick_of

from koordlite.changes.cgroup import CgroupChange
from koordlite.changes.eviction import EvictPod
from koordlite.model.cpuset import CPUSet
from koordlite.model.decision import Decision
from koordlite.model.picture.groups import Cgroup, PodGroups
from koordlite.model.picture.usage import Pressure, Stall
from koordlite.model.pod.qos import KubeQoS, QoSClass
from koordlite.model.pod.values import Pod
from koordlite.model.snapshot import Snapshot
from koordlite.model.status import AppliedStep
from koordlite.report import pod_rows, pods
from koordlite.report.history import DecisionEvent
from koordlite.report.pod_rows import PodRow
from koordlite.report.tick import Tick

BE, CRUNCH = "kubepods/besteffort", "kubepods/besteffort/podb1"
MODES = {"cpuSuppress": "enforce", "batchResource": "observe"}


def event(second: float, decision: Decision) -> DecisionEvent:
    return DecisionEvent(second, 1000.0 + second, decision)


def row(made: Tick, name: str, *events: DecisionEvent) -> PodRow:
    return next(row for row in pods.of(made, events) if row.name == name)


def stalled(percent: float) -> Pressure:
    return Pressure(Stall(percent, 0.0, 0.0, 0), None)


def test_the_busiest_come_first_and_finished_ones_are_left_out(picture: Snapshot) -> None:
    ended = Pod(namespace="lab", name="ended", uid="e1", phase="Succeeded")
    waiting = Pod(namespace="lab", name="next", uid="n1", phase="Pending")
    seen = dataclasses.replace(picture, pods=(*picture.pods, ended, waiting))
    found = pods.of(tick_built(seen, [], modes=MODES))
    assert [(r.name, r.qos, r.cpu) for r in found] == [
        ("lab/crunch", "BE", 2400),
        ("shop/web", "LS", 1500),
        ("shop/cache", "LSR", 500),
        ("lab/next", "BE", None),
    ]
    assert (found[-1].decided, found[-1].cpus, found[-1].pressure) == ("Pending", "", None)
    assert pods.of(tick_of(time=0.0)) == ()


def test_limits_are_those_after_the_writes_of_the_tick(picture: Snapshot) -> None:
    quota = CgroupChange(f"{CRUNCH}/main", "cpu.quota", 150_000)
    narrow = CgroupChange(BE, "cpuset.cpus", CPUSet.parse("4-5"))
    asked = Decision("besteffort", "shrink", "X", {}, (narrow, quota), "cpuSuppress")
    before = row(tick_built(picture, [asked], modes=MODES), "lab/crunch")
    assert (before.cpus, before.cpu_limit) == ("4-7", None)
    steps = [AppliedStep(quota.place, "x"), AppliedStep(narrow.place, "x", ok=False, error="EBUSY")]
    half = row(tick_built(picture, [asked], modes=MODES, applied=steps), "lab/crunch")
    assert (half.cpus, half.cpu_limit) == ("4-7", 1500)
    steps = [AppliedStep(change.place, "x") for change in asked.changes]
    after = row(tick_built(picture, [asked], modes=MODES, applied=steps), "lab/crunch")
    assert (after.cpus, after.cpu_limit) == ("4-5", 1500)


@pytest.mark.parametrize(
    ("whole", "parts", "limit"),
    [
        pytest.param(-1, (-1, -1), None, id="no quota"),
        pytest.param(-1, (50_000, 100_000), 1500, id="the containers together"),
        pytest.param(-1, (50_000, -1), None, id="one container without a quota"),
        pytest.param(120_000, (50_000, 100_000), 1200, id="the pod's own, where it is less"),
    ],
)
def test_the_limit_is_the_tighter_of_pod_and_containers(
    picture: Snapshot, whole: int, parts: tuple[int, int], limit: int | None
) -> None:
    groups = {name: f"{CRUNCH}/{name}" for name in ("a", "b")}
    quotas = {CRUNCH: whole, **dict(zip(groups.values(), parts, strict=True))}
    seen = dataclasses.replace(
        picture,
        places={"b1": PodGroups(CRUNCH, groups)},
        cgroups={name: Cgroup(None, None, quota) for name, quota in quotas.items()},
    )
    assert row(tick_built(seen, [], modes=MODES), "lab/crunch").cpu_limit == limit


def test_pressure_is_what_the_pod_waits_for_most(picture: Snapshot) -> None:
    seen = dataclasses.replace(picture, pressure={CRUNCH: {"cpu": stalled(12.4), "io": stalled(31.0)}})
    found = row(tick_built(seen, [], modes=MODES), "lab/crunch")
    assert (found.pressure, found.waits_for) == (31.0, "io")


def test_what_was_decided_last_about_it_or_about_all_best_effort(picture: Snapshot) -> None:
    made = tick_built(picture, [], modes=MODES)
    own = Decision("pod/lab/crunch", "set", "Own", {}, (CgroupChange(CRUNCH, "cpu.shares", 2),), "batchResource")
    both = Decision("besteffort", "shrink", "Budget", {}, (), "cpuSuppress")
    assert row(made, "lab/crunch").decided == ""
    assert row(made, "lab/crunch", event(3, both), event(4, own)).decided == "would set, Own: own"
    assert row(made, "lab/crunch", event(4, own), event(5, both)).decided == "all BE: shrink, Budget: budget"
    assert row(made, "shop/web", event(5, both)).decided == "", "it does not give way"
    evict = Decision("evict", "evict", "Full", {}, (EvictPod("shop", "web", "w1", "full"),), "memoryEvict")
    assert row(made, "shop/web", event(6, evict)).decided_at == 1006


def test_a_decision_whose_news_is_forgotten_still_holds(picture: Snapshot) -> None:
    own = Decision("pod/shop/web", "hold", "Own", {}, (), "batchResource")
    found = row(tick_built(picture, [own], modes=MODES), "shop/web")
    assert (found.decided, found.decided_at) == ("hold, Own: own", None)


def test_rows_are_ordered_and_filtered_by_every_column() -> None:
    rows = (
        PodRow(name="b/x", qos="LS", cpu=100, memory=5),
        PodRow(name="a/y", qos="BE", cpu=100, memory=None, cpus="0-3", decided="would shrink"),
        PodRow(name="c/z", qos="BE", cpu=900, memory=9),
    )
    assert [r.name for r in pod_rows.ordered(rows, "cpu")] == ["c/z", "a/y", "b/x"]
    assert [r.name for r in pod_rows.ordered(rows, "cpu", backwards=True)] == ["a/y", "b/x", "c/z"]
    assert [r.name for r in pod_rows.ordered(rows, "name")] == ["a/y", "b/x", "c/z"]
    assert [r.name for r in pod_rows.ordered(rows, "memory")] == ["c/z", "b/x", "a/y"]
    for column in pod_rows.COLUMNS:
        assert len(pod_rows.ordered(rows, column.key)) == 3
    with pytest.raises(KeyError):
        pod_rows.ordered(rows, "colour")
    assert [r.name for r in pod_rows.matching(rows, "be SHRINK")] == ["a/y"]
    assert len(pod_rows.matching(rows, "")) == 3


def test_names_that_are_no_names_stay_on_one_line(picture: Snapshot) -> None:
    evil = Pod(namespace="x", name="a\x1b[2J\nb", uid="v", raw_qos=QoSClass.LS, kube_qos=KubeQoS.BURSTABLE)
    seen = dataclasses.replace(picture, pods=(evil,))
    (found,) = pods.of(tick_built(seen, [], modes=MODES))
    assert found.name == "x/a\\x1b[2J\\nb"
    assert msgspec.json.decode(msgspec.json.encode(found), type=PodRow) == found
