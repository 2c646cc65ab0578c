"""Pods: defaults, admission, binding, deletion, eviction."""

from __future__ import annotations

import pytest

PODS = "/api/v1/namespaces/default/pods"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"


def _sent(name="p", **container):
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "main", "image": "x", **container}]}}


def test_a_new_pod_has_defaults_and_a_status_of_the_servers_own(ask):
    pod = ask("POST", PODS, _sent() | {"status": {"phase": "Running"}}).body
    assert (pod["status"]["phase"], pod["spec"]["restartPolicy"], pod["spec"]["priority"]) == ("Pending", "Always", 0)
    assert [each["key"] for each in pod["spec"]["tolerations"]] == [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ]


@pytest.mark.parametrize(
    ("resources", "qos"),
    [
        ({}, "BestEffort"),
        ({"requests": {"kubernetes.io/batch-cpu": "1000"}}, "BestEffort"),
        ({"requests": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed"),
        ({"limits": {"cpu": "1"}}, "Burstable"),
    ],
)
def test_the_quality_of_service_looks_at_cpu_and_memory_alone(ask, resources, qos):
    assert ask("POST", PODS, _sent(resources=resources)).body["status"]["qosClass"] == qos


@pytest.mark.parametrize(
    ("written", "kept"),
    [("0.5", "500m"), ("1000m", "1"), ("5000", "5k"), ("17179869184", "17179869184"), ("1e3", "1e3")],
)
def test_quantities_come_back_canonical(ask, written, kept):
    pod = ask("POST", PODS, _sent(resources={"requests": {"kubernetes.io/batch-cpu": written}})).body
    assert pod["spec"]["containers"][0]["resources"]["requests"]["kubernetes.io/batch-cpu"] == kept


@pytest.mark.parametrize(
    "resources",
    [
        pytest.param({"requests": {"e.com/x": "1"}}, id="an extended resource without limit"),
        pytest.param({"requests": {"e.com/x": "1"}, "limits": {"e.com/x": "2"}}, id="or with another limit"),
        pytest.param({"limits": {"e.com/x": "500m"}}, id="or half of one"),
        pytest.param({"requests": {"batch-cpu": "1"}}, id="an unqualified name"),
        pytest.param({"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}, id="a request above its limit"),
        pytest.param({"requests": {"cpu": "-1"}}, id="less than nothing"),
    ],
)
def test_resources_that_cannot_be_are_refused(ask, resources):
    assert ask("POST", PODS, _sent(resources=resources)).status == 422


def test_the_priority_is_that_of_the_class(ask, server):
    head = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    server.objects.load(head | {"metadata": {"name": "high"}, "value": 9000})
    pod = _sent()
    pod["spec"]["priorityClassName"] = "high"
    assert ask("POST", PODS, pod).body["spec"]["priority"] == 9000
    pod["spec"]["priorityClassName"] = "none"
    assert ask("POST", PODS, pod).status == 403


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"spec": {"containers": [{"name": "main", "image": "y"}]}}, 200),
        ({"spec": {"activeDeadlineSeconds": 5}}, 200),
        ({"spec": {"nodeName": "other"}}, 422),
        ({"spec": {"containers": [{"name": "main", "resources": {"limits": {"cpu": "1"}}}]}}, 422),
    ],
)
def test_little_of_a_spec_may_change(ask, pod, change, status):
    pod("p")
    assert ask.patch(f"{PODS}/p", change, "strategic-merge-patch+json").status == status


def test_a_pod_is_bound_once(ask):
    ask("POST", PODS, _sent())
    binding = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}}
    assert ask("POST", f"{PODS}/p/binding", binding).status == 201
    bound = ask("GET", f"{PODS}/p").body
    assert (bound["spec"]["nodeName"], bound["status"]["conditions"][0]["type"]) == ("n1", "PodScheduled")
    assert ask("POST", f"{PODS}/p/binding", binding).status == 409


@pytest.mark.parametrize(
    ("graces", "left"),
    [
        pytest.param([None], 30, id="the pod's own grace"),
        pytest.param([5, 500], 5, id="a longer one does not extend"),
        pytest.param([30, 5], 5, id="a shorter one shortens"),
        pytest.param([-1], 1, id="a negative one is one second"),
        pytest.param([0], None, id="none at all removes"),
    ],
)
def test_the_grace_period_of_a_deletion(ask, pod, graces, left):
    pod("p")
    for grace in graces:
        ask("DELETE", f"{PODS}/p", {} if grace is None else {"gracePeriodSeconds": grace})
    reply = ask("GET", f"{PODS}/p")
    assert reply.body.get("metadata", {}).get("deletionGracePeriodSeconds") == left


@pytest.mark.parametrize("gone", [{"node": ""}, {"phase": "Succeeded"}])
def test_a_pod_that_no_kubelet_runs_goes_at_once(ask, pod, gone):
    pod("p", **gone)
    ask("DELETE", f"{PODS}/p")
    assert ask("GET", f"{PODS}/p").status == 404


def _evict(ask, name, **options):
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}, "deleteOptions": options}
    return ask("POST", f"{PODS}/{name}/eviction", body)


def test_an_eviction_within_the_budget_spends_it(ask, pod, budget):
    for name in ("a1", "a2"):
        pod(name, labels={"app": "a"})
    budget("b", 1)
    assert _evict(ask, "a1").status == 201
    counts = ask("GET", f"{BUDGETS}/b").body["status"]
    assert (counts["disruptionsAllowed"], list(counts["disruptedPods"])) == (0, ["a1"])
    refused = _evict(ask, "a2")
    assert (refused.status, refused.body["reason"]) == (429, "TooManyRequests")
    assert "retry-after" not in refused.headers


def test_a_budget_that_was_not_looked_at_yet_asks_to_come_again(ask, pod, budget):
    pod("a1", labels={"app": "a"})
    budget("b", 1, observed=0)
    refused = _evict(ask, "a1")
    assert (refused.status, refused.headers["retry-after"]) == (429, "10")


@pytest.mark.parametrize(
    ("state", "status"),
    [
        ({"phase": "Pending"}, 201),
        ({"phase": "Failed"}, 201),
        ({"ready": False}, 201),
        ({"labels": {"app": "other"}}, 201),
        ({}, 429),
    ],
)
def test_a_used_up_budget_guards_pods_that_work(ask, pod, budget, state, status):
    pod("a1", **{"labels": {"app": "a"}, **state})
    budget("b", 0)
    assert _evict(ask, "a1").status == status


def test_two_budgets_are_more_than_the_server_can_do(ask, pod, budget):
    pod("a1", labels={"app": "a"})
    budget("b", 1)
    budget("c", 1)
    assert _evict(ask, "a1").status == 500


@pytest.mark.parametrize(
    ("options", "status"),
    [({"preconditions": {"uid": "other"}}, 409), ({"dryRun": ["All"]}, 201), ({"dryRun": ["x"]}, 422)],
)
def test_an_eviction_that_is_not_carried_out_leaves_pod_and_budget(ask, pod, budget, options, status):
    pod("a1", labels={"app": "other"})
    assert _evict(ask, "a1", **options).status == status
    assert "deletionTimestamp" not in ask("GET", f"{PODS}/a1").body["metadata"]


def test_the_name_must_be_that_of_the_path(ask, pod):
    pod("a1")
    assert ask("POST", f"{PODS}/a1/eviction", {"metadata": {"name": "a2"}}).status == 400


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
