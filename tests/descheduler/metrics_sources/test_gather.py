"""Measurements of NodeMetric, the metrics API and Prometheus, as the plugins of a policy ask for them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from descheduler import plugins
from descheduler.arguments.evictor import Args
from descheduler.filters.limits import Limits
from descheduler.metrics_sources import gather
from descheduler.metrics_sources.gather import Gatherer, Smoothed, smooth
from descheduler.picture.cluster import Usage
from descheduler.plan import Profile, Setup
from descheduler.policy.upstream import MetricsProvider
from koordlite.kube.client.answers import Answer, ApiError
from koordlite.model.reading import strict

PAIR = "thresholds: {cpu: 20}\ntargetThresholds: {cpu: 50}\n"
BY_METRICS = PAIR + "metricsUtilization: {source: KubernetesMetrics}\n"
BY_QUERY = (
    "thresholds: {MetricResource: 20}\ntargetThresholds: {MetricResource: 50}\n"
    "metricsUtilization: {source: Prometheus, prometheus: {query: q}}\n"
)


def setup(*configs: str) -> Setup:
    plugin = plugins.discover()["LowNodeUtilization"]
    chosen = tuple((plugin, strict.load(text, plugin.config, "args")) for text in configs)
    return Setup(profiles=(Profile("p", chosen, Args()),), limits=Limits())


class Server:
    """Answers the two lists of the metrics API."""

    def __init__(self, cpu: str = "1") -> None:
        self.cpu = cpu

    def request(self, method: str, path: str) -> Answer:
        usage = {"cpu": self.cpu, "memory": "1Mi"}
        node = {"metadata": {"name": "a"}, "usage": usage}
        containers = [{"name": "x", "usage": usage}, {"name": "y", "usage": usage}]
        pod = {"metadata": {"name": "p", "namespace": "default"}, "containers": containers}
        body = {"items": [node if path == gather.NODES else pod]}
        return Answer(200, {}, json.dumps(body).encode())


class Refusing:
    """A cluster without a metrics server."""

    def request(self, method: str, path: str) -> Answer:
        raise ApiError(404, "NotFound", "the server could not find the requested resource")


def test_only_what_plugins_need_is_asked_for(cluster: Any) -> None:
    assert gather.required_sources(setup(PAIR)) == ()
    assert gather.required_sources(setup(BY_METRICS, BY_METRICS, BY_QUERY)) == (
        ("KubernetesMetrics", ""),
        ("Prometheus", "q"),
    )
    assert Gatherer(Refusing()).measure(cluster.view(), setup(PAIR)).usage == {}


def test_the_metrics_api_is_read_in_two_lists_and_smoothed(cluster: Any) -> None:
    cluster.node("a")
    server = Server("1")
    gatherer = Gatherer(server)
    first = gatherer.measure(cluster.view(), setup(BY_METRICS)).usage["KubernetesMetrics"]
    assert first.nodes == {"a": {"cpu": 1000, "memory": 2**20}}
    assert first.pods == {"default/p": {"cpu": 2000, "memory": 2 * 2**20}}
    server.cpu = "2"
    second = gatherer.measure(cluster.view(), setup(BY_METRICS)).usage["KubernetesMetrics"]
    assert second.nodes["a"]["cpu"] == 1100
    assert second.pods["default/p"]["cpu"] == 4000


@pytest.mark.parametrize(
    ("gatherer", "text", "name", "word"),
    [
        (Gatherer(Refusing()), BY_METRICS, "KubernetesMetrics", "could not find"),
        (Gatherer(), BY_METRICS, "KubernetesMetrics", "files hold no NodeMetrics"),
        (Gatherer(), BY_QUERY, "Prometheus:q", "metricsProviders"),
    ],
    ids=["no metrics server", "files without measurements", "no Prometheus configured"],
)
def test_why_there_is_no_measurement(cluster: Any, gatherer: Gatherer, text: str, name: str, word: str) -> None:
    assert word in gatherer.measure(cluster.view(), setup(text)).usage[name].absent


def test_measurements_in_the_files_are_used(cluster: Any) -> None:
    cluster.add({"kind": "NodeMetrics", "metadata": {"name": "a"}, "usage": {"cpu": "3"}})
    view = Gatherer().measure(cluster.view(), setup(BY_METRICS))
    assert view.usage["KubernetesMetrics"].nodes == {"a": {"cpu": 3000}}


def test_a_node_that_a_sample_lacks_keeps_its_use_until_it_is_gone() -> None:
    smoothed = Smoothed()
    smoothed.add(Usage({"a": {"cpu": 10}, "b": {"cpu": 20}}))
    assert smoothed.add(Usage({"a": {"cpu": 10}})).nodes == {"a": {"cpu": 10}, "b": {"cpu": 20}}
    smoothed.keep(["a"])
    assert smoothed.add(Usage(absent="down")).nodes == {"a": {"cpu": 10}}


@pytest.mark.parametrize(("old", "sample", "mixed"), [(1000, 2000, 1100), (10, 0, 9), (10, 15, 11), (0, 5, 1)])
def test_one_step_of_the_average(old: int, sample: int, mixed: int) -> None:
    assert smooth(old, sample) == mixed


def test_a_node_metric_counts_the_system_and_all_pods(cluster: Any) -> None:
    pods = [
        {"namespace": "n", "name": "p", "podUsage": {"resources": {"cpu": "1500m"}}},
        {"namespace": "n", "name": "q"},
    ]
    metric = {"nodeUsage": {"resources": {"cpu": "9"}}, "systemUsage": {"resources": {"cpu": "500m"}}}
    status = {"updateTime": "2026-01-01T11:59:30Z", "nodeMetric": metric, "podsMetric": pods}
    cluster.add({"kind": "NodeMetric", "metadata": {"name": "a"}, "status": status})
    cluster.add({"kind": "NodeMetric", "metadata": {"name": "empty"}})
    usage = cluster.view().usage["NodeMetric"]
    assert usage.nodes == {"a": {"cpu": 2000}}
    assert usage.pods == {"n/p": {"cpu": 1500}, "n/q": {}}
    assert usage.ages == {"a": 30.0}


def provider(**prometheus: Any) -> MetricsProvider:
    text = json.dumps({"source": "Prometheus", "prometheus": {"url": "http://127.0.0.1:1", **prometheus}})
    return strict.load(text, MetricsProvider, "policy")


class Secrets:
    """Answers one Secret."""

    def __init__(self, data: dict[str, str]) -> None:
        self.data = data

    def request(self, method: str, path: str) -> Answer:
        assert path == "/api/v1/namespaces/monitoring/secrets/prom"
        return Answer(200, {}, json.dumps({"data": self.data}).encode())


SECRET = {"authToken": {"secretReference": {"namespace": "monitoring", "name": "prom"}}}


def test_the_token_comes_from_the_secret_that_the_policy_names() -> None:
    server = gather.of_policy([provider(**SECRET)], Secrets({gather.TOKEN_KEY: "c2VjcmV0"})).server
    assert server is not None
    assert server.token() == "secret"


@pytest.mark.parametrize(
    ("api", "word"),
    [
        (Secrets({}), "has nothing under prometheusAuthToken"),
        (Secrets({gather.TOKEN_KEY: "not base64!"}), "cannot be read"),
        (Refusing(), "could not find"),
        (None, "none is asked"),
    ],
    ids=["empty", "garbled", "not there", "no cluster"],
)
def test_without_its_token_a_server_is_not_asked(api: Any, word: str) -> None:
    server = gather.of_policy([provider(**SECRET)], api).server
    assert server is not None
    assert word in gather.usage(server, "q").absent


def test_a_policy_without_prometheus_has_no_server() -> None:
    assert gather.of_policy([MetricsProvider()], None).server is None
    assert gather.of_policy([provider()], None).server is not None
