"""Patches of four kinds, and who owns which field."""

from __future__ import annotations

import copy

import pytest
from apiserver import strategic


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
