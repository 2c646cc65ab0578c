"""Evictions as the API server answers them."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
from apibench import Bench, pod, until
from apiserver import Fault
from tinyapi import Reply, Request, client, status

from koordlite.changes.eviction import EvictPod
from koordlite.kube.client.access import ApiUnreachable
from koordlite.kube.publish.evictions import EvictionClient, evict, eviction
from koordlite.model.errors import EvictionRefused
from koordlite.ports import ClusterView


def _evict(view: ClusterView, name: str, **other: str) -> EvictPod:
    found = next(each for each in view.pods if each.metadata.name == name)
    return EvictPod("default", name, other.get("uid", found.metadata.uid), "CPU is short")


def test_an_eviction_is_accepted_and_told_in_an_event(bench: Bench) -> None:
    cluster = bench.cluster()
    cluster.evict(_evict(cluster.view(), "a"))
    pods = {pod["metadata"]["name"]: pod for pod in bench.server.objects.all("Pod", api_version="v1")}
    assert "a" not in pods or pods["a"]["metadata"]["deletionTimestamp"]
    until(lambda: bench.server.objects.all("Event", api_version="events.k8s.io/v1"))
    (event,) = bench.server.objects.all("Event", api_version="events.k8s.io/v1")
    assert event["reason"] == "Evicted"


def test_a_pod_that_is_gone_counts_as_evicted(bench: Bench) -> None:
    cluster = bench.cluster()
    gone = EvictPod("default", "never", "uid", "x")
    cluster.evict(gone)


def test_a_successor_of_the_same_name_is_left_alone(bench: Bench) -> None:
    cluster = bench.cluster()
    cluster.evict(_evict(cluster.view(), "a", uid="an-earlier-one"))
    found = bench.server.objects.get("Pod", "a", "default", api_version="v1")
    assert found is not None
    assert "deletionTimestamp" not in found["metadata"]


@pytest.mark.parametrize(
    ("fault", "words", "wish"),
    [
        pytest.param(Fault(resource="pods/eviction", status=429, retry_after_seconds=10), ".", 10.0, id="budget"),
        pytest.param(Fault(resource="pods/eviction", status=403), "pods/eviction", None, id="not-allowed"),
        pytest.param(Fault(resource="pods/eviction", status=500), ".", None, id="two-budgets"),
    ],
)
def test_a_refused_eviction_keeps_the_words_and_the_wish(
    bench: Bench, fault: Fault, words: str, wish: float | None
) -> None:
    cluster = bench.cluster()
    bench.server.faults.add(fault)
    with pytest.raises(EvictionRefused, match=words) as caught:
        cluster.evict(_evict(cluster.view(), "a"))
    assert caught.value.retry_after_seconds == wish
    until(lambda: bench.server.objects.all("Event", api_version="events.k8s.io/v1"))


def test_an_eviction_nobody_answers_is_asked_for_once(bench: Bench) -> None:
    cluster = bench.cluster()
    bench.server.faults.add(Fault(resource="pods/eviction", delay_seconds=0.8))
    pod = _evict(cluster.view(), "a")
    with pytest.raises(ApiUnreachable):
        cluster.evict(pod)

    def accepted() -> bool:
        with contextlib.suppress(ApiUnreachable):
            cluster.evict(pod)
            return True
        return False

    until(accepted)
    assert bench.asked("create", "pods/eviction") == 1


def test_no_eviction_waits_in_line_behind_one_that_hangs(bench: Bench) -> None:
    cluster = bench.cluster()
    bench.server.faults.add(Fault(resource="pods/eviction", delay_seconds=1.5))
    first, second = (_evict(cluster.view(), name) for name in ("a", "b"))
    for each in (first, second):
        with pytest.raises(ApiUnreachable):
            cluster.evict(each)
    until(lambda: bench.asked("create", "pods/eviction") == 1)

    def answered() -> bool:
        with contextlib.suppress(ApiUnreachable):
            cluster.evict(first)
            return True
        return False

    until(answered)
    assert bench.asked("create", "pods/eviction") == 1, "the second was not carried out when nobody wanted it any more"


def test_a_disruption_budget_is_kept_and_its_words_are_told(bench: Bench) -> None:
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    bench.server.objects.load(pod("guarded", labels={"app": "x"}) | {"status": ready})
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "b", "namespace": "default", "generation": 1},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}},
        "status": {
            "observedGeneration": 1,
            "disruptionsAllowed": 0,
            "currentHealthy": 1,
            "desiredHealthy": 1,
            "expectedPods": 1,
        },
    }
    bench.server.objects.load(budget)
    cluster = bench.cluster()
    with pytest.raises(EvictionRefused, match="disruption budget") as caught:
        cluster.evict(_evict(cluster.view(), "guarded"))
    assert caught.value.pod == "pod/default/guarded"
    assert bench.server.objects.get("Pod", "guarded", "default", api_version="v1") is not None


@pytest.mark.parametrize(
    ("spoken", "version"),
    [
        pytest.param(
            {"name": "pods/eviction", "group": "policy", "version": "v1"}, "policy/v1", id="a-server-of-today"
        ),
        pytest.param(
            {"name": "pods/eviction", "group": "policy", "version": "v1beta1"}, "policy/v1beta1", id="an-old-server"
        ),
        pytest.param({"name": "pods"}, "policy/v1", id="a-server-that-does-not-say"),
    ],
)
def test_the_version_is_the_one_the_server_speaks(serve: Any, spoken: dict[str, str], version: str) -> None:
    server, api = serve(lambda request: Reply(body={"resources": [spoken]}))
    evictions = EvictionClient(api)
    for _ in range(2):
        evictions.send(eviction("ns", "p", {"preconditions": {"uid": "u"}, "gracePeriodSeconds": 7, "dryRun": ["All"]}))
    assert len(server.asked("GET")) == 1
    assert server.asked("POST")[0].body == {
        "apiVersion": version,
        "kind": "Eviction",
        "metadata": {"name": "p", "namespace": "ns"},
        "deleteOptions": {"preconditions": {"uid": "u"}, "gracePeriodSeconds": 7, "dryRun": ["All"]},
    }


def test_a_conflict_over_a_pod_that_is_still_the_same_is_a_refusal(serve: Any) -> None:
    def answer(request: Request) -> Reply:
        if request.method == "POST":
            return status(409, "Conflict", "try again", name="p")
        return Reply(body={"metadata": {"uid": "u"}})

    _, api = serve(answer)
    with pytest.raises(EvictionRefused, match="try again"):
        evict(EvictionClient(api), EvictPod("ns", "p", "u", "x"))


def test_a_conflict_over_a_pod_that_cannot_be_read_says_so(serve: Any) -> None:
    def answer(request: Request) -> Reply:
        if request.method == "POST":
            return status(409, "Conflict", "try again", name="p")
        return Reply(body={"metadata": 3})

    _, api = serve(answer)
    with pytest.raises(EvictionRefused, match=r"the answer of /api/v1/namespaces/ns/pods/p cannot be read: "):
        evict(EvictionClient(api), EvictPod("ns", "p", "u", "x"))


def test_a_server_that_cannot_be_asked_is_no_refusal(tmp_path: Path) -> None:
    nobody = client(tmp_path / "kubeconfig", "http://127.0.0.1:1")
    with pytest.raises(ApiUnreachable):
        evict(EvictionClient(nobody), EvictPod("ns", "p", "u", "x"))
