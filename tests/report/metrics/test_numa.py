"""The NUMA exporter: what it says of an emulated node, in which names, and that Prometheus accepts them."""

from __future__ import annotations

import subprocess
import urllib.request

import dashboards
import pytest
from emulated import Emulated
from prometheus_client import exposition

from koordlite.cli import serving
from koordlite.config import NumaExporter
from koordlite.host.files import RealFiles
from koordlite.model.errors import InputError
from koordlite.model.picture.usage import NumaCounters
from koordlite.model.snapshot import Snapshot
from koordlite.model.topology import Topology
from koordlite.observe import numa
from koordlite.report.metrics.numa import NumaMetrics


@pytest.fixture(scope="module")
def metrics(tmp_path_factory: pytest.TempPathFactory) -> NumaMetrics:
    """Of a node with two NUMA nodes of 16 CPUs, CPU 0 reserved, a pod that was assigned CPUs 2 and 3, and one without a
    QoS class that claims 4 and 5."""
    node = Emulated("intel-2s-ht", tmp_path_factory.mktemp("numa"))
    node.node(reservation='{"reservedCPUs":"0"}')
    node.pod("web", "LSR", "2", request="2", status='{"cpuset":"2-3"}')
    node.pod("claims", "", "2", request="2", guaranteed=True, status='{"cpuset":"4-5"}')
    found = NumaMetrics(lambda machine: numa.counters(node.sandbox.files, machine), _nothing, node="")
    found.other_names = True
    *_, tick = node.ticks(node.agent(None), 3)
    found.snapshot = tick.snapshot
    return found


def _nothing() -> Topology:
    return Topology((), ())


def values(metrics: NumaMetrics, name: str, *labels: str) -> dict[tuple[str, ...], float]:
    """By these labels."""
    samples = (sample for family in metrics.registry.collect() for sample in family.samples if sample.name == name)
    return {tuple(sample.labels[label] for label in labels): sample.value for sample in samples}


def test_the_count_of_cpus_comes_first(metrics: NumaMetrics) -> None:
    text = exposition.generate_latest(metrics.registry).decode()
    assert text.startswith("# HELP numa_node_cpus_count ")
    assert values(metrics, "numa_node_cpus_count", "numa_node") == {("0",): 16, ("1",): 16}


def test_cpus_are_exclusive_shared_or_reserved(metrics: NumaMetrics) -> None:
    parts = ("exclusive", "shared_pool", "reserved")
    found = [values(metrics, f"numa_node_{part}_cpus_count", "numa_node") for part in parts]
    exclusive, shared, reserved = (each[("0",)] for each in found)
    assert exclusive == 2
    assert reserved >= 1
    assert shared == 16 - exclusive - 1


def test_a_container_is_shown_where_it_may_run(metrics: NumaMetrics) -> None:
    found = values(metrics, "numa_container_cpus_count", "pod", "numa_node")
    assert found[("web", "0")] + found[("web", "1")] >= 2


def test_distances_and_memory_are_those_of_the_machine(metrics: NumaMetrics) -> None:
    far = values(metrics, "numa_node_distance", "from", "to")
    assert far[("0", "0")] == far[("1", "1")] == 10
    assert far[("0", "1")] == far[("1", "0")] > 10
    parts = (
        values(metrics, f"numa_node_memory_{part}_bytes", "numa_node")[("1",)] for part in ("used", "free", "total")
    )
    used, free, total = parts
    assert used + free == total


def test_counters_only_grow(metrics: NumaMetrics) -> None:
    assert values(metrics, "numa_node_cpu_idle_seconds_total", "numa_node")[("0",)] > 0
    assert values(metrics, "numa_node_cpu_used_seconds_total", "numa_node")[("0",)] >= 0


def test_other_exporters_names_only_on_request(metrics: NumaMetrics) -> None:
    assert values(metrics, "numainfo_core_count", "numanode", "type")[("node00", "allocation")] == 2
    assert values(metrics, "numa_cpu_free", "numa")[("1",)] == 16
    plain = NumaMetrics(lambda machine: (), _nothing, node="n")
    plain.snapshot = metrics.snapshot
    assert not values(plain, "numainfo_core_count", "numanode", "type")


def test_what_cannot_be_read_has_no_series(metrics: NumaMetrics) -> None:
    assert isinstance(metrics.snapshot, Snapshot)
    blind = NumaMetrics(lambda machine: [NumaCounters(node=0)], _nothing, node="n")
    blind.snapshot = metrics.snapshot
    assert values(blind, "numa_node_memory_used_bytes", "numa_node") == {}
    assert values(blind, "numa_node_cpus_count", "numa_node") == {("0",): 16, ("1",): 16}


def test_promtool_finds_nothing_but_the_names_that_are_others(metrics: NumaMetrics) -> None:
    text = exposition.generate_latest(metrics.registry)
    command = [dashboards.tool("promtool"), "check", "metrics"]
    done = subprocess.run(command, input=text, capture_output=True, check=False, timeout=30)
    left = {line for line in (done.stdout + done.stderr).decode().splitlines() if "_count" not in line.split(" ")[0]}
    assert left <= {""}


def test_it_listens_where_it_is_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    with serving.exported(RealFiles(), NumaExporter(listen="127.0.0.1:0"), node="this"):
        url = caplog.messages[-1].rpartition(" ")[2]
        with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:
            text = answer.read().decode()
    assert 'numa_node_cpus_count{node="this",numa_node="0"}' in text


@pytest.mark.parametrize("listen", [":x", "127.0.0.1:70000", "no.such.host.invalid:0"])
def test_an_address_that_is_none_is_named(listen: str) -> None:
    with (
        pytest.raises(InputError, match="listen"),
        serving.exported(RealFiles(), NumaExporter(listen=listen), node="this"),
    ):
        pass
