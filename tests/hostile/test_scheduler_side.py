"""What a node's token may write into its reports costs that node, and no other: extender, allocators and pages."""

from __future__ import annotations

import functools
import json
import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from koordlite.kube.watch.reflector import Reflector
from koordlite.kube.watch.store import Feed
from koordlite.model import keys
from koordlite.model.wire import crane, objects
from koordlite.scheduler import watches
from koordlite.scheduler.judgement import judge, load
from koordlite.scheduler.judgement.load import LoadAwareSchedulingArgs
from koordlite.scheduler.judgement.nodes import JudgeSettings
from koordlite.scheduler.numa_api.service import NumaService
from tests.scheduler import test_load_aware as loads
from tests.scheduler.builders import Scene, as_object, bound, pod, report
from tests.scheduler.test_load_aware import World, measured

ZONE = {"cpu": "8", "memory": "32Gi"}
DIGITS = "9" * 5000


def raw(document: Any) -> msgspec.Raw:
    return msgspec.Raw(json.dumps(document).encode())


def feed(scene: Scene) -> Reflector[objects.NRTObject]:
    """The reports as the extender watches them."""
    store: Feed[objects.NRTObject] = Feed(
        "noderesourcetopology", objects.NRTObject, put=scene.cluster.put_report, removed=scene.cluster.remove_report
    )
    return Reflector(watches.REPORTS, uniform=lambda low, high: low, store=store)


@pytest.mark.parametrize("name", [f"node-{DIGITS}", "node-", "node-²", f"node-{'0' * 5000}", "node-1\n", "node--1"])
def test_whatever_a_zone_is_called_the_watch_goes_on(name: str) -> None:
    scene = Scene()
    scene.node("bad", ZONE)
    scene.node("good", ZONE)
    hostile = report("bad", ZONE, version="7")
    hostile["zones"].append({**hostile["zones"][0], "name": name})
    hostile["zones"][0]["costs"] = [{"name": name, "value": 10}]
    reflector = feed(scene)
    reflector.on_list("7", [raw(hostile), raw(report("good", ZONE, version="7"))], 0.0)
    assert scene.filter(pod("p"), "bad", "good")[0][-1] == "good"


