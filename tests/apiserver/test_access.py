"""Tokens, rights, reviews, custom kinds, forms of answers."""

from __future__ import annotations

import pytest
from apiserver import ApiServer, User

PODS = "/api/v1/namespaces/default/pods"
RBAC = "rbac.authorization.k8s.io/v1"


@pytest.fixture
def guarded(ask):
    """A server that knows an administrator and somebody who may list pods in one namespace."""
    tokens = {"root": User("admin", ("system:masters",)), "small": User("eve")}
    with ApiServer(tokens=tokens) as server:
        role = {"apiVersion": RBAC, "kind": "Role", "metadata": {"name": "r", "namespace": "default"}}
        rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]
        binding = {"apiVersion": RBAC, "kind": "RoleBinding", "metadata": {"name": "r", "namespace": "default"}}
        subjects = [{"kind": "User", "name": "eve"}]
        server.objects.load(
            role | {"rules": rules}, binding | {"subjects": subjects, "roleRef": {"kind": "Role", "name": "r"}}
        )
        ask.server = server
        yield ask


@pytest.mark.parametrize(
    ("token", "method", "path", "status"),
    [
        ("small", "GET", PODS, 200),
        ("small", "GET", f"{PODS}?watch=1&timeoutSeconds=1", 403),
        ("small", "GET", "/api/v1/pods", 403),
        ("small", "GET", f"{PODS}/p", 403),
        ("small", "POST", f"{PODS}/p/eviction", 403),
        ("small", "GET", "/apis/no.such/v1/things", 403),
        ("small", "GET", "/readyz", 200),
        ("small", "GET", "/metrics", 403),
        ("root", "GET", f"{PODS}/p", 404),
        ("wrong", "GET", "/version", 401),
        ("", "GET", "/version", 200),
        ("", "GET", PODS, 403),
    ],
)
def test_rights(guarded, token, method, path, status):
    headers = {"authorization": f"Bearer {token}"} if token else {}
    assert guarded(method, path, **headers).status == status


def test_a_refusal_says_who_may_not_do_what_where(guarded):
    message = guarded("GET", f"{PODS}/p", authorization="Bearer small").body["message"]
    wanted = 'pods "p" is forbidden: User "eve" cannot get resource "pods" in API group "" in the namespace "default"'
    assert message == wanted


@pytest.mark.parametrize(("token", "known"), [("small", True), ("forged", None)])
def test_a_token_review(guarded, token, known):
    path = "/apis/authentication.k8s.io/v1/tokenreviews"
    status = guarded("POST", path, {"spec": {"token": token}}, authorization="Bearer root").body["status"]
    assert status.get("authenticated") == known


@pytest.mark.parametrize(("verb", "allowed"), [("list", True), ("delete", False)])
def test_an_access_review(guarded, verb, allowed):
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    spec = {"user": "eve", "resourceAttributes": {"verb": verb, "resource": "pods", "namespace": "default"}}
    status = guarded("POST", path, {"spec": spec}, authorization="Bearer root").body["status"]
    assert (status["allowed"], bool(status.get("reason"))) == (allowed, allowed)


SCHEMA = {
    "type": "object",
    "required": ["size"],
    "properties": {
        "size": {"type": "integer", "minimum": 1},
        "kind2": {"type": "string", "enum": ["a", "b"], "default": "a"},
        "list": {
            "type": "array",
            "items": {"type": "object", "properties": {"q": {"x-kubernetes-int-or-string": True}}},
        },
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}
DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "things.e.com"},
    "spec": {
        "group": "e.com",
        "scope": "Namespaced",
        "names": {"plural": "things", "kind": "Thing", "shortNames": ["th"]},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": SCHEMA},
            }
        ],
    },
}
THINGS = "/apis/e.com/v1/namespaces/default/things"


def _thing(**fields):
    return {"apiVersion": "e.com/v1", "kind": "Thing", "metadata": {"name": "t"}, **fields}


def test_a_custom_kind_is_served_as_long_as_its_definition_is_there(ask):
    assert ask("GET", THINGS).body == "404 page not found\n"
    ask("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", DEFINITION)
    created = ask("POST", THINGS, _thing(size=3, odd=1, list=[{"q": "5k", "odd": 1}]))
    assert created.status == 201
    assert {key: created.body.get(key) for key in ("size", "kind2", "odd", "list")} == {
        "size": 3,
        "kind2": "a",
        "odd": None,
        "list": [{"q": "5k"}],
    }
    ask("DELETE", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.e.com")
    assert ask("GET", THINGS).status == 404


@pytest.mark.parametrize(
    ("fields", "field"),
    [({}, "size"), ({"size": "x"}, "size"), ({"size": 0}, "size"), ({"size": 1, "kind2": "c"}, "kind2")],
)
def test_a_schema_is_asked(ask, server, fields, field):
    server.objects.load(DEFINITION)
    reply = ask("POST", THINGS, _thing(**fields))
    assert (reply.status, reply.body["details"]["causes"][0]["field"]) == (422, field)


def test_the_generation_counts_changes_outside_metadata_and_status(ask, server):
    server.objects.load(DEFINITION)
    ask("POST", THINGS, _thing(size=1))
    ask.patch(f"{THINGS}/t", {"metadata": {"labels": {"a": "b"}}})
    ask.patch(f"{THINGS}/t/status", {"status": {"x": 1}, "size": 9})
    final = ask.patch(f"{THINGS}/t", {"size": 2}).body
    assert (final["metadata"]["generation"], final["status"]) == (2, {"x": 1})


def test_a_custom_kind_takes_no_strategic_patch_and_no_blind_put(ask, server):
    server.objects.load(DEFINITION)
    ask("POST", THINGS, _thing(size=1))
    assert ask.patch(f"{THINGS}/t", {}, "strategic-merge-patch+json").status == 415
    assert ask("PUT", f"{THINGS}/t", _thing(size=2)).status == 422


@pytest.mark.parametrize(
    ("accept", "kind", "status"),
    [
        ("*/*", "NodeList", 200),
        ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", "NodeList", 200),
        ("text/html", "Status", 406),
    ],
)
def test_forms_of_an_answer(ask, accept, kind, status):
    reply = ask("GET", "/api/v1/nodes", accept=accept)
    assert (reply.status, reply.body["kind"]) == (status, kind)
