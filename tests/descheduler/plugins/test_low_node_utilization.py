"""Pods leave nodes that are too full, and only as many as the others take."""

from __future__ import annotations

from typing import Any

import handles
import msgspec
import pytest

from descheduler.framework import Finding, Usage, Verdict, View
from descheduler.plugins import low_node_utilization as plugin
from descheduler.utilization import args
from koordlite.model.errors import ConfigError
from koordlite.model.reading import strict

BOUNDS: dict[str, Any] = {"thresholds": {"cpu": 20}, "target_thresholds": {"cpu": 50}}


@pytest.fixture
def uneven(cluster: Any) -> Any:
    """Node a is full by 80 % of its 10 CPUs in pods of 1, b by 10 %, c by 30 %."""
    for name, pods in (("a", 8), ("b", 1), ("c", 3)):
        cluster.node(name, cpu="10")
        for number in range(pods):
            cluster.pod(f"{name}{number}", name, cpu="1")
    return cluster


def talk(view: View, *, refuse: dict[str, Verdict] | None = None, **config: Any) -> tuple[list[str], list[str]]:
    return handles.talk(plugin, view, plugin.Config(**{**BOUNDS, **config}), refuse)[:2]


@pytest.mark.parametrize(
    ("config", "note"),
    [
        pytest.param({"thresholds": {"cpu": 5}}, "NoUnderutilizedNode", id="nobody has room"),
        pytest.param({"number_of_nodes": 1}, "TooFewUnderutilizedNodes", id="too few have room"),
        pytest.param(
            {"thresholds": {"cpu": 80}, "target_thresholds": {"cpu": 90}}, "EveryNodeUnderutilized", id="all do"
        ),
        pytest.param({"target_thresholds": {"cpu": 80}}, "NoNodeTooFull", id="at the target is not above it"),
    ],
)
def test_why_nothing_is_done(uneven: Any, config: dict[str, Any], note: str) -> None:
    assert talk(uneven.view(), **config) == ([], [note])


def test_what_did_not_go_is_not_subtracted(uneven: Any) -> None:
    kept = {"a0": Verdict(evicted=False, reason="MinReplicas")}
    assert talk(uneven.view(), refuse=kept) == (["a1", "a2", "a3"], [])


def test_the_limit_of_the_cycle_ends_everything(uneven: Any) -> None:
    stop = {"a1": Verdict(evicted=False, reason="LimitTotal", stop="total")}
    assert talk(uneven.view(), refuse=stop) == (["a0"], [])


def test_the_node_reservation_is_not_there_to_be_used(cluster: Any) -> None:
    cluster.node("a", cpu="10", reservation={"resources": {"cpu": "4"}})
    cluster.node("b", cpu="10")
    for number in range(4):
        cluster.pod(f"a{number}", "a", cpu="1")
    assert talk(cluster.view()) == (["a0"], [])


def measured(view: View, nodes: dict[str, int], pods: dict[str, int]) -> View:
    usage = Usage(
        {name: {"cpu": cpu, "memory": 0} for name, cpu in nodes.items()},
        {f"default/{name}": {"cpu": cpu, "memory": 0} for name, cpu in pods.items()},
    )
    return msgspec.structs.replace(view, usage={"KubernetesMetrics": usage})


BY_METRICS: dict[str, Any] = {"metrics_utilization": args.MetricsUtilization(source="KubernetesMetrics")}


def test_one_node_without_measurement_stops_the_comparison(uneven: Any) -> None:
    assert talk(measured(uneven.view(), {"a": 1, "b": 1}, {}), **BY_METRICS) == ([], ["UsageUnknown"])
    assert talk(uneven.view(), **BY_METRICS) == ([], ["UsageUnknown"])


def queried(view: View, **percent: int) -> View:
    found = Usage({name: {"MetricResource": value} for name, value in percent.items()})
    return msgspec.structs.replace(view, usage={"Prometheus:q": found})


BY_QUERY: dict[str, Any] = {
    "thresholds": {"MetricResource": 20.0},
    "target_thresholds": {"MetricResource": 50.0},
    "metrics_utilization": args.MetricsUtilization(source="Prometheus", prometheus=args.PrometheusQuery(query="q")),
}


def test_a_query_knows_nothing_of_pods_so_one_goes_at_a_time(uneven: Any) -> None:
    view = queried(uneven.view(), a=30, b=10, c=90)
    assert talk(view, **BY_QUERY)[0] == ["c0"]
    assert talk(view, **BY_QUERY, eviction_limits=args.EvictionLimits(node=2))[0] == ["c0", "c1"]
    assert talk(queried(uneven.view(), a=30, b=10), **BY_QUERY) == ([], ["UsageUnknown"])


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("{}", "no resource threshold is configured"),
        ("thresholds: {cpu: 101}\ntargetThresholds: {cpu: 10}", "cpu threshold not in [0, 100] range"),
        ("thresholds: {cpu: 20}\ntargetThresholds: {memory: 50}", "different resources"),
        ("thresholds: {cpu: 60}\ntargetThresholds: {cpu: 50}", "cpu percentage is greater"),
        ("thresholds: {cpu: 1}\ntargetThresholds: {cpu: 5}\nmetricsUtilization: {source: Prometheus}", "query"),
        (
            "thresholds: {cpu: 1}\ntargetThresholds: {cpu: 5}\n"
            "metricsUtilization: {source: Prometheus, prometheus: {query: q}}",
            "MetricResource",
        ),
        (
            "thresholds: {cpu: 1}\ntargetThresholds: {cpu: 5}\n"
            "metricsUtilization: {source: KubernetesMetrics, metricsServer: true}",
            "not allowed to set both",
        ),
        (
            "thresholds: {cpu: 1}\ntargetThresholds: {cpu: 5}\n"
            "metricsUtilization: {source: KubernetesMetrics, prometheus: {query: q}}",
            "not allowed to set",
        ),
    ],
    ids=["none", "beyond 100", "other resources", "wrong order", "no query", "a query of cpu", "twice", "both"],
)
def test_arguments_that_mean_nothing_are_refused(text: str, word: str) -> None:
    with pytest.raises(ConfigError) as refused:
        strict.load(text, plugin.Config, "args.yaml")
    assert word in str(refused.value)


def test_the_finding_says_how_full_the_node_is(uneven: Any) -> None:
    view = uneven.view()
    said = handles.said(plugin, view, **BOUNDS)[0]
    assert isinstance(said, Finding)
    assert said.fact == "cpu 80.0% is used"
    assert said.promise == "at most cpu 50.0% of a is used"
    assert said.evidence == {"node": "a", "cpuPercent": 80.0, "cpuLimitPercent": 50.0}
