"""Pods: defaults, admission, binding, deletion, eviction."""

from __future__ import annotations

import pytest

PODS = "/api/v1/namespaces/default/pods"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"


def _sent(name="p", **container):
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "main", "image": "x", **container}]}}


def _evict(ask, name, **options):
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}, "deleteOptions": options}
    return ask("POST", f"{PODS}/{name}/eviction", body)


@pytest.fixture
def controlled(clock):
    from apiserver import ApiServer

    with ApiServer(clock=clock, controllers=True) as server:
        yield server


def _load(server, name, **meta):
    item = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default", **meta}}
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    spec = {"nodeName": "n1", "containers": [{"name": "m", "image": "x"}]}
    server.objects.load(item | {"spec": spec, "status": status})


def test_controllers_keep_budgets_and_remove_terminated_pods(controlled, clock, ask):
    ask.server = controlled
    for name in ("a1", "a2", "a3"):
        _load(controlled, name, labels={"app": "a"})
    spec = {"minAvailable": 2, "selector": {"matchLabels": {"app": "a"}}}
    ask("POST", BUDGETS, {"metadata": {"name": "b"}, "spec": spec})
    assert _evict(ask, "a1").status == 201
    assert _evict(ask, "a2").status == 429
    counts = ask("GET", f"{BUDGETS}/b").body["status"]
    assert (counts["currentHealthy"], counts["expectedPods"], counts.get("disruptedPods")) == (2, 3, None)
    clock.advance(31)
    assert ask("GET", f"{PODS}/a1").status == 404
    assert ask("GET", f"{BUDGETS}/b").body["status"]["expectedPods"] == 2


@pytest.mark.parametrize(("limit", "allowed"), [({"maxUnavailable": 1}, 1), ({"minAvailable": "50%"}, 2)])
def test_shares_of_a_budget_are_of_the_owners_replicas(controlled, ask, limit, allowed):
    ask.server = controlled
    head = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "r", "namespace": "default"}}
    controlled.objects.load(head | {"spec": {"replicas": 4}})
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u", "controller": True}
    for number in range(4):
        _load(controlled, f"a{number}", labels={"app": "a"}, ownerReferences=[owner])
    ask("POST", BUDGETS, {"metadata": {"name": "b"}, "spec": {**limit, "selector": {"matchLabels": {"app": "a"}}}})
    assert ask("GET", f"{BUDGETS}/b").body["status"]["disruptionsAllowed"] == allowed
