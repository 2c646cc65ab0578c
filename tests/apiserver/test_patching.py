"""Patches of four kinds, and who owns which field."""

from __future__ import annotations

import copy

import hypothesis
import pytest
from apiserver import patches, strategic
from hypothesis import strategies as st

MAPS = "/api/v1/namespaces/default/configmaps"
NODES = "/api/v1/nodes"


@pytest.mark.parametrize(
    ("old", "patch", "new"),
    [
        pytest.param({"a": 1, "b": 2}, {"a": None}, {"b": 2}, id="null removes"),
        pytest.param({"a": {"x": 1}}, {"a": {"y": 2}}, {"a": {"x": 1, "y": 2}}, id="objects merge"),
        pytest.param({"a": [1, 2]}, {"a": [3]}, {"a": [3]}, id="lists are replaced"),
        pytest.param({"a": 1}, {"a": {"b": None}}, {"a": {}}, id="a null inside what is new leaves nothing"),
    ],
)
def test_merge_patch(old, patch, new):
    assert patches.merged(old, patch) == new


@pytest.mark.parametrize(
    ("old", "patch", "new"),
    [
        pytest.param(
            {"conditions": [{"type": "A", "s": 1}, {"type": "B"}]},
            {"conditions": [{"type": "B", "s": 2}]},
            {"conditions": [{"type": "A", "s": 1}, {"type": "B", "s": 2}]},
            id="elements merge by their key and keep their place",
        ),
        pytest.param(
            {"conditions": [{"type": "A"}]},
            {"conditions": [{"type": "N"}]},
            {"conditions": [{"type": "N"}, {"type": "A"}]},
            id="a new element comes first",
        ),
        pytest.param(
            {"conditions": [{"type": "A"}, {"type": "B"}]},
            {"conditions": [{"type": "A", "$patch": "delete"}]},
            {"conditions": [{"type": "B"}]},
            id="an element is deleted by directive",
        ),
        pytest.param(
            {"finalizers": ["a"]}, {"finalizers": ["b"]}, {"finalizers": ["b", "a"]}, id="sets of texts unite"
        ),
        pytest.param(
            {"finalizers": ["a", "b"]},
            {"$deleteFromPrimitiveList/finalizers": ["a"]},
            {"finalizers": ["b"]},
            id="a text is taken out by directive",
        ),
        pytest.param({"taints": [1]}, {"taints": [2]}, {"taints": [2]}, id="taints have no key: replaced"),
        pytest.param({"a": 1, "b": 2}, {"$patch": "replace", "c": 3}, {"c": 3}, id="a map is replaced by directive"),
        pytest.param(
            {"containers": [{"name": "a"}, {"name": "b"}]},
            {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}], "containers": [{"name": "a", "i": 1}]},
            {"containers": [{"name": "b"}, {"name": "a", "i": 1}]},
            id="an order that kubectl asks for",
        ),
    ],
)
def test_strategic_merge_patch(old, patch, new):
    before = copy.deepcopy(old)
    assert strategic.merged(old, patch) == new
    assert old == before


def test_an_element_without_its_key_is_refused():
    with pytest.raises(strategic.NoMergeKey):
        strategic.merged({"conditions": []}, {"conditions": [{"status": "True"}]})


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=8,
)


@hypothesis.given(_JSON, st.dictionaries(st.text(max_size=2), _JSON, max_size=3))
def test_a_merge_patch_twice_is_a_merge_patch_once(old, patch):
    once = patches.merged(old, patch)
    assert patches.merged(once, patch) == once


def test_a_status_patch_changes_labels_but_not_the_spec(ask, server):
    server.objects.load({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}})
    new = {"metadata": {"labels": {"a": "b"}}, "spec": {"unschedulable": True}, "status": {"capacity": {"cpu": 5000}}}
    node = ask.patch(f"{NODES}/n/status", new).body
    assert (node["metadata"]["labels"], node["spec"], node["status"]["capacity"]) == ({"a": "b"}, {}, {"cpu": "5k"})


def test_a_main_patch_leaves_the_status(ask, server):
    server.objects.load({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}})
    node = ask.patch(f"{NODES}/n", {"status": {"capacity": {"cpu": "1"}}, "spec": {"unschedulable": True}}).body
    assert node["spec"] == {"unschedulable": True} and "capacity" not in node["status"]


@pytest.mark.parametrize(("amount", "status"), [("4500", 200), ("-1", 422), ("1x", 422), ("1500m", 200)])
def test_node_resources_are_checked(ask, server, amount, status):
    server.objects.load({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}})
    new = {"status": {"allocatable": {"kubernetes.io/batch-cpu": amount}}}
    assert ask.patch(f"{NODES}/n/status", new).status == status


def test_a_patch_needs_its_media_type(ask, config_map):
    config_map("a")
    assert ask("PATCH", f"{MAPS}/a", {}, content_type="application/json").status == 415
