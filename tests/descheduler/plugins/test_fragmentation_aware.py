"""From an uneven node the one pod leaves that evens it out most."""

from __future__ import annotations

from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from descheduler.plugins.fragmentation_aware import imbalance

NAME = "FragmentationAware"


@pytest.fixture
def uneven(cluster: Any) -> Any:
    """`a` has 14 of 16 CPUs and 10 of 64 GiB requested; `b` is empty."""
    cluster.node("a")
    cluster.node("b")
    cluster.pod("large", "a", cpu="8", memory="1Gi")
    cluster.pod("small", "a", cpu="2", memory="1Gi")
    cluster.pod("broad", "a", cpu="4", memory="8Gi")
    return cluster


def test_the_pod_with_the_largest_gain_goes_and_no_other(uneven: Any, evicted: Any) -> None:
    assert evicted(NAME) == ["large"]


@pytest.mark.parametrize(
    ("args", "gone"),
    [
        pytest.param({"imbalanceThreshold": 0.5}, [], id="a node below the threshold stays as it is"),
        pytest.param({"minImprovementThreshold": 0.4}, [], id="a gain that is too small moves nobody"),
        pytest.param({"resources": ["cpu"]}, [], id="one resource alone is never uneven"),
        pytest.param({"paused": True}, [], id="paused"),
        pytest.param({"dryRun": True}, [], id="dry run"),
        pytest.param({"evictableNamespaces": {"exclude": ["default"]}}, [], id="namespaces that are left out"),
        pytest.param({"nodeSelector": {"matchLabels": {"kubernetes.io/hostname": "b"}}}, [], id="nodes left out"),
    ],
)
def test_nobody_goes(uneven: Any, evicted: Any, args: Any, gone: list[str]) -> None:
    assert evicted(NAME, args) == gone


@pytest.fixture
def tilted(cluster: Any) -> Any:
    """`a` has 6 of 8 CPUs and 1 of 8 GiB requested: without `p` both parts are an eighth."""
    cluster.node("a", cpu="8", memory="8Gi")
    cluster.node("b", cpu="8", memory="8Gi")
    cluster.pod("p", "a", cpu="5", memory="0", labels={"t": "1"})
    cluster.pod("q", "a", cpu="1", memory="1Gi")
    return cluster


def test_each_pod_counts_as_one_of_pods(tilted: Any, work: Any) -> None:
    """6 of 8 CPUs are requested, and 2 of 8 pods are there; without `p` it is one of each."""
    tilted.objects[0]["status"]["allocatable"]["pods"] = "8"
    plan = work(NAME, {"resources": ["cpu", "pods"]})
    assert "stdBefore=0.2500 stdAfter=0.0000" in plan.evict[0].main.fact


def test_the_finding_says_what_koordinator_says(tilted: Any, work: Any) -> None:
    plan = work(NAME)
    assert "fragmentation reduction: stdBefore=0.3125 stdAfter=0.0000 gain=0.3125" in plan.evict[0].main.fact


@pytest.mark.parametrize("args", [None, {}, {"resources": []}, {"resources": None}], ids=str)
def test_what_is_not_given_has_its_default(tilted: Any, evicted: Any, args: Any) -> None:
    assert evicted(NAME, args) == ["p"]


def test_dry_run_still_reports(uneven: Any, work: Any) -> None:
    plan = work(NAME, {"dryRun": True})
    assert [(o.pod.pod.name, o.reasons[0].reason) for o in plan.kept] == [("large", "OnlyExposed")]


@pytest.mark.parametrize(
    ("args", "word"),
    [
        pytest.param({"resources": ["cpu", "cpu"]}, "twice", id="a resource twice"),
        pytest.param({"imbalanceThreshold": -0.1}, "imbalanceThreshold", id="a negative threshold"),
        pytest.param({"minImprovementThreshold": -1}, "minImprovementThreshold", id="a negative gain"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(refused: Any, args: Any, word: str) -> None:
    assert word in refused(NAME, args)


@hypothesis.settings(deadline=None)
@hypothesis.given(
    st.dictionaries(st.sampled_from("abcd"), st.integers(0, 100), min_size=1),
    st.integers(1, 1000),
)
def test_imbalance_is_within_its_bounds_and_even_use_has_none(parts: dict[str, int], scale: int) -> None:
    held = dict.fromkeys(parts, 100 * scale)
    used = {name: part * scale for name, part in parts.items()}
    assert 0 <= imbalance(used, held) <= 0.5
    assert imbalance(dict.fromkeys(parts, 7), held) == 0
