"""Pods are asked before they are evicted: each once, whatever dies, and never past what they and the policy say."""

from __future__ import annotations

import contextlib
import json
import pathlib
import tempfile
from collections.abc import Iterator
from typing import Any

import evictionasking
import pytest
import slices
from apiserver import ApiServer, Fault
from apiserver.clocks import ManualClock
from evictionasking import RESPONDER, Controller, Descheduler, listed
from hooked_files import Killed
from hypothesis import given, settings
from hypothesis import strategies as st
from migrationloop import Death, Mortal

from descheduler.cli import main
from descheduler.evictors import eviction_api
from descheduler.picture.pods import PodView
from descheduler.plan import Attempt, EvictionPlan
from descheduler.policy import reader
from descheduler.report import document, html, text
from descheduler.serve import events
from descheduler.serve.loop import CycleResult
from descheduler.snapshot.pack import Packer
from koordlite.kube.client import access
from koordlite.kube.client.access import ApiError
from koordlite.model.pod import pod_reader
from koordlite.model.wire import objects

PODS = "/api/v1/namespaces/default/pods"
MERGE = "application/merge-patch+json"
TAINT = {"key": "broken", "effect": "NoSchedule"}


def policy(mode: str = "on", *, fallback: bool = True, limits: str = "") -> str:
    asking = f'evictionRequests: {{mode: "{mode}", patience: 1h, fallback: {str(fallback).lower()}}}\n'
    return (
        limits + asking + "profiles: [{name: p, plugins: {deschedule: {enabled: [RemovePodsViolatingNodeTaints]}}}]\n"
    )