def test_one_object_that_nobody_can_take_costs_that_object(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    taken = scene.cluster.put_report

    def put(obj: objects.NRTObject) -> None:
        if obj.metadata.name == "bad":
            raise ZeroDivisionError("a fault of ours")
        taken(obj)

    monkeypatch.setattr(scene.cluster, "put_report", put)
    scene.node("good")
    reflector = feed(scene)
    reflector.on_list("7", [raw(report(name, ZONE, version="7")) for name in ("bad", "good")], 0.0)
    reflector.on_line(json.dumps({"type": "MODIFIED", "object": report("bad", ZONE, version="8")}).encode(), 1.0)
    assert scene.zones("good") == [8.0]
    (problem,) = reflector.view(1.0).problems
    assert (problem.object, "ZeroDivisionError" in problem.why) == ("noderesourcetopology/bad", True)


def test_one_node_that_cannot_be_judged_costs_that_node(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    for name in ("bad", "good"):
        scene.node(name, ZONE)
    refusal, points = judge.refusal, judge.points

    def ask(of: Any) -> Any:
        def judged(shape: Any, row: Any, settings: Any) -> Any:
            if row.name == "bad":
                raise OverflowError("int too large to convert to float")
            return of(shape, row, settings)

        return judged

    monkeypatch.setattr(judge, "refusal", ask(refusal))
    monkeypatch.setattr(judge, "points", ask(points))
    passed, refused = scene.filter(pod("p"), "bad", "good")
    assert passed == ["good"]
    assert "OverflowError" in refused["bad"]
    assert dict(scene.extender.prioritize(as_object(pod("p")), ["bad", "good"]))["bad"] == 0
    assert scene.cluster.faults.total == 2


@pytest.mark.parametrize("name", ["node", "node-", "nodes", "node²", f"node{DIGITS}", "", "a", "node64"])
def test_one_zone_name_of_cranes_costs_that_zone(name: str) -> None:
    scene = Scene()
    for node in ("bad", "good"):
        scene.node(node)
        zones = [{"name": "node0", "type": "Node", "resources": {"allocatable": {"cpu": "8"}}}]
        zones += [{"name": name, "type": "Node", "resources": {"allocatable": {"cpu": "64"}}}] * (node == "bad")
        made = {"metadata": {"name": node}, "craneManagerPolicy": {"cpuManagerPolicy": "Static"}, "zones": zones}
        scene.cluster.put_crane(msgspec.convert(made, crane.TopologyObject))
    assert scene.schedule(pod("p"), "bad", "good") in ("bad", "good")
    assert scene.filter(pod("q", cpu="4"), "bad", "good")[0] == ["bad", "good"]
    (_, _, notes) = scene.api.bound[0]
    assert [zone["name"] for zone in json.loads(notes["topology.crane.io/topology-result"])] == ["node0"]


def _topology(zones: int) -> str:
    return json.dumps({"detail": [{"id": n, "core": n, "socket": 0, "node": n} for n in range(zones)]})


@pytest.mark.parametrize("policy", ["restricted", "single-numa-node", "best-effort"])
@pytest.mark.parametrize("zones", [9, 16, 20, 64])
def test_a_report_of_many_numa_nodes_is_not_used_and_takes_no_time(policy: str, zones: int) -> None:
    scene = Scene(JudgeSettings(strategy="LeastNUMANodes", numa_distance=True))
    rows = [{"cpu": "1", "memory": "1Gi"}] * zones
    for name in ("koordinator", "kubelet"):
        notes = {keys.CPU_TOPOLOGY: _topology(zones)} if name == "koordinator" else {}
        scene.node(name, *rows, policy=policy, annotations=notes, totals={"cpu": "1", "memory": "1Gi"})
    asks = {keys.NUMA_TOPOLOGY_SPEC: '{"numaTopologyPolicy": "Restricted"}', keys.QOS_CLASS: "LSR"}
    began = time.process_time()
    for given in ({}, asks):
        asked = pod("p", cpu=str(zones // 2), memory=f"{zones // 2}Gi", annotations=given)
        asked["metadata"]["labels"] = {keys.QOS_CLASS: "LSR"}
        passed, refused = scene.filter(asked, "koordinator", "kubelet")
        scene.extender.prioritize(as_object(asked), passed)
    assert time.process_time() - began < 0.5
    row = scene.cluster.row("kubelet")
    assert row is not None
    assert "more NUMA nodes than the 8" in row.unusable
    assert set(refused.values()) <= {"invalid node topology data"}


def test_one_report_with_an_endless_amount_leaves_the_page_of_the_others() -> None:
    scene = Scene()
    scene.node("bad", {"cpu": "-1e999", "memory": "9e999"}, totals={"cpu": "1e999", "memory": "1e999"})
    scene.node("good", ZONE)
    service = NumaService(scene.cluster, wall=lambda: 0.0, not_ready=lambda: "")
    row = scene.cluster.row("bad")
    assert row is not None
    assert "beyond all that can be counted" in row.unusable
    for path in ("/numa", "/rest/scheduling/v1/numa/nodes", "/rest/scheduling/v1/numa/violations", "/numa/nodes/bad"):
        answer = service.answer(path, {}, "")
        assert answer.status == 200
    assert b"good" in service.answer("/numa", {}, "").body


def test_one_node_that_cannot_be_shown_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    from koordlite.scheduler.numa_api import view

    scene = Scene()
    for name in ("bad", "good"):
        scene.node(name, ZONE)
    of_row = view.of_row
    monkeypatch.setattr(view, "of_row", lambda row: of_row(row) if row.name == "good" else 1 // 0)
    service = NumaService(scene.cluster, wall=lambda: 0.0, not_ready=lambda: "")
    answer = service.answer("/rest/scheduling/v1/numa/nodes", {}, "")
    assert [node["name"] for node in json.loads(answer.body)["data"]] == ["good"]
    assert scene.cluster.faults.total == 1


def test_watches_go_on_and_pages_answer_while_a_node_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    scene.node("a", ZONE)
    judging, goes_on = threading.Event(), threading.Event()
    refusal = judge.refusal

    def slow(shape: Any, row: Any, settings: Any) -> str:
        judging.set()
        assert goes_on.wait(10)
        return refusal(shape, row, settings)

    monkeypatch.setattr(judge, "refusal", slow)
    asked = threading.Thread(target=scene.filter, args=(pod("p"), "a"))
    asked.start()
    try:
        assert judging.wait(10)
        free = scene.cluster.lock.acquire(timeout=5)
        assert free, "the lock is held while judging"
        scene.cluster.lock.release()
    finally:
        goes_on.set()
        asked.join(10)


@pytest.mark.parametrize(
    "factor",
    [pytest.param("17" + "0" * 306, id="308 digits"), pytest.param(DIGITS, id="5000 digits"), "-1", "1001", "1e3"],
)
def test_what_pods_say_of_their_load_costs_no_pod_its_answer(factor: str) -> None:
    world = World().load(LoadAwareSchedulingArgs(allow_customize_estimation=True))
    for number in range(100):
        notes = {keys.LOAD_FACTORS: f'{{"cpu":{factor},"memory":1}}'}
        made = bound(pod(f"e{number}", "100m", "1Mi", annotations=notes), "idle")
        del made["spec"]["containers"][0]["resources"]["limits"]
        world.loads.put_pod(as_object(made))
    # The annotation counts as not given: 4 + 100 × 85m + 1.7 of 64 CPUs.
    assert world.filter(pod("p"), "busy", "idle")[0] == ["idle"]
    assert world.loads.judge(as_object(pod("p"))).terms("idle")["cpu with the pod"] == "22 % of at most 65 %"


@pytest.mark.parametrize("use", ["-5", "-1e90", "1e90", "9E", "1e-90"])
def test_a_measurement_is_worth_at_most_a_whole_node_and_at_least_nothing(use: str) -> None:
    world = World().load()
    world.loads.put_node(loads.node("idle", allocatable={"cpu": use, "memory": use}))
    world.loads.put_metric(measured("busy", cpu=use, memory=use, system=use, pods={"x": (use, "koord-prod")}))
    judged = world.loads.judge(as_object(pod("p", priority=9500)))
    assert all(0 <= judged.scored(name, 0) <= 100 for name in ("busy", "idle"))
    assert "unknown" in world.filter(pod("p"), "busy", "idle", "unknown")[0]


@pytest.mark.parametrize("seconds", [int(DIGITS[:400]), -1], ids=["400-digits", "-1"])
def test_an_interval_nobody_measures_at_costs_no_measurement(seconds: int) -> None:
    world, metric = World().load(), measured("busy", cpu="60")
    assert metric.spec.metric_collect_policy is not None
    policy = msgspec.structs.replace(metric.spec.metric_collect_policy, report_interval_seconds=seconds)
    world.loads.put_metric(
        msgspec.structs.replace(metric, spec=msgspec.structs.replace(metric.spec, metric_collect_policy=policy))
    )
    assert world.filter(pod("p"), "busy", "idle")[0] == ["idle"]


@pytest.mark.parametrize(
    "text",
    [f'{{"usageThresholds":{{"cpu":{DIGITS}}}}}', '{"usageThresholds":{"cpu":-1}}', "[" * 100_000],
    ids=["5000-digits", "negative", "nested"],
)
def test_thresholds_that_nobody_can_mean_leave_those_of_the_cluster(text: str) -> None:
    world = World().load()
    world.loads.put_node(
        loads.node(
            "busy", allocatable={"cpu": "64"}, annotations={keys.USAGE_THRESHOLDS: text, keys.RAW_ALLOCATABLE: text}
        )
    )
    assert world.filter(pod("p"), "busy", "idle")[0] == ["idle"]
    assert any("usage-thresholds" in text for text in world.loads.document()["problems"])


def test_one_node_whose_load_cannot_be_judged_costs_that_node(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World().load()
    for name in ("refusal", "points", "terms"):

        def judged(pod: Any, at: Any, *given: Any, of: Callable[..., Any]) -> Any:
            if at.own.allocatable["cpu"] == 1000:
                raise OverflowError("cannot convert float infinity to integer")
            return of(pod, at, *given)

        monkeypatch.setattr(load, name, functools.partial(judged, of=getattr(load, name)))
    world.loads.put_node(loads.node("bad", allocatable={"cpu": "1"}))
    world.loads.put_metric(measured("bad"))
    world.node("bad")
    passed, refused = world.filter(pod("p"), "bad", "busy", "idle")
    assert (passed, "OverflowError" in refused["bad"]) == (["idle"], True)
    assert dict(world.extender.prioritize(as_object(pod("p")), ["bad", "idle"])) == {"bad": 0, "idle": 10}
    asked = world.loads.judge(as_object(pod("p")))
    assert "OverflowError" in str(asked.terms("bad"))
    assert world.cluster.faults.total >= 3


def test_a_fault_in_the_cluster_does_not_cost_the_load_its_object() -> None:
    taken: list[str] = []

    def fail(_value: str) -> None:
        raise ZeroDivisionError("a fault of ours")

    with pytest.raises(ZeroDivisionError):
        watches.both(fail, taken.append)("node")
    assert taken == ["node"]
