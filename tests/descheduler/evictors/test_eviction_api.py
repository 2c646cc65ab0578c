"""Evictions as they are asked of an API server: what is sent, what answers mean, how often it is asked."""

from __future__ import annotations

import dataclasses
import errno
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from descheduler.arguments.evictor import Args
from descheduler.cycle import planner
from descheduler.evictors import eviction_api
from descheduler.filters.limits import Limits
from descheduler.framework import Finding, Handle, Plugin, View
from descheduler.history.past_evictions import REQUEST_ONLY, TRIGGERED
from descheduler.plan import EvictionPlan, Profile, Setup
from descheduler.serve import events
from koordlite.kube.client.answers import Answer, ApiError, ApiUnreachable

FINE = Answer(201, {}, b"{}")
BLOCKED = "Cannot evict pod as it would violate the pod's disruption budget."


@dataclasses.dataclass(frozen=True)
class Nothing:
    """No arguments."""


def everybody(view: View, _config: Nothing, _handle: Handle) -> Iterator[Any]:
    for pod in view.pods():
        yield Finding(pod=pod.uid, reason="Wrong")


class Server:
    """Answers each pod's evictions from its own list, and with success when that is empty. What is read is `found`."""

    def __init__(self, found: bytes = b"{}", **answers: list[Any]) -> None:
        self.found, self.answers = found, answers
        self.asked: list[tuple[str, str, Any]] = []

    def request(self, method: str, path: str, *, body: object = None) -> Answer:
        if method == "GET":
            return Answer(200, {}, self.found)
        self.asked.append((method, path, body))
        waiting = self.answers.get(path.split("/")[-2])
        answer = waiting.pop(0) if waiting else FINE
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def plan(cluster: Any) -> EvictionPlan:
    """One pod to evict."""
    cluster.node("a")
    cluster.node("b")
    cluster.pod("p", "a", annotations={REQUEST_ONLY: ""})
    return planned(cluster)


def planned(cluster: Any) -> EvictionPlan:
    profile = Profile("prof", ((Plugin("P", Nothing, everybody, ""), Nothing()),), Args())
    return planner.plan(cluster.view(), Setup((profile,), Limits(), grace_period_seconds=7))


def run(plan: EvictionPlan, server: Server) -> tuple[Any, list[float]]:
    waits: list[float] = []

    def wait(seconds: float) -> bool:
        waits.append(seconds)
        return False

    (attempt,) = eviction_api.evict(plan, server, wait)
    return attempt, waits


def test_the_request_names_reason_grace_period_and_the_very_pod(plan: EvictionPlan) -> None:
    server = Server()
    attempt, _ = run(plan, server)
    assert (attempt.result, attempt.goes, attempt.tries) == ("Evicted", True, 1)
    ((method, path, body),) = server.asked
    assert (method, path) == ("POST", "/api/v1/namespaces/default/pods/p/eviction")
    assert body["deleteOptions"] == {"preconditions": {"uid": "uid-p"}, "gracePeriodSeconds": 7}
    assert body["metadata"]["annotations"]["reason"] == "triggered by prof/P: Wrong"


@pytest.mark.parametrize(
    ("error", "result"),
    [
        pytest.param(ApiError(429, "TooManyRequests", BLOCKED), "Blocked", id="a disruption budget"),
        pytest.param(ApiError(429, "TooManyRequests", f"x {TRIGGERED} y"), "InBackground", id="it goes on elsewhere"),
        pytest.param(ApiError(404, "NotFound", "not here"), "Failed", id="the server knows no evictions"),
        pytest.param(ApiError(409, "Conflict", "try again"), "Failed", id="a conflict over the same pod"),
        pytest.param(ApiError(500, "InternalError", "two budgets"), "Failed", id="the server's own trouble"),
        pytest.param(ApiUnreachable(errno.ECONNREFUSED, "refused", "u"), "Failed", id="no answer"),
    ],
)
def test_what_a_refusal_means(plan: EvictionPlan, error: Exception, result: str) -> None:
    attempt, waits = run(plan, Server(b'{"metadata": {"uid": "uid-p"}}', p=[error]))
    assert (attempt.result, attempt.tries, waits) == (result, 1, [])
    assert attempt.text in str(error)


@pytest.mark.parametrize(
    ("error", "result"),
    [
        pytest.param(ApiError(404, "NotFound", "gone", named="p"), "Gone", id="the pod is gone"),
        pytest.param(ApiError(409, "Conflict", "uid"), "Replaced", id="another pod of the name"),
    ],
)
def test_a_pod_that_is_not_there_any_more_is_left(plan: EvictionPlan, error: ApiError, result: str) -> None:
    attempt, waits = run(plan, Server(b'{"metadata": {"uid": "another"}}', p=[error]))
    assert (attempt.result, attempt.tries, attempt.goes, waits) == (result, 1, False, [])


