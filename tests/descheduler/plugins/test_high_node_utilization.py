"""Nearly empty nodes are emptied, as far as the others take their pods."""

from __future__ import annotations

from typing import Any

import handles
import pytest

from descheduler.framework import Finding, View
from descheduler.plugins import high_node_utilization as plugin
from koordlite.model.errors import ConfigError
from koordlite.model.reading import strict


@pytest.fixture
def sparse(cluster: Any) -> Any:
    """Nodes of 10 CPUs in pods of 1: a and b nearly empty, c half full."""
    for name, pods in (("a", 2), ("b", 1), ("c", 5)):
        cluster.node(name, cpu="10")
        for number in range(pods):
            cluster.pod(f"{name}{number}", name, cpu="1")
    return cluster


def talk(view: View, **config: Any) -> tuple[list[str], list[str]]:
    return handles.talk(plugin, view, plugin.Config(**{"thresholds": {"cpu": 20}, **config}))[:2]


@pytest.mark.parametrize(
    ("config", "note"),
    [
        pytest.param({"thresholds": {"cpu": 5}}, "NoNodeNearlyEmpty", id="nobody is"),
        pytest.param({"number_of_nodes": 2}, "TooFewNodesNearlyEmpty", id="too few are"),
        pytest.param({"thresholds": {"cpu": 50}}, "EveryNodeNearlyEmpty", id="all are"),
    ],
)
def test_why_nothing_is_done(sparse: Any, config: dict[str, Any], note: str) -> None:
    assert talk(sparse.view(), **config) == ([], [note])


def test_only_pods_that_ask_for_what_is_compared_may_be_chosen(sparse: Any) -> None:
    next(o for o in sparse.objects if o["metadata"]["name"] == "b0")["spec"]["containers"][0]["resources"] = {}
    assert talk(sparse.view())[0] == ["b0", "a0", "a1"]
    assert talk(sparse.view(), eviction_modes=("OnlyThresholdingResources",))[0] == ["a0", "a1"]


@pytest.mark.parametrize("text", ["{}", "thresholds: {cpu: -1}", "thresholds: {cpu: 1}\nevictionModes: [All]"])
def test_arguments_that_mean_nothing_are_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        strict.load(text, plugin.Config, "args.yaml")


def test_the_finding_says_how_empty_the_node_is(sparse: Any) -> None:
    view = sparse.view()
    said = handles.said(plugin, view, thresholds={"cpu": 20})[0]
    assert isinstance(said, Finding)
    assert said.fact == "cpu 10.0% is requested there"
    assert said.evidence == {"node": "b", "cpuPercent": 10.0, "cpuLimitPercent": 20}
