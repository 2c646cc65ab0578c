"""Tokens, rights, reviews, custom kinds, forms of answers."""

from __future__ import annotations

import pytest

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