class Scene:
    """A server with a tainted node, its clock, and access to it."""

    def __init__(self, folder: pathlib.Path, *, served: bool = True) -> None:
        self.clock = ManualClock()
        self.server = ApiServer(seed=1, clock=self.clock)
        self.server.start()
        path = folder / "kubeconfig"
        path.write_text(self.server.kubeconfig(), encoding="utf-8")
        self.api = access.connect(str(path), None, user_agent="test")
        for name, taints in (("a", [TAINT]), ("b", [])):
            node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {"taints": taints}}
            self.api.request("POST", "/api/v1/nodes", body=node)
        if served:
            evictionasking.define(self.api)
        self.controller = Controller(self.api)

    def run_pod(self, name: str, *, asks: bool = True) -> None:
        notes = {"descheduler.koordlite.io/ask-first": "true"} if asks else {}
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "rs-1", "controller": True}
        meta = {"name": name, "namespace": "default", "annotations": notes, "ownerReferences": [owner]}
        spec = {"nodeName": "a", "containers": [{"name": "main", "image": "x"}], "terminationGracePeriodSeconds": 0}
        self.api.request("POST", PODS, body={"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
        self.api.request("PATCH", f"{PODS}/{name}/status", body={"status": {"phase": "Running"}}, content_type=MERGE)

    def descheduler(self, **how: Any) -> Descheduler:
        return Descheduler(self.api, policy(**how), lambda: self.clock.now().timestamp())

    def taint(self, *taints: dict[str, str]) -> None:
        self.api.request("PATCH", "/api/v1/nodes/a", body={"spec": {"taints": list(taints)}}, content_type=MERGE)

    def sent(self, verb: str, resource: str) -> int:
        return sum(
            one.verb == verb and one.resource == resource and one.status < 400 for one in list(self.server.requests)
        )


@pytest.fixture
def scene(tmp_path: pathlib.Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    yield made
    made.server.stop()


def test_a_pod_that_asks_for_it_is_asked_and_the_others_are_evicted(scene: Scene) -> None:
    scene.run_pod("shy")
    scene.run_pod("bold", asks=False)
    assert scene.descheduler().cycle() == {"shy": "Requested", "bold": "Evicted"}
    (request,) = listed(scene.api, "evictionrequests")
    uid = request["spec"]["target"]["pod"]["uid"]
    assert request["metadata"]["name"] == f"koordlite-{uid}"
    assert request["spec"] == {
        "target": {"pod": {"name": "shy", "uid": uid}},
        "requester": "koordlite.io/descheduler",
        "intent": "Eviction",
    }
    scene.api.request("GET", f"{PODS}/shy")


def test_off_by_default_and_observing_only_says_who_would_be_asked(scene: Scene) -> None:
    scene.run_pod("shy")
    observer = scene.descheduler(mode="observe")
    _, plan = observer.plan()
    assert "EvictionRequests" in text.render(plan, attempts=eviction_api.prepare(plan))
    assert [(note.reason, note.text.partition(" ")[0]) for note in plan.notes] == [("WouldBeRequested", "default/shy")]
    assert scene.descheduler(mode="off").cycle() == {"shy": "Evicted"}
    scene.run_pod("second")
    assert observer.cycle() == {"second": "Evicted"}
    assert listed(scene.api, "evictionrequests") == []


def test_a_dry_run_shows_the_request(scene: Scene) -> None:
    scene.run_pod("shy")
    _, plan = scene.descheduler().plan()
    (attempt,) = eviction_api.prepare(plan)
    assert (attempt.result, attempt.request["kind"]) == ("WouldEvict", "EvictionRequest")


def test_responders_of_the_spec_ask_as_well() -> None:
    spec = objects.PodSpec(eviction_responders=({"name": RESPONDER, "priority": 500},))
    assert [_asks(spec, phase) for phase in ("Running", "Failed")] == [True, False]
    assert not _asks(objects.PodSpec(), "Running")


def _asks(spec: objects.PodSpec, phase: str) -> bool:
    meta, status = objects.ObjectMeta(name="shy", uid="u"), objects.PodStatus(phase=phase)
    packed = Packer().small(objects.PodObject(metadata=meta, spec=spec, status=status))
    return PodView(pod_reader.from_wire(packed), packed, "a", None).asks_first


def test_progress_is_in_every_report_and_the_pod_counts_as_on_its_way(scene: Scene) -> None:
    scene.run_pod("shy")
    scene.run_pod("next")
    descheduler = scene.descheduler(limits="maxNoOfPodsToEvictTotal: 1\n")
    assert descheduler.cycle() == {"next": "Requested", "shy": "LimitTotal"}
    assert descheduler.cycle() == {"next": "EvictionRequested", "shy": "LimitTotal"}
    assert kept(descheduler, "next") == "asked at 2026-01-01T00:00:00Z; nobody has taken it up"
    scene.controller.work("3 of 5 shards moved")
    said = f"{RESPONDER} answers: 3 of 5 shards moved"
    assert said in kept(descheduler, "next")
    _, plan = descheduler.plan()
    for report in (text.render(plan), document.encode(plan, ()), html.render(plan)):
        assert said in " ".join(report.split())


def test_explain_tells_where_a_request_stands(
    scene: Scene, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.run_pod("shy")
    scene.descheduler().cycle()
    (tmp_path / "policy").write_text(policy(), encoding="utf-8")
    files = ["--kubeconfig", str(tmp_path / "kubeconfig"), "--policy", str(tmp_path / "policy")]

    def explained(*more: str) -> str:
        assert main(["explain", "shy", *files, "--now", "2026-01-01T00:10:00Z", *more]) == 0
        return " ".join(capsys.readouterr().out.split())

    assert "kept EvictionRequested: asked at 2026-01-01T00:00:00Z; nobody has taken it up" in explained()
    scene.controller.work("3 of 5 shards moved")
    standing = f"by EvictionRequest: asked at 2026-01-01T00:00:00Z; {RESPONDER} answers: 3 of 5 shards moved"
    assert f"request {standing}" in explained()
    assert "the next cycle withdraws it" not in explained()
    scene.taint()
    assert f"{standing} request the next cycle withdraws it: NotNamed: no plugin finds" in explained()
    assert json.loads(explained("-o", "json"))["pods"][0]["evictionRequest"].startswith(standing)
    scene.api.request("DELETE", f"{PODS}/shy")
    scene.run_pod("shy")
    assert "EvictionRequest" not in explained()


def test_explain_says_when_requests_cannot_be_read(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    scene = Scene(tmp_path, served=False)
    scene.run_pod("shy")
    (tmp_path / "policy").write_text(policy(), encoding="utf-8")
    files = ["--kubeconfig", str(tmp_path / "kubeconfig"), "--policy", str(tmp_path / "policy")]
    assert main(["explain", "shy", *files]) == 0
    scene.server.stop()
    printed = capsys.readouterr()
    assert "default/shy" in printed.out
    assert "note: evictionrequests" in printed.err and "cannot be read" in printed.err


def kept(descheduler: Descheduler, name: str) -> str:
    _, plan = descheduler.plan()
    (outcome,) = [outcome for outcome in plan.kept if outcome.pod.pod.name == name]
    return outcome.reasons[0].text


@pytest.mark.parametrize("how", ["the request fails", "nobody answers"])
def test_a_refusal_falls_back_to_the_eviction_api(scene: Scene, how: str) -> None:
    scene.run_pod("shy")
    descheduler = scene.descheduler()
    descheduler.cycle()
    refuse(scene, how)
    assert descheduler.cycle() == {"shy": "Evicted"}
    assert descheduler.cycle() == {}
    assert listed(scene.api, "evictionrequests") == []


@pytest.mark.parametrize("how", ["the request fails", "nobody answers"])
def test_without_a_fallback_the_pod_stays_with_the_reason_and_is_not_asked_again(scene: Scene, how: str) -> None:
    scene.run_pod("shy")
    descheduler = scene.descheduler(fallback=False)
    descheduler.cycle()
    refuse(scene, how)
    executor, plan = descheduler.plan()
    assert [event.reason for event in events.events(result(plan, executor(plan)))] == ["EvictionFailed"]
    assert [descheduler.cycle() for _ in range(2)] == [{"shy": "RequestRefused"}] * 2
    expected = "NoResponderSucceeded: a shard has no replica" if how == "the request fails" else "to go within 1h"
    assert expected in kept(descheduler, "shy")
    (request,) = listed(scene.api, "evictionrequests")
    assert request["spec"]["intent"] == "Withdrawn"
    assert [progress.reason for progress in descheduler.progress] == ["Withdrawn"]
    executor, plan = descheduler.plan()
    assert list(events.events(result(plan, executor(plan)))) == []
    assert scene.sent("create", "pods/eviction") == 0


def refuse(scene: Scene, how: str) -> None:
    if how == "the request fails":
        scene.controller.fail("a shard has no replica")
    else:
        scene.clock.advance(3601)


def result(plan: EvictionPlan, attempts: tuple[Attempt, ...]) -> CycleResult:
    return CycleResult(
        number=1,
        began=0.0,
        seconds=0.0,
        setup=reader.setup(reader.parse(policy(), "policy")),
        leader=True,
        dry_run=False,
        plan=plan,
        attempts=attempts,
    )


def test_an_event_says_that_the_pod_was_asked(scene: Scene) -> None:
    scene.run_pod("shy")
    executor, plan = scene.descheduler().plan()
    (event,) = events.events(result(plan, executor(plan)))
    assert event.reason == "RemovePodsViolatingNodeTaints"
    assert event.note.endswith(f": asked by EvictionRequest koordlite-{plan.evict[0].pod.uid}")


def test_a_request_is_withdrawn_when_nothing_is_wrong_with_the_pod_any_more(scene: Scene) -> None:
    scene.run_pod("shy")
    descheduler = scene.descheduler()
    descheduler.cycle()
    scene.taint()
    assert descheduler.cycle() == {}
    assert listed(scene.api, "evictionrequests") == []
    assert "NotNamed" in descheduler.progress[0].text
    scene.taint(TAINT)
    assert descheduler.cycle() == {"shy": "Requested"}


def test_a_request_is_withdrawn_when_a_guard_protects_the_pod(scene: Scene) -> None:
    scene.run_pod("shy")
    descheduler = scene.descheduler()
    descheduler.cycle()
    notes = {"metadata": {"annotations": {"scheduling.koordinator.sh/eviction-cost": str(2**31 - 1)}}}
    scene.api.request("PATCH", f"{PODS}/shy", body=notes, content_type=MERGE)
    assert descheduler.cycle() == {"shy": "EvictionCostIsNever"}
    assert listed(scene.api, "evictionrequests") == []


@pytest.mark.parametrize(("fallback", "outcome"), [(True, "Evicted"), (False, "NotTried")])
def test_a_server_without_the_api(tmp_path: pathlib.Path, fallback: bool, outcome: str) -> None:
    scene = Scene(tmp_path, served=False)
    scene.run_pod("shy")
    assert scene.descheduler(fallback=fallback).cycle() == {"shy": outcome}
    scene.server.stop()


def test_a_list_that_is_refused_costs_only_those_that_would_be_asked(scene: Scene) -> None:
    scene.run_pod("shy")
    scene.run_pod("bold", asks=False)
    scene.server.faults.add(Fault(resource="evictionrequests", status=403, times=None))
    executor, plan = scene.descheduler().plan()
    attempts = {attempt.pod: attempt for attempt in executor(plan)}
    assert {pod: attempt.result for pod, attempt in attempts.items()} == {
        "default/shy": "NotTried",
        "default/bold": "Evicted",
    }
    assert "cannot be read" in attempts["default/shy"].text and "403" in attempts["default/shy"].text


CYCLES = ("cycle", "cycle", "cycle", "die before", "die after")
STEPS = st.sampled_from([*CYCLES, *CYCLES, "work", "fail", "wait", "cure", "break", "end", "grow"])


@settings(max_examples=slices.amount(40, 12), deadline=None)
@given(st.lists(st.tuples(STEPS, st.integers(0, 3)), min_size=4, max_size=12), st.booleans())
def test_whatever_dies_no_pod_is_asked_twice_or_evicted_before_its_time(
    steps: list[tuple[str, int]], fallback: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        scene = Scene(pathlib.Path(folder))
        try:
            _play(scene, steps, fallback)
        finally:
            scene.server.stop()


def _play(scene: Scene, steps: list[tuple[str, int]], fallback: bool) -> None:
    refused, waited, asked = False, 0, set[str]()
    for name in ("one", "two"):
        scene.run_pod(name)
    for number, (step, count) in enumerate(steps):
        descheduler = scene.descheduler(fallback=fallback)
        asking = {one["metadata"]["name"] for one in listed(scene.api, "evictionrequests")}
        created = scene.sent("create", "evictionrequests")
        if step in ("die before", "die after"):
            descheduler.api = Mortal(scene.api, Death(count + 1, after=step == "die after"), "descheduler")  # type: ignore[assignment]
        with contextlib.suppress(Killed):
            if step in ("cycle", "die before", "die after"):
                descheduler.cycle()
        if step == "work":
            scene.controller.work("moving")
        elif step == "fail":
            scene.controller.fail("no")
            refused = True
        elif step == "wait":
            scene.clock.advance(1900)
            waited += 1900
        elif step in ("cure", "break"):
            asked = set() if step == "cure" else asked
            scene.taint(*([TAINT] if step == "break" else []))
        elif step == "end":
            with contextlib.suppress(ApiError):
                scene.api.request("DELETE", f"{PODS}/{('one', 'two')[count % 2]}", body={"gracePeriodSeconds": 0})
        elif step == "grow":
            scene.run_pod(f"pod-{number}")
        left = {one["metadata"]["name"] for one in listed(scene.api, "evictionrequests")}
        fresh = left - asking
        assert scene.sent("create", "evictionrequests") - created == len(fresh), "two requests for one pod"
        assert not fresh & asked, "a pod was asked again"
        asked |= fresh
        assert refused or waited > 3600 or scene.sent("create", "pods/eviction") == 0, (
            "a pod was evicted before it had refused"
        )
        assert fallback or scene.sent("create", "pods/eviction") == 0
    scene.taint()
    for _ in range(2):
        assert scene.descheduler(fallback=fallback).cycle() == {}
    assert listed(scene.api, "evictionrequests") == []