def test_an_old_server_is_asked_in_its_own_version(plan: EvictionPlan) -> None:
    server = Server(b'{"resources": [{"name": "pods/eviction", "group": "policy", "version": "v1beta1"}]}')
    assert run(plan, server)[0].result == "Evicted"
    assert [body["apiVersion"] for _, _, body in server.asked] == ["policy/v1beta1"]


def test_a_pod_that_did_not_opt_in_does_not_go_in_the_background(cluster: Any) -> None:
    cluster.node("a")
    cluster.node("b")
    cluster.pod("p", "a")
    attempt, _ = run(planned(cluster), Server(p=[ApiError(429, "", TRIGGERED)]))
    assert attempt.result == "Blocked"


def test_it_comes_back_when_the_server_says(plan: EvictionPlan) -> None:
    later = ApiError(429, "TooManyRequests", BLOCKED, retry_after_seconds=10.0)
    attempt, waits = run(plan, Server(p=[later, later]))
    assert (attempt.result, attempt.tries, waits) == ("Evicted", 3, [10.0, 10.0])


@pytest.mark.parametrize(
    ("seconds", "tries", "waits"),
    [
        pytest.param(10.0, 4, [10.0] * 3, id="thirty seconds in all"),
        pytest.param(31.0, 1, [], id="a longer wish is not waited for"),
        pytest.param(1.0, 5, [1.0] * 4, id="five times at most"),
    ],
)
def test_patience_has_an_end(plan: EvictionPlan, seconds: float, tries: int, waits: list[float]) -> None:
    later = ApiError(429, "TooManyRequests", BLOCKED, retry_after_seconds=seconds)
    attempt, waited = run(plan, Server(p=[later] * 9))
    assert (attempt.result, attempt.tries, waited) == ("Blocked", tries, waits)


def test_a_stop_ends_the_waiting(plan: EvictionPlan) -> None:
    later = ApiError(429, "TooManyRequests", BLOCKED, retry_after_seconds=1.0)
    (attempt,) = eviction_api.evict(plan, Server(p=[later] * 9), lambda _seconds: True)
    assert (attempt.result, attempt.tries) == ("Blocked", 1)


def test_after_a_stop_no_further_pod_is_asked_for(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eviction_api, "AT_ONCE", 1)
    cluster.node("a")
    cluster.node("b")
    for number in range(4):
        cluster.pod(f"p{number}", "a", owner=f"o{number}")
    server = Server()
    attempts = eviction_api.evict(
        planned(cluster), server, lambda _seconds: False, stopped=lambda: len(server.asked) >= 2
    )
    assert [attempt.result for attempt in attempts] == ["Evicted", "Evicted", "NotTried", "NotTried"]
    assert [attempt.goes for attempt in attempts] == [True, True, False, False] and len(server.asked) == 2
    left = planned(cluster).evict[3]
    assert events.of_attempt(left, attempts[3], failure_events=True) is None


def test_a_pod_without_a_uid_is_not_evicted(cluster: Any) -> None:
    cluster.node("a")
    cluster.node("b")
    cluster.pod("p", "a")["metadata"].pop("uid")
    server = Server()
    attempt, _ = run(planned(cluster), server)
    assert (attempt.result, server.asked) == ("Failed", [])


def test_several_are_asked_at_once_and_no_more_than_allowed(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eviction_api, "AT_ONCE", 3)
    cluster.node("a")
    cluster.node("b")
    for number in range(9):
        cluster.pod(f"p{number}", "a", owner=f"o{number}")
    together = threading.Barrier(3, timeout=20)
    now = most = 0
    lock = threading.Lock()

    class Slow(Server):
        def request(self, method: str, path: str, *, body: object = None) -> Answer:
            nonlocal now, most
            with lock:
                now += 1
                most = max(most, now)
            together.wait()
            with lock:
                now -= 1
            return super().request(method, path, body=body)

    plan = planned(cluster)
    attempts = eviction_api.evict(plan, Slow(), lambda _seconds: False)
    assert most == 3
    assert [attempt.pod for attempt in attempts] == [outcome.pod.key for outcome in plan.evict]


def test_events_tell_successes_and_on_request_failures(plan: EvictionPlan) -> None:
    done, _ = run(plan, Server())
    failed, _ = run(plan, Server(p=[ApiError(500, "InternalError", "out of luck")]))
    told = events.of_attempt(plan.evict[0], done, failure_events=False)
    assert told is not None
    assert (told.type, told.reason, told.note) == ("Normal", "P", "pod eviction from a node by sigs.k8s.io/descheduler")
    assert (told.action, told.regarding.name) == ("Descheduled", plan.evict[0].pod.pod.name)
    assert events.of_attempt(plan.evict[0], failed, failure_events=False) is None
    loud = events.of_attempt(plan.evict[0], failed, failure_events=True)
    assert loud is not None
    assert (loud.type, loud.reason) == ("Warning", "EvictionFailed")
    assert loud.note.endswith("failed: out of luck")
