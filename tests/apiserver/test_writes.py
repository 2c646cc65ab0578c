"""What a write or deletion may ask for, and what is refused with which words."""

from __future__ import annotations

from typing import Any

import pytest

MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
THINGS = "/apis/example.com/v1/namespaces/default/things"
HELD = ["example.com/hold"]


@pytest.fixture
def things(server):
    """Serve a custom kind."""
    names = {"plural": "things", "kind": "Thing"}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
    spec = {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]}
    head = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    server.objects.load(head | {"metadata": {"name": "things.example.com"}, "spec": spec})


@pytest.mark.parametrize(
    "body",
    [
        pytest.param({"metadata": {"name": "a", "resourceVersion": 5}}, id="a version that is a number"),
        pytest.param({"metadata": {"name": ["a"]}}, id="a name that is a list"),
        pytest.param({"metadata": {"name": "a"}, "data": 5}, id="data that is a number"),
    ],
)
def test_an_update_of_wrong_types_is_a_bad_request(ask, config_map, body):
    config_map("a")
    assert ask("PUT", f"{MAPS}/a", body).status == 400


@pytest.mark.parametrize(
    "options",
    [
        {"preconditions": "x"},
        {"preconditions": {"uid": 5}},
        {"propagationPolicy": 5},
        {"gracePeriodSeconds": "x"},
        {"dryRun": "All"},
    ],
)
def test_options_of_wrong_types_are_a_bad_request_and_delete_nothing(ask, pod, options):
    pod("p")
    assert ask("DELETE", f"{PODS}/p", options).status == 400
    assert ask("POST", f"{PODS}/p/eviction", {"metadata": {"name": "p"}, "deleteOptions": options}).status == 400
    assert "deletionTimestamp" not in ask("GET", f"{PODS}/p").body["metadata"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (f"{PODS}/p/eviction", {"apiVersion": 5, "kind": "Eviction", "metadata": {"name": "p"}}),
        (f"{PODS}/p/binding", {"metadata": {"name": "p"}, "target": [1]}),
    ],
    ids=["an eviction", "a binding"],
)
def test_a_subresource_of_wrong_types_is_a_bad_request(ask, pod, path, body):
    pod("p", node="")
    assert ask("POST", path, body).status == 400


def test_the_mark_of_deletion_counts_as_a_generation(ask, things):
    named = {"name": "t", "finalizers": HELD}
    made = ask("POST", THINGS, {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": named})
    assert made.body["metadata"]["generation"] == 1
    generations = [ask("DELETE", f"{THINGS}/t").body["metadata"]["generation"] for _ in range(2)]
    assert generations == [2, 2]


@pytest.mark.parametrize(
    ("path", "key"),
    [
        ("/api/v1/nodes/a", "/registry/minions/a"),
        (f"{THINGS}/a", "/registry/example.com/things/default/a"),
    ],
)
def test_a_wrong_uid_is_told_with_the_place_in_etcd(ask, things, path, key):
    kind = {"apiVersion": "example.com/v1", "kind": "Thing"} if "things" in path else {}
    reply = ask("PUT", path, kind | {"metadata": {"name": "a", "uid": "other"}})
    assert f"Key: {key}, " in reply.body["message"]


def _fields(reply: Any) -> list[str]:
    assert reply.status == 422, reply.body
    return [cause["field"] for cause in reply.body["details"]["causes"]]


@pytest.mark.parametrize(
    ("path", "meta", "fields"),
    [
        pytest.param(MAPS, {"generateName": "Bad_"}, ["metadata.generateName", "metadata.name"], id="a prefix"),
        pytest.param(MAPS, {"name": "x" * 254}, ["metadata.name"], id="a long name"),
        pytest.param(MAPS, {"name": "a", "labels": {"k": "x" * 64}}, ["metadata.labels"], id="a long value"),
        pytest.param(MAPS, {"name": "a", "labels": {"B_/k": "x"}}, ["metadata.labels"], id="a prefix of a key"),
        pytest.param(MAPS, {"name": "a", "labels": {"a/b/c": "x"}}, ["metadata.labels"], id="a key of three parts"),
        pytest.param(MAPS, {"name": "a", "annotations": {"a b": "x"}}, ["metadata.annotations"], id="an annotation"),
        pytest.param(MAPS, {"name": "a", "annotations": {"k": "x" * 262144}}, ["metadata.annotations"], id="too much"),
    ],
)
def test_metadata_that_cannot_be(ask, path, meta, fields):
    assert _fields(ask("POST", path, {"metadata": meta})) == fields


@pytest.mark.parametrize(
    ("content", "field"),
    [
        ({"data": {"a b": "x"}}, "data[a b]"),
        ({"data": {"..": "x"}}, "data[..]"),
        ({"binaryData": {"..a": ""}}, "binaryData[..a]"),
        ({"data": {"a": "x"}, "binaryData": {"a": "eA=="}}, "data[a]"),
    ],
)
def test_keys_of_a_config_map(ask, content, field):
    assert field in _fields(ask("POST", MAPS, {"metadata": {"name": "a"}, **content}))


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"minAvailable": -1}, "spec.minAvailable"),
        ({"maxUnavailable": "half"}, "spec.maxUnavailable"),
        ({"minAvailable": "101%"}, "spec.minAvailable"),
        ({"selector": {"matchLabels": {"a b": "x"}}}, "spec.selector.matchLabels"),
        (
            {"selector": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
            "spec.selector.matchExpressions[0].values",
        ),
        (
            {"selector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}},
            "spec.selector.matchExpressions[0].operator",
        ),
        (
            {"selector": {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["x"]}]}},
            "spec.selector.matchExpressions[0].values",
        ),
    ],
)
def test_a_budget_that_cannot_be(ask, spec, field):
    assert _fields(ask("POST", BUDGETS, {"metadata": {"name": "b"}, "spec": spec})) == [field]


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"containers": [{"name": "A_", "image": "x"}]}, "spec.containers[0].name"),
        ({"containers": [{"name": "a", "image": "x"}] * 2}, "spec.containers[1].name"),
        ({"restartPolicy": "Sometimes"}, "spec.restartPolicy"),
        ({"tolerations": [{"key": "k", "operator": "Is"}]}, "spec.tolerations[0].operator"),
    ],
)
def test_a_pod_that_cannot_be(ask, spec, field):
    whole = {"containers": [{"name": "main", "image": "x"}], **spec}
    assert _fields(ask("POST", PODS, {"metadata": {"name": "p"}, "spec": whole})) == [field]


def test_the_deadline_of_a_pod_only_comes_nearer(ask, pod):
    pod("p")
    states = [ask.patch(f"{PODS}/p", {"spec": {"activeDeadlineSeconds": each}}).status for each in (9, 5, 7)]
    assert states == [200, 200, 422]


@pytest.mark.parametrize(
    ("spec", "field"),
    [({"scope": "Both"}, "spec.scope"), ({"group": ""}, "spec.group")],
)
def test_a_definition_that_cannot_be(ask, spec, field):
    version = {"name": "v1", "served": True, "storage": True}
    whole = {"group": "e.com", "scope": "Cluster", "names": {"plural": "x", "kind": "X"}, "versions": [version]} | spec
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    assert field in _fields(ask("POST", path, {"metadata": {"name": "x.e.com"}, "spec": whole}))


def _binding(name: str, **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **more}, "target": {"kind": "Node", "name": "n1"}}
