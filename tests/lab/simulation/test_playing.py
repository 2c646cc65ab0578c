"""What events do to the node and its agent, and what is measured of it."""

from __future__ import annotations

import functools
import textwrap
from pathlib import Path

import pytest

from koordlite.lab.simulation import reading, runner
from koordlite.model.errors import InputError
from koordlite.report import simulation
from koordlite.report.simulation import Simulated

BUSY = """
machine: small
duration: 60s
pods:
  - {name: web, qos: LS, cpu: "1", requests: {cpu: "1"}}
  - {name: crunch, qos: BE, count: 2, cpu: greedy, requests: {kubernetes.io/batch-cpu: "1000"}}
config:
  resource-threshold-config: {clusterStrategy: {enable: true, cpuSuppressThresholdPercent: 65}}
"""


def played(more: str = "", *, base: str = BUSY, seed: int | None = None) -> Simulated:
    return runner.play(reading.parse(base + textwrap.dedent(more), "s.yaml"), seed=seed)


def found(expectation: str, more: str = "") -> tuple[str, bool]:
    check = played(f"{more}\nexpect: [{expectation}]").checks[0]
    return check.found, check.ok


MEASURES = [
    ("{measure: beLimitCores, most: 2}", True),
    ("{measure: beLimitCores, least: 3}", False),
    ("{measure: beLimitCores, value: max, to: 0s, least: 2}", True),
    ("{measure: unmetPercent, of: default/web, most: 1}", True),
    ("{measure: unmetPercent, of: default/crunch, least: 50}", True),
    ("{measure: usedCores, of: default/web, least: 0.99, most: 1.01}", True),
    ("{measure: usedCores, of: default/nobody, least: 0}", False),
    ("{measure: ticksWith, of: BECPUBudget, least: 50}", True),
    ("{measure: ticksWith, of: NoSuchReason, most: 0}", True),
    ("{measure: beCoreHours, least: 0.02, most: 0.04}", True),
    ("{measure: cpus, of: default/web, equals: 0-3}", True),
    ("{measure: cpus, of: default/crunch, equals: 0-3}", False),
    ("{measure: file, of: /no/such/file, equals: ENOENT}", True),
    ("{measure: degradedSeconds, most: 0}", True),
    ("{measure: notPutBack, most: 0}", True),
    ("{measure: writes, most: 0}", False),
]


@functools.cache
def measured() -> Simulated:
    """One play that measures all of them."""
    return played(f"expect: [{', '.join(expectation for expectation, _ in MEASURES)}]")


@pytest.mark.parametrize("number", range(len(MEASURES)), ids=[expectation for expectation, _ in MEASURES])
def test_measures(number: int) -> None:
    assert measured().checks[number].ok is MEASURES[number][1]


def test_pods_arrive_and_go() -> None:
    run = played("events:\n  - {at: 20s, pods: [{name: late, count: 2}]}\n  - {at: 40s, remove: [default/late]}\n")
    pods = {workload.pod: workload for workload in run.workloads}
    assert pods["default/late-1"].end == pytest.approx(39)
    assert pods["default/web"].end is None
    assert [each.words for each in run.happenings] == [
        "pod default/late × 2 (LS) arrives",
        "pods default/late… go: 2",
    ]


def test_the_config_map_changes_and_a_key_goes() -> None:
    more = "events: [{at: 30s, config: {resource-threshold-config: null}}]"
    assert found("{measure: beLimitCores, to: 29s, most: 2}", more)[1]
    assert found("{measure: beLimitCores, least: 4}", more)[1]


def test_somebody_else_writes_and_is_noticed() -> None:
    path = "/sys/fs/cgroup/cpuset/kubepods/besteffort/cpuset.cpus"
    more = f'events: [{{at: 30s, write: {{{path}: "0-3", /sys/nowhere: "1"}}}}]'
    assert found("{measure: foreignWrites, least: 1}", more)[1]
    words = [each.words for each in played(more).happenings]
    assert words[1] == "another program writes /sys/nowhere = 1, in vain: No such file or directory"


def test_a_dead_agent_leaves_its_limits_and_no_rows() -> None:
    run = played("events: [{at: 20s, killAgent: 15s}]")
    assert [row.time for row in run.history.rows if 20 <= row.time < 35] == []
    assert [each.time for each in run.happenings] == [20, 35]


def test_a_scenario_can_begin_with_a_folder_of_manifests() -> None:
    folder = Path(__file__).parents[3] / "configs" / "tour"
    base = f"manifests: {folder}\nnode: {{name: tour-a}}\nmachine: intel-2s-ht\nduration: 10s\n"
    run = played(base=base)
    assert {"shop/web-1", "batch/train-1"} <= {workload.pod for workload in run.workloads}


def test_a_folder_without_the_node_is_refused() -> None:
    folder = Path(__file__).parents[3] / "configs" / "tour"
    with pytest.raises(InputError, match="no Node manifest is called sim"):
        played(base=f"manifests: {folder}\n")


def test_evictions_are_counted() -> None:
    base = """
machine: small
duration: 90s
pods:
  - {name: web, memory: "steps(0:1Gi,10:5Gi)", requests: {cpu: "1", memory: 6Gi}}
  - {name: batch, qos: BE, count: 3, memory: 600Mi, requests: {kubernetes.io/batch-memory: 600Mi}}
settings: {strategies: {memoryEvict: {beMemoryEvict: true}}}
config:
  resource-threshold-config:
    clusterStrategy: {enable: true, memoryEvictThresholdPercent: 70, memoryEvictLowerPercent: 60}
"""
    run = played(base=base)
    gone = [workload.pod for workload in run.workloads if workload.end is not None]
    assert run.figures["evictions"] == len(gone) > 0
    assert run.figures["restarts"] == 0


def test_observing_writes_nothing() -> None:
    run = played("mode: observe")
    assert run.figures["writes"] == 0
    assert run.figures["beLimitCoresMin"] == 4


def test_two_runs_side_by_side_mark_what_differs() -> None:
    first = played()
    second = played("mode: observe")
    said = simulation.compared([first, second])
    rows = {line.strip().partition("  ")[0]: line for line in said.splitlines()}
    assert rows["writes"].endswith("*")
    assert not rows["writes refused"].endswith("*")
