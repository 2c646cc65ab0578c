"""Waiting, memory by NUMA node and percentiles can be scraped, and are missing where the kernel is silent."""

from __future__ import annotations

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from reported import tick_of

from koordlite import changes
from koordlite.model.picture.usage import Pressure, Stall, Use
from koordlite.model.status import AppliedStep
from koordlite.report.metrics.collector import Metrics
from koordlite.report.tick import Tick

WAITING = Pressure(Stall(12.5, 3.0, 1.0, 2_500_000), None)
TICK = tick_of(
    time=1.0,
    node="n",
    pressure={"node": {"cpu": WAITING}, "besteffort": {"memory": Pressure(WAITING.some, Stall(1.0, 0.0, 0.0, 7))}},
    numa_memory={"node": {0: 1024, 3: 4096}},
    node_percentiles={50: Use(1500, 10), 99: Use(4000, 20)},
)


def scrape(tick: Tick) -> dict[str, float]:
    """Series by name and labels without the node's, as they are printed."""
    metrics = Metrics()
    metrics.observe_tick(tick)
    families = text_string_to_metric_families(generate_latest(metrics.registry).decode())
    samples = [sample for family in families for sample in family.samples]
    return {" ".join([s.name, *(v for k, v in sorted(s.labels.items()) if k != "node")]): s.value for s in samples}


@pytest.mark.parametrize(
    ("series", "value"),
    [
        ("koordlite_pressure_ratio some cpu 10 node", 0.125),
        ("koordlite_pressure_ratio some cpu 300 node", 0.01),
        ("koordlite_pressure_ratio full memory 10 besteffort", 0.01),
        ("koordlite_pressure_seconds_total some cpu node", 2.5),
        ("koordlite_numa_memory_used_bytes 3 node", 4096),
        ("koordlite_node_used_cpu_cores_percentile 50", 1.5),
        ("koordlite_node_used_cpu_cores_percentile 99", 4.0),
        ("koordlite_node_used_memory_bytes_percentile 99", 20),
    ],
)
def test_series(series: str, value: float) -> None:
    assert scrape(TICK)[series] == pytest.approx(value)


def test_a_kernel_that_does_not_say_full_has_no_series_of_it() -> None:
    assert not [name for name in scrape(TICK) if name.startswith("koordlite_pressure") and "full cpu" in name]


def test_a_silent_kernel_has_no_series() -> None:
    named = ("koordlite_pressure", "koordlite_numa", "koordlite_node_used")
    assert not [name for name in scrape(tick_of(time=0.0, node="n")) if name.startswith(named)]


@pytest.mark.parametrize(
    ("error", "word"),
    [
        pytest.param("EBUSY: Device or resource busy (/sys/fs/cgroup/x)", "EBUSY", id="the kernel's word"),
        pytest.param("a budget says no", "other", id="no word of a kernel"),
        pytest.param("webhook: denied", "other", id="a colon is no errno"),
    ],
)
def test_refusals_are_counted_by_kind_of_file_and_errno(error: str, word: str) -> None:
    step = AppliedStep(changes.parse("kubepods/besteffort/cpuset.cpus"), "0", ok=False, error=error)
    found = scrape(tick_of(time=0.0, applied=(step, step)))
    assert found[f"koordlite_write_errors_total {word} cpuset.cpus"] == 2
