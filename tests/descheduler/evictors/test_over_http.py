"""Picture, plan and evictions against an API server over HTTP."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import Any

import pytest
from apiserver import ApiServer, Fault

from descheduler import cli
from descheduler.cycle import planner
from descheduler.evictors import eviction_api
from descheduler.plan import EvictionPlan
from descheduler.policy import reader
from descheduler.snapshot import assemble, cluster
from koordlite.kube.client import access
from koordlite.kube.client.access import Api, ApiError

PODS = "/api/v1/namespaces/default/pods"
POLICY = """
profiles:
- name: p
  plugins: {deschedule: {enabled: [RemovePodsViolatingNodeTaints]}}
"""


@pytest.fixture
def server() -> Iterator[ApiServer]:
    """An API server with two nodes, one of them tainted."""
    with ApiServer(seed=1) as running:
        yield running


@pytest.fixture
def kubeconfig(server: ApiServer, tmp_path: pathlib.Path) -> str:
    path = tmp_path / "kubeconfig"
    path.write_text(server.kubeconfig(), encoding="utf-8")
    return str(path)


@pytest.fixture
def client(kubeconfig: str) -> Api:
    found = access.connect(kubeconfig, None, user_agent="test")
    taint = {"key": "broken", "effect": "NoSchedule"}
    for name, taints in (("a", [taint]), ("b", [])):
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {"taints": taints}}
        found.request("POST", "/api/v1/nodes", body=node)
    return found


def run_pod(client: Api, name: str, labels: dict[str, str] | None = None) -> None:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "rs-1", "controller": True}
    meta = {"name": name, "namespace": "default", "labels": labels or {}, "ownerReferences": [owner]}
    spec = {"nodeName": "a", "containers": [{"name": "main", "image": "x"}], "terminationGracePeriodSeconds": 0}
    client.request("POST", PODS, body={"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    kind = "application/merge-patch+json"
    client.request("PATCH", f"{PODS}/{name}/status", body={"status": status}, content_type=kind)


def planned(client: Api) -> EvictionPlan:
    view = assemble.view(cluster.read(client))
    return planner.plan(view, reader.setup(reader.parse(POLICY, "policy")))


def results(plan: EvictionPlan, client: Api) -> dict[str, str]:
    attempts = eviction_api.evict(plan, client, lambda _seconds: True)
    return {attempt.pod.removeprefix("default/"): attempt.result for attempt in attempts}


def test_pods_of_the_plan_go_and_others_stay(client: Api) -> None:
    for number in range(7):
        run_pod(client, f"p{number}")
    assert set(results(planned(client), client).values()) == {"Evicted"}
    with pytest.raises(ApiError, match="404"):
        client.request("GET", f"{PODS}/p0")


def test_a_disruption_budget_keeps_a_pod(client: Api) -> None:
    run_pod(client, "p", {"app": "x"})
    plan = planned(client)
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"}, "spec": spec}
    client.request("POST", "/apis/policy/v1/namespaces/default/poddisruptionbudgets", body=budget)
    assert results(plan, client) == {"p": "Blocked"}


def test_a_pod_that_was_made_anew_since_is_left_alone(client: Api) -> None:
    run_pod(client, "p")
    plan = planned(client)
    client.request("DELETE", f"{PODS}/p", body={"gracePeriodSeconds": 0})
    assert results(plan, client) == {"p": "Gone"}
    run_pod(client, "p")
    assert results(plan, client) == {"p": "Replaced"}


def test_the_command_plans_for_the_cluster_of_a_kubeconfig(
    client: Api, kubeconfig: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_pod(client, "p")
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY, encoding="utf-8")
    assert cli.main(["plan", "--kubeconfig", kubeconfig, "--policy", str(policy)]) == 0
    assert "default/p  on a" in capsys.readouterr().out
    client.request("GET", f"{PODS}/p")


def test_a_cluster_that_does_not_answer_is_said(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[Any]) -> None:
    with ApiServer() as gone:
        text = gone.kubeconfig()
    path = tmp_path / "k"
    path.write_text(text, encoding="utf-8")
    assert cli.main(["plan", "--kubeconfig", str(path)]) == 2
    assert "refused" in capsys.readouterr().err


def test_a_list_that_a_busy_server_refuses_is_asked_for_again(client: Api, server: ApiServer) -> None:
    run_pod(client, "p")
    waited: list[float] = []
    server.faults.add(Fault(verb="watch", resource="pods", status=429, retry_after_seconds=7))
    server.faults.add(Fault(verb="watch", resource="pods", status=503))
    assert [pod.metadata.name for pod in cluster.read(client, waited.append).by_kind["Pod"].values()] == ["p"]
    assert waited[0] == 7
    assert 2 <= waited[1] <= 3


def test_a_server_that_stays_busy_ends_the_cycle(client: Api, server: ApiServer) -> None:
    waited: list[float] = []
    server.faults.add(Fault(verb="watch", resource="pods", status=500, times=None))
    with pytest.raises(ApiError):
        cluster.read(client, waited.append)
    assert len(waited) == cluster.TRIES - 1
