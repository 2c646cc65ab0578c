"""Nodes that are given up first are emptied towards those further down the list."""

from __future__ import annotations

from typing import Any

import pytest

NAME = "CustomPriority"
ORDER = [
    {"name": "spot", "nodeSelector": {"matchLabels": {"pool": "spot"}}},
    {"name": "rented", "nodeSelector": {"matchLabels": {"pool": "rented"}}},
    {"name": "own", "nodeSelector": {"matchLabels": {"pool": "own"}}},
]
ARGS = {"evictionOrder": ORDER}


@pytest.fixture
def pools(cluster: Any) -> Any:
    """A node of 16 CPUs in each pool; pods of 2 and 4 CPUs on `spot`, of 2 on `rented`."""
    for name in ("spot", "rented", "own"):
        cluster.node(name, labels={"pool": name})
    cluster.pod("large", "spot", cpu="4")
    cluster.pod("small", "spot", cpu="2")
    cluster.pod("tenant", "rented", cpu="2")
    return cluster


def test_each_level_is_emptied_towards_later_ones_the_smallest_pod_first(pools: Any, evicted: Any) -> None:
    assert evicted(NAME, ARGS) == ["small", "large", "tenant"]


def test_the_last_level_keeps_its_pods(pools: Any, evicted: Any) -> None:
    pools.pod("home", "own", cpu="2")
    assert "home" not in evicted(NAME, ARGS)


def test_a_node_belongs_to_the_first_level_that_selects_it(pools: Any, evicted: Any) -> None:
    order = [{"name": "all", "nodeSelector": {}}, *ORDER]
    assert evicted(NAME, {"evictionOrder": order}) == []


def test_pods_that_have_no_room_together_are_not_counted_twice(pools: Any, evicted: Any) -> None:
    pools.pod("full-a", "rented", cpu="12")
    pools.pod("full-b", "own", cpu="12")
    assert evicted(NAME, ARGS) == ["small", "tenant"]


def test_after_five_pods_that_fit_nowhere_the_larger_ones_are_not_asked(pools: Any, evicted: Any) -> None:
    for name in ("rented", "own"):
        pools.pod(f"full-{name}", name, cpu="9")
    for number in range(5):
        pools.pod(f"odd{number}", "spot", cpu="3", memory="128Gi")
    assert "large" not in evicted(NAME, ARGS)
    pools.objects.pop()
    assert "large" in evicted(NAME, ARGS)


def test_a_node_is_drained_as_a_whole_or_not_at_all(pools: Any, evicted: Any, work: Any) -> None:
    drain = {**ARGS, "mode": "DrainNode"}
    assert evicted(NAME, drain) == ["small", "large", "tenant"]
    pools.pod("full-a", "rented", cpu="12")
    pools.pod("full-b", "own", cpu="14")
    plan = work(NAME, drain)
    assert [note.reason for note in plan.notes] == ["NotDrainable", "NotDrainable"]
    assert plan.evict == ()


def test_what_room_there_is_by_requests_is_not_all(pools: Any, evicted: Any) -> None:
    for name in ("rented", "own"):
        node = next(o for o in pools.objects if o["metadata"]["name"] == name)
        node["spec"]["taints"] = [{"key": "closed", "effect": "NoSchedule"}]
    assert evicted(NAME, {**ARGS, "mode": "DrainNode"}) == []
    assert evicted(NAME, {**ARGS, "mode": "DrainNode", "nodeFit": False}) == ["small", "large", "tenant"]


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"paused": True}, id="paused"),
        pytest.param({"dryRun": True}, id="dry run"),
        pytest.param({"evictableNamespaces": {"exclude": ["default"]}}, id="namespaces left out"),
        pytest.param({"podSelectors": [{"name": "x", "selector": {"matchLabels": {"a": "b"}}}]}, id="pods left out"),
        pytest.param({"nodeSelector": {"matchLabels": {"pool": "spot"}}}, id="the other nodes left out"),
    ],
)
def test_nobody_goes(pools: Any, evicted: Any, more: Any) -> None:
    assert evicted(NAME, {**ARGS, **more}) == []


@pytest.mark.parametrize(
    ("name", "args"),
    [
        pytest.param(NAME, ARGS, id="CustomPriority"),
        *(pytest.param(name, {}, id=name) for name in ("FragmentationAware", "LowNodeLoad", "ScaleDownBinPack")),
    ],
)
def test_a_plugin_that_is_paused_judges_nothing_and_says_so(pools: Any, work: Any, name: str, args: Any) -> None:
    plan = work(name, {**args, "paused": True})
    assert [(note.plugin, note.reason, note.text) for note in plan.notes] == [(name, "Paused", f"{name} is paused")]
    assert plan.not_judged == plan.not_judged_by[name] > 0
    assert not plan.outcomes


@pytest.mark.parametrize(
    ("args", "word"),
    [
        pytest.param({}, "two levels", id="no level"),
        pytest.param({"evictionOrder": ORDER[:1]}, "two levels", id="one level"),
        pytest.param({"evictionOrder": [ORDER[0], ORDER[0]]}, "twice", id="a level twice"),
        pytest.param({"evictionOrder": [{"name": "x"}, ORDER[0]]}, "nodeSelector", id="a level without nodes"),
        pytest.param({**ARGS, "mode": "Gently"}, "mode", id="an unknown mode"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(refused: Any, args: Any, word: str) -> None:
    assert word in refused(NAME, args)


@pytest.mark.parametrize(
    ("more", "closed"),
    [
        pytest.param({"mode": "DrainNode", "autoCordon": True}, ("spot", "rented"), id="nodes that are emptied"),
        pytest.param({"mode": "DrainNode"}, (), id="not without autoCordon"),
        pytest.param({"autoCordon": True}, (), id="not in BestEffort"),
        pytest.param({"mode": "DrainNode", "autoCordon": True, "dryRun": True}, (), id="not in a dry run"),
    ],
)
def test_which_nodes_are_cordoned(pools: Any, work: Any, more: Any, closed: tuple[str, ...]) -> None:
    assert work(NAME, {**ARGS, **more}).cordon == closed
