"""Whatever a client sends, it gets an answer, and the server goes on."""

from __future__ import annotations

import hypothesis
import pytest
from hypothesis import strategies as st

_NAMES = st.sampled_from(
    [
        "metadata",
        "spec",
        "status",
        "name",
        "labels",
        "kind",
        "apiVersion",
        "containers",
        "resources",
        "requests",
        "cpu",
        "selector",
        "matchLabels",
        "conditions",
        "type",
        "finalizers",
        "versions",
        "names",
        "taints",
        "tolerations",
        "subjects",
        "rules",
        "preconditions",
        "deleteOptions",
        "data",
    ]
)
_BODIES = st.recursive(
    st.sampled_from([None, True, 1, -1, 1.5, "", "x", "p", "1Gi"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_NAMES, inner, max_size=4),
    max_leaves=12,
)
_PATHS = {
    "pod": "/api/v1/namespaces/default/pods",
    "node": "/api/v1/nodes",
    "budget": "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
    "definition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "binding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "lease": "/apis/coordination.k8s.io/v1/namespaces/default/leases",
    "event": "/apis/events.k8s.io/v1/namespaces/default/events",
    "review": "/apis/authorization.k8s.io/v1/subjectaccessreviews",
}
_SETTINGS = hypothesis.settings(
    max_examples=25, deadline=None, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture]
)


@pytest.mark.parametrize("kind", _PATHS)
@_SETTINGS
@hypothesis.given(body=st.dictionaries(_NAMES, _BODIES, max_size=4))
def test_every_new_object_gets_an_answer(ask, kind, body):
    named = body if isinstance(body.get("metadata"), dict) else body | {"metadata": {"name": "p"}}
    for sent in (body, named):
        assert ask("POST", _PATHS[kind], sent).status in (201, 400, 403, 409, 422, 500)


@pytest.mark.parametrize("media", ["merge-patch+json", "strategic-merge-patch+json"])
@_SETTINGS
@hypothesis.given(body=_BODIES)
@hypothesis.example(body={"finalizers": [[]]})
@hypothesis.example(body={"spec": {"containers": [{"name": ["a"]}, {"name": {"b": 1}}]}})
@hypothesis.example(body={"metadata": {"finalizers": [{"a": 1}, {"a": 1}], "ownerReferences": [{"uid": []}]}})
def test_every_patch_gets_an_answer(ask, pod, media, body):
    pod("p")
    reply = ask.patch("/api/v1/namespaces/default/pods/p?fieldManager=f", body, media)
    assert reply.status in (200, 201, 400, 409, 422, 500)
