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


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=8,
)


@hypothesis.given(_JSON, st.dictionaries(st.text(max_size=2), _JSON, max_size=3))
def test_a_merge_patch_twice_is_a_merge_patch_once(old, patch):
    once = patches.merged(old, patch)
    assert patches.merged(once, patch) == once
