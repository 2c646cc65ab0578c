"""What is kept of the node for a NodeMetric: percentiles over durations, use by NUMA node."""

from __future__ import annotations

import pytest
from emulated import Emulated
from hypothesis import given
from hypothesis import strategies as st

from koordlite.formulas import measured
from koordlite.model.duration import SECOND
from koordlite.model.picture.usage import Usage, Use
from koordlite.observe import Observer
from koordlite.observe.windows import PERCENTILE_SECONDS, NodeWindows

NOTHING = Usage(None, {}, {})
MINUTE = 60 * SECOND


def _usage(cpu: int, pods: int = 0) -> Usage:
    return Usage(Use(cpu, 1000), {"a": Use(pods, 100)}, {})


def test_a_duration_has_numbers_once_half_of_it_was_seen():
    windows = NodeWindows()
    for second in range(200):
        found = windows.read(float(second), _usage(1000 + second, pods=400), (5 * MINUTE, 30 * MINUTE))
    short, long = found
    assert long.node is long.system is None
    assert short.node is not None
    # Computed at most every 15 seconds: at 195, over the samples from 0 to 195.
    assert short.node.percentiles[50].cpu == round(measured.percentile(range(1000, 1196), 0.5))
    assert short.system is not None
    assert short.system.mean == Use(697, 900)


def test_what_is_not_configured_any_more_is_gone():
    windows = NodeWindows()
    windows.read(0.0, _usage(1), (5 * MINUTE,))
    assert [each.length_ns for each in windows.read(1.0, _usage(1), (10 * MINUTE,))] == [10 * MINUTE]


def test_a_duration_of_days_is_not_kept():
    windows = NodeWindows()
    for second in range(0, 40_000, 100):
        (found,) = windows.read(float(second), _usage(1), (24 * 60 * MINUTE,))
    assert found.node is None


def test_a_node_without_a_sample_adds_nothing():
    windows = NodeWindows()
    for second in range(0, 400, 10):
        (found,) = windows.read(float(second), NOTHING, (5 * MINUTE,))
    assert found.node is None


@given(st.lists(st.integers(0, 10**7), min_size=160, max_size=300))
def test_percentiles_are_those_of_the_samples(cpus):
    windows = NodeWindows()
    for second, cpu in enumerate(cpus):
        (found,) = windows.read(float(second), _usage(cpu), (5 * MINUTE,))
    assert found.node is not None
    used = cpus[: (len(cpus) - 1) // int(PERCENTILE_SECONDS) * int(PERCENTILE_SECONDS) + 1]
    for percent, use in found.node.percentiles.items():
        assert use.cpu == round(measured.percentile(used, percent / 100))


@pytest.mark.parametrize(("shape", "pods_known"), [("intel-2s-ht", True), ("small", False)])
def test_numa_nodes_of_an_emulated_machine_add_up_to_it(tmp_path, shape, pods_known):
    node = Emulated(shape, tmp_path)
    node.pod("web", "LS", "1")
    node.pod("crunch", "BE", "greedy")
    observer = Observer(node.host(), node.cluster, tasks_seconds=5.0, node_metric=True)
    for _ in range(40):
        seen = observer.observe()
        node.sandbox.advance(1.0)
    whole = seen.average.node
    assert whole is not None
    assert set(seen.numa_use) == {each.id for each in seen.topology.nodes}
    assert sum(each.node.cpu for each in seen.numa_use.values()) == pytest.approx(whole.cpu, rel=0.1)
    rests = [(each.system_memory, each.node.memory) for each in seen.numa_use.values()]
    assert all(rest is not None and 0 <= rest <= used if pods_known else rest is None for rest, used in rests)


def test_without_a_report_nothing_is_kept(node):
    seen = Observer(node.host(), node.cluster, tasks_seconds=5.0).observe()
    assert (seen.node_windows, seen.numa_use) == ((), {})
