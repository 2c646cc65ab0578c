"""The order in which pods should go, so that whole nodes become empty."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from descheduler.plugins.scale_down_bin_pack import LAST

NAME = "ScaleDownBinPack"
TARGETS = {"podSelectors": [{"name": "web", "selector": {"matchLabels": {"app": "web"}}}]}
DIRECT = {**TARGETS, "strategy": "EvictDirectly"}


@pytest.fixture
def spread(cluster: Any) -> Any:
    """`a` runs web pods beside a large service, `b` web pods alone, `c` nothing that is chosen."""
    for name in ("a", "b", "c"):
        cluster.node(name)
    cluster.pod("a-web", "a", cpu="2", labels={"app": "web"})
    cluster.pod("a-db", "a", cpu="8", owner="db")
    cluster.pod("b-small", "b", cpu="1", labels={"app": "web"})
    cluster.pod("b-large", "b", cpu="4", labels={"app": "web"})
    cluster.pod("c-db", "c", cpu="8", owner="db")
    return cluster


@pytest.fixture
def costs(work: Any) -> Any:
    """The deletion costs by the name of the pod."""

    def read(args: Any, **more: Any) -> dict[str, int]:
        plan = work(NAME, args, **more)
        return {plan.view.by_uid[cost.pod].pod.name: cost.cost for cost in plan.deletion_costs}

    return read


def test_nodes_that_become_empty_come_first_and_large_pods_before_small_ones(spread: Any, costs: Any) -> None:
    assert costs(TARGETS) == {"b-large": 0, "b-small": 1, "a-web": 2}


def test_pods_that_may_not_be_evicted_go_last_and_count_as_staying(spread: Any, costs: Any) -> None:
    spread.pod("b-bare", "b", cpu="4", owner="", labels={"app": "web"})
    assert costs(TARGETS) == {"b-large": 0, "b-small": 1, "b-bare": LAST, "a-web": 2}


@pytest.mark.parametrize(
    ("more", "first"),
    [
        pytest.param({"started": "2026-01-01T09:00:00Z"}, "newcomer", id="the newer one of two equal ones"),
        pytest.param({"started": "2026-01-01T07:00:00Z"}, "b-large", id="the older one stays"),
        pytest.param({}, "b-large", id="then by name"),
    ],
)
def test_equal_pods(spread: Any, costs: Any, more: Any, first: str) -> None:
    spread.pod("newcomer", "b", cpu="4", labels={"app": "web"}, **more)
    found = costs(TARGETS)
    assert min(found, key=found.__getitem__) == first


@pytest.mark.parametrize(
    ("args", "names"),
    [
        pytest.param({"paused": True}, set(), id="paused"),
        pytest.param({"nodeSelector": {"matchLabels": {"kubernetes.io/hostname": "a"}}}, {"a-web"}, id="one node"),
        pytest.param({"evictableNamespaces": {"exclude": ["default"]}}, set(), id="no namespace"),
    ],
)
def test_which_pods_get_a_cost(spread: Any, costs: Any, args: Any, names: set[str]) -> None:
    assert set(costs({**TARGETS, **args})) == names


def test_without_selectors_all_pods_are_chosen(spread: Any, costs: Any) -> None:
    assert list(costs({})) == ["c-db", "a-db", "a-web", "b-large", "b-small"]


def test_a_pod_requests_no_pods(spread: Any, costs: Any) -> None:
    """As in Koordinator: a weight of `pods` makes no pod large, and no node full."""
    assert costs({**TARGETS, "resourceWeights": {"cpu": 1, "pods": 1e6}}) == costs(TARGETS)
    assert list(costs({**TARGETS, "resourceWeights": {"pods": 1}})) == ["a-web", "b-large", "b-small"]


def test_weights_say_what_large_means(spread: Any, costs: Any) -> None:
    spread.pod("b-broad", "b", cpu="1", memory="32Gi", labels={"app": "web"})
    assert next(iter(costs({**TARGETS, "resourceWeights": {"cpu": 1}}))) == "b-large"
    assert next(iter(costs({**TARGETS, "resourceWeights": {"memory": 1}}))) == "b-broad"


def test_evicting_directly_follows_the_order_up_to_its_limit(spread: Any, evicted: Any, work: Any) -> None:
    assert evicted(NAME, DIRECT) == ["b-large", "b-small", "a-web"]
    assert evicted(NAME, {**DIRECT, "maxPodsToEvict": 2}) == ["b-large", "b-small"]
    assert evicted(NAME, {**DIRECT, "maxPodsToEvict": 0}) == ["b-large", "b-small", "a-web"]
    plan = work(NAME, DIRECT, total=1)
    assert [outcome.pod.pod.name for outcome in plan.evict] == ["b-large"]
    assert plan.deletion_costs == ()


@pytest.mark.parametrize(
    ("args", "word"),
    [
        ({"strategy": "Sometimes"}, "strategy"),
        ({"maxPodsToEvict": -1}, "maxPodsToEvict"),
        ({"resourceWeights": {"cpu": -1}}, "weights are numbers from 0"),
    ],
)
def test_arguments_that_say_nothing_are_refused(refused: Any, args: Any, word: str) -> None:
    assert word in refused(NAME, args)


@given(st.dictionaries(st.sampled_from(["cpu", "memory", "nvidia.com/gpu"]), st.floats(0, 1e6), max_size=3))
def test_any_weights_give_every_chosen_pod_one_place(weights: dict[str, float]) -> None:
    from descheduler.plugins import scale_down_bin_pack as rule

    config = rule.Config(resource_weights=weights)
    assert set(config.weights) == set(weights or {"cpu", "memory"})
