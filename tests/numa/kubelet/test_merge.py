"""The topology manager: our merge against trying every combination, and the older rule."""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlite.numa.kubelet import merge
from koordlite.numa.kubelet.merge import Hint
from koordlite.numa.machine import mask_of, nodes_of, subsets
from tests.conformance.adapters import kubelet_managers

VECTORS = Path(__file__).parents[2] / "vectors" / "numa" / "topology_manager_merge.json"
OLDER = [case for case in json.loads(VECTORS.read_text()) if "expect_v1_23" in case]
ALL = (0, 1, 2)

hint = st.builds(Hint, st.none() | st.integers(1, 7), st.booleans())
providers = st.lists(
    st.none() | st.dictionaries(st.sampled_from("abc"), st.none() | st.lists(hint, max_size=4), max_size=2), max_size=3
)


def better(one: Hint, other: Hint, target: int) -> Hint:
    """The comparison as kubelet's comments tell it, one pair at a time."""
    mask, rival = one.mask or 0, other.mask or 0
    if one.preferred != other.preferred:
        return one if one.preferred else other
    size, rival_size = mask.bit_count(), rival.bit_count()
    narrower = one if (size, mask) <= (rival_size, rival) else other
    if one.preferred or size > target:
        return narrower
    if size == target:
        return narrower if rival_size == target else one
    if rival_size > target:
        return one
    if rival_size == target or rival_size > size:
        return other
    return one if rival_size < size else narrower


def every_combination(resources: Sequence[Sequence[Hint]], *, equal_masks: bool) -> Hint:
    everywhere = mask_of(ALL)
    target = max((min((h.mask.bit_count() for h in each if h.mask), default=0) for each in resources), default=0)
    found = []
    for chosen in itertools.product(*resources):
        masks = [h.mask for h in chosen if h.mask is not None]
        mask = functools.reduce(lambda a, b: a & b, masks, everywhere)
        alike = len(set(masks)) <= 1 or not equal_masks
        if mask:
            found.append(Hint(mask, all(h.preferred for h in chosen) and alike))
    return functools.reduce(lambda a, b: better(a, b, target), found) if found else Hint(everywhere, False)


@given(said=providers, equal_masks=st.booleans())
def test_the_merge_is_that_of_every_combination(said: Any, equal_masks: bool) -> None:
    resources = [
        [Hint(None, True)] if each is None else each or [Hint(None, False)]
        for provider in said
        for each in (provider.values() if provider else [None])
    ]
    best, admitted = merge.merge("restricted", said, merge.Rules(ALL, equal_masks=equal_masks))
    assert best == every_combination(resources, equal_masks=equal_masks)
    assert admitted == best.preferred


@pytest.mark.parametrize("case", OLDER, ids=[case["source"].rpartition("/")[2] for case in OLDER])
def test_older_kubelets_prefer_hints_with_different_masks_together(case: Any) -> None:
    assert kubelet_managers.merged_as_1_23(case["input"]) == case["expect_v1_23"]


def test_policy_none_asks_nobody() -> None:
    assert merge.merge("none", [{"cpu": []}], merge.Rules(ALL)) == (Hint(None, False), True)


def test_masks_and_their_order() -> None:
    assert [nodes for nodes, _ in subsets([4, 0])] == [(0,), (4,), (0, 4)]
    assert nodes_of(mask_of([63, 0])) == (0, 63)
    with pytest.raises(ValueError, match="NUMA node 64 is outside 0-63"):
        mask_of([64])


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"prefer-closest": "true"}, "unknown Topology Manager Policy option: 'prefer-closest'"),
        ({"max-allowable-numa-nodes": "many"}, "unable to convert policy option to integer"),
        ({"max-allowable-numa-nodes": "7"}, "should not be less than 8"),
    ],
)
def test_options_that_kubelet_does_not_start_with_are_refused(options: dict[str, str], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        merge.Options.parse(options)
