"""Metrics parse back to the numbers of the tick, under Koordinator's names and labels."""

from __future__ import annotations

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from reported import tick_of, tick_with

from koordlite import changes
from koordlite.model.status import AppliedStep, RequestHistogram
from koordlite.report.metrics.collector import KubeletMetrics, Metrics
from koordlite.report.tick import Tick

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


def scrape(metrics: Metrics) -> Series:
    families = text_string_to_metric_families(generate_latest(metrics.registry).decode())
    return {(s.name, frozenset(s.labels.items())): s.value for family in families for s in family.samples}


def key(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return name, frozenset({"node": "node-a", **labels}.items())


def offer(resource: str, unit: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return key("koordlet_node_resource_allocatable", node="node-a", resource=resource, unit=unit)


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(started=1_790_000_000.0)


@pytest.mark.parametrize(
    ("series", "value"),
    [
        (key("koordlet_start_time", node="node-a"), 1_790_000_000),
        (key("koordlet_node_used_cpu_cores", node="node-a"), 19.4),
        (key("koordlet_node_used_memory_bytes", node="node-a"), 64 << 30),
        (key("koordlet_be_suppress_cpu_cores", node="node-a", type="cpuset"), 13),
        (key("koordlet_be_suppress_ls_used_cpu_cores", node="node-a"), 6),
        (key("koordlet_be_suppress_be_used_cpu_cores", node="node-a"), 12),
        (key("koordlet_cpuset_share_pool_cpu_cores", node="node-a"), 26),
        (key("koordlet_cpuset_be_share_pool_cpu_cores", node="node-a"), 28),
        (key("koordlet_node_resource_allocatable", node="node-a", resource="kubernetes.io/batch-cpu", unit="core"), 5),
        (
            key(
                "koordlet_node_resource_allocatable", node="node-a", resource="kubernetes.io/batch-memory", unit="byte"
            ),
            40 << 30,
        ),
        (key("koordlite_be_budget_cpu_cores", node="node-a"), 13.4),
        (key("koordlite_input_age_seconds", input="config"), 3),
        (key("koordlite_mode_info", strategy="cpuSuppress", mode="enforce"), 1),
        (key("koordlite_status_info", status="enforcing"), 1),
        (key("koordlite_decisions_total", strategy="cpuSuppress", reason="BECPUBudget", verdict="grow"), 1),
        (key("koordlite_writes_total", kind="cpuset.cpus", result="ok"), 1),
        (key("koordlite_tick_seconds_count"), 1),
        (key("koordlet_resource_update_duration_milliseconds_count", type="cgroup", status="success"), 1),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_series(
    metrics: Metrics, ticks: tuple[Tick, ...], series: tuple[str, frozenset[tuple[str, str]]], value: float
) -> None:
    metrics.observe_tick(ticks[0])
    assert scrape(metrics)[series] == pytest.approx(value)


def test_every_series_has_the_node(metrics: Metrics, ticks: tuple[Tick, ...]) -> None:
    """Also histograms, and what another part of the process registered."""
    asked = {("get", "/pods", "200"): RequestHistogram().plus(2.0)}
    metrics.registry.register(KubeletMetrics(lambda: asked))
    for tick in ticks:
        metrics.observe_tick(tick)
    for _ in range(2):
        series = scrape(metrics)
        assert {name for name, labels in series if ("node", "node-a") not in labels} == set()
    assert any(name == "koordlet_kubelet_request_duration_seconds_bucket" for name, _ in series)


def test_no_node_is_made_up_before_the_first_tick(metrics: Metrics) -> None:
    assert all("node" not in dict(labels) for _, labels in scrape(metrics))


def test_counters_count_and_gauges_follow(metrics: Metrics, ticks: tuple[Tick, ...]) -> None:
    for tick in ticks:
        metrics.observe_tick(tick)
    found = scrape(metrics)
    assert found[key("koordlite_writes_total", kind="cpuset.cpus", result="ok")] == 38
    assert found[key("koordlite_foreign_writes_total", kind="cpuset.cpus")] == 1
    assert found[key("koordlet_be_suppress_be_used_cpu_cores", node="node-a")] == 16


def test_a_refusal_is_counted_as_one(metrics: Metrics) -> None:
    step = AppliedStep(changes.parse("resctrl/BE/L3"), "L3:0=0", ok=False, error="EINVAL", seconds=0.001)
    metrics.observe_tick(tick_of(time=0.0, node="node-a", applied=(step,)))
    found = scrape(metrics)
    assert found[key("koordlite_writes_total", kind="resctrl L3", result="refused")] == 1
    name = "koordlet_resource_update_duration_milliseconds_sum"
    assert found[key(name, type="resctrl-schema", status="failed")] == pytest.approx(1.0)


def test_what_is_unknown_or_gone_has_no_series(metrics: Metrics, ticks: tuple[Tick, ...]) -> None:
    metrics.observe_tick(ticks[0])
    gone = tick_with(ticks[1], node_cpu=None, be_limit=None, batch_cpu=None, modes={}, ls_pool="?")
    metrics.observe_tick(gone)
    names = {name for name, _ in scrape(metrics)}
    assert not names & {
        "koordlet_node_used_cpu_cores",
        "koordlet_be_suppress_cpu_cores",
        "koordlite_mode_info",
        "koordlet_cpuset_share_pool_cpu_cores",
    }
    assert "koordlet_be_suppress_ls_used_cpu_cores" in names


def test_before_the_first_tick_there_is_nothing_to_say(metrics: Metrics) -> None:
    assert not [name for name, _ in scrape(metrics) if name.startswith("koordlet_")]


def test_two_agents_in_one_process_do_not_share_series(ticks: tuple[Tick, ...]) -> None:
    first, second = Metrics(), Metrics()
    first.observe_tick(ticks[0])
    assert key("koordlite_status_info", status="enforcing") not in scrape(second)
