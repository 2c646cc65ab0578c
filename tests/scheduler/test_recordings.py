"""The requests of a real kube-scheduler 1.36, asked again of our extender, and what it would make of the answers."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from koordlite.model.wire import objects
from koordlite.report.log_levels import LogLevels
from koordlite.scheduler.service import Service
from tests.scheduler import consequences
from tests.scheduler.builders import Scene
from tests.scheduler.consequences import part

FILES = sorted((Path(__file__).parent / "recordings").glob("*.json"))
FREE, TAKEN = {"cpu": "8", "memory": "32Gi"}, {"cpu": "0", "memory": "0"}


def interactions(*names: str) -> list[Any]:
    """What was asked, and the part of the recording, of files whose names begin so."""
    return list(_interactions(names))


def _interactions(names: tuple[str, ...]) -> Iterator[Any]:
    for path in FILES:
        if not names or path.name.startswith(names):
            for each in consequences.read(path):
                for requested in each["interactions"]:
                    yield pytest.param(requested, each, id=f"{path.stem}: {each['title']}")


class World:
    """An extender that knows the nodes and pods of one request."""

    def __init__(self, request: Any, zones: dict[str, str]) -> None:
        self.scene = Scene()
        self.service = Service(self.scene.extender, LogLevels(now=time.monotonic))
        self.pods: dict[str, set[str]] = {}
        body = request["body"]
        for name in self._nodes(body):
            self.scene.node(name, zones, zones, signed=[])
            self.pods[name] = set()
        for name, victims in (body.get("NodeNameToVictims") or {}).items():
            for pod in victims["Pods"]:
                self._put({**pod, "spec": {**pod["spec"], "nodeName": name}}, name)
        for name, victims in (body.get("NodeNameToMetaVictims") or {}).items():
            for number, victim in enumerate(victims["Pods"]):
                self._put(_made(victim["UID"], f"{name}-{number}", name), name)
        if request["path"].endswith("bind"):
            obj = _made(body["PodUID"], body["PodName"], "")
            obj["metadata"]["namespace"] = body["PodNamespace"]
            self.scene.put(obj)

    def ask(self, question: Any) -> Any:
        """The decoded answer."""
        answer = self.service.post("/" + question["path"].rpartition("/")[2], json.dumps(question["body"]).encode())
        assert (answer.status, answer.content_type) == (200, "application/json"), answer.body
        return json.loads(answer.body)

    def _put(self, pod: Any, node: str) -> None:
        self.scene.cluster.put_pod(msgspec.convert(pod, objects.PodObject, strict=False))
        self.pods[node].add(pod["metadata"]["uid"])

    @staticmethod
    def _nodes(body: Any) -> set[str]:
        items = (body.get("Nodes") or {}).get("items") or []
        victims = [*(body.get("NodeNameToVictims") or {}), *(body.get("NodeNameToMetaVictims") or {})]
        return {
            *(body.get("NodeNames") or []),
            *(i["metadata"]["name"] for i in items),
            *victims,
            body.get("Node", "x"),
        }


def _made(uid: str, name: str, node: str) -> Any:
    spec = {"nodeName": node, "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}
    return {"metadata": {"name": name, "namespace": "ns", "uid": uid}, "spec": spec, "status": {"phase": "Running"}}


@pytest.mark.parametrize(("requested", "recorded"), interactions())
def test_every_recorded_request_gets_a_good_answer(requested: Any, recorded: Any) -> None:
    world = World(requested, FREE)
    answer, body = world.ask(requested), requested["body"]
    match requested["path"].rpartition("/")[2]:
        case "filter":
            outcome = consequences.of_filter(body, answer, "http://x")
            assert not outcome.error
            assert outcome.passed == frozenset(consequences._names(body)), "nothing speaks against any node"
        case "prioritize":
            assert [each.keys() for each in answer] == [{"Host", "Score"}] * len(answer)
            assert {each["Host"] for each in answer} == set(consequences._names(body))
            assert all(isinstance(each["Score"], int) and 0 <= each["Score"] <= 10 for each in answer)
        case "preempt":
            victims, fault = consequences.of_preempt(body, answer, world.pods)
            candidates = {**(body["NodeNameToVictims"] or {}), **(body["NodeNameToMetaVictims"] or {})}
            assert not fault
            assert victims.keys() == candidates.keys(), "the pod needs no NUMA node: the scheduler's victims stand"
            assert {n: len(uids) for n, uids in victims.items()} == {n: len(v["Pods"]) for n, v in candidates.items()}
        case "bind":
            assert answer == {}
            assert world.scene.api.bound == [(f"{body['PodNamespace']}/{body['PodName']}", body["Node"], {})]
        case verb:
            pytest.fail(f"a verb that nobody expected: {verb}")


@pytest.mark.parametrize(
    ("requested", "recorded"), [p for p in interactions("01", "02") if "filter" in p.values[0]["path"]]
)
def test_a_refusal_never_makes_the_scheduler_spin_or_evict(requested: Any, recorded: Any) -> None:
    world = World(requested, TAKEN)
    pod = requested["body"]["Pod"]
    for container in pod["spec"]["containers"]:
        amounts = {"cpu": "2", "memory": "1Gi"}
        container["resources"] = {"requests": amounts, "limits": amounts}
    pod.setdefault("status", {})["qosClass"] = "Guaranteed"
    answers = [world.ask(requested) for _ in range(2)]
    outcome = [consequences.of_filter(requested["body"], answer, "http://x") for answer in answers]
    assert outcome[0] == outcome[1], "an equal text is not written again, so it wakes nobody"
    assert outcome[0].reasons == {"cannot align container": len(consequences._names(requested["body"]))}
    assert not outcome[0].preemption_tried, "its search for victims would find none, in a text that differs each time"


@pytest.mark.parametrize(("requested", "recorded"), [p for p in interactions("02") if "filter" in p.values[0]["path"]])
def test_the_recorded_outcomes_follow_from_the_recorded_answers(requested: Any, recorded: Any) -> None:
    prefix = recorded["extenders"][0]["urlPrefix"]
    outcome = consequences.of_filter(requested["body"], requested["answer"]["body"], prefix)
    pod = recorded["pods"][0]
    condition = pod["conditions"][0]
    if outcome.error:
        assert (condition["reason"], condition["message"]) == ("SchedulerError", outcome.error)
    elif outcome.passed:
        assert pod["node"] in outcome.passed
    else:
        assert condition["reason"] == "Unschedulable"
        assert all(f"{count} {reason}" in condition["message"] for reason, count in outcome.reasons.items())
        tried = "No preemption victims found for incoming pod" in condition["message"]
        assert tried == outcome.preemption_tried


FAULTS = {
    "the answer has a node beside that does not exist": "nodeinfo not found",
    "the answer names a pod of rec-f2 as victim on rec-f1": "not found on that node",
    "the answer has a UID of no pod": "not found on that node",
    "the answer has a node with Pods: []": "expected at least one victim",
}


@pytest.mark.parametrize("title", FAULTS)
def test_one_bad_entry_of_preempt_cancels_all(title: str) -> None:
    recorded = part(consequences.read(FILES[4]), title)
    requested = next(each for each in recorded["interactions"] if each["path"].endswith("preempt"))
    pods = World(requested, FREE).pods
    victims, fault = consequences.of_preempt(requested["body"], requested["answer"]["body"], pods)
    assert victims == {}
    assert FAULTS[title] in fault
    assert all(pod["pod"] != "high" or pod["node"] is None for pod in recorded["pods"])
    assert len(recorded["pods"]) == 6, "and nothing was deleted"


def test_the_recordings_are_all_there() -> None:
    counts = {path.name[:2]: sum(len(each["interactions"]) for each in consequences.read(path)) for path in FILES}
    assert sorted(counts) == [f"{number:02}" for number in range(1, 12)]
    assert sum(counts.values()) > 250
