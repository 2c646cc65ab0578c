"""Evictions end to end: an emulated node, its pods, and an agent that may evict for memory."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from emulated import Emulated

from koordlite import config
from koordlite.agent import Agent
from koordlite.host.journal.journal import Journal
from koordlite.lab.machine import shapes
from koordlite.model.settings import Mode
from koordlite.report.sentence import sentence
from koordlite.report.tick import Tick

REFUSED = """
apiVersion: v1
kind: Pod
metadata:
  name: kept
  namespace: ns
  uid: uid-kept
  labels: {koordinator.sh/qosClass: BE}
  annotations: {sandbox.koordlite.io/cpu: 100m, sandbox.koordlite.io/refuse-evictions: "true"}
spec:
  nodeName: node-a
  priority: -1
  containers: [{name: main, resources: {requests: {kubernetes.io/batch-cpu: "1000"}}}]
status: {phase: Running}
"""


@pytest.fixture
def pressed(tmp_path: Path) -> Emulated:
    """A node that is allowed so little memory that every best-effort pod has to go."""
    node = Emulated("small", tmp_path)
    threshold = {"enable": True, "memoryEvictThresholdPercent": 1, "memoryEvictLowerPercent": 0}
    node.raw_slo({"resource-threshold-config": {"clusterStrategy": threshold}})
    node.pod("web", "LS", "500m")
    for name in ("first", "second", "third"):
        node.pod(name, "BE", "500m")
    return node


def agent_of(node: Emulated, mode: Mode, journal: Journal | None, **rules: Any) -> Agent:
    settings = config.with_modes(config.default(), mode)
    chosen = {"be_memory_evict": True, "evict_partly": True, **rules}
    memory = dataclasses.replace(settings.strategies["memoryEvict"], **chosen)
    settings = msgspec.structs.replace(settings, strategies={**settings.strategies, "memoryEvict": memory})
    return Agent(node.host(), node.cluster, settings, journal)


def of_pods(tick: Tick) -> dict[str, str]:
    found = (d for d in tick.decisions if d.strategy == "memoryEvict" and d.subject.startswith("pod/"))
    return {d.subject.rpartition("/")[2]: d.reason for d in found}


def asked(tick: Tick) -> dict[str, str]:
    return {str(step.place).split("/")[2]: step.error for step in tick.applied if str(step.place).startswith("pod/")}


def present(node: Emulated) -> set[str]:
    return {pod.metadata.name for pod in node.cluster.view().pods}


def test_pods_leave_round_by_round_and_what_was_evicted_counts(pressed: Emulated) -> None:
    with pressed.journal() as journal:
        agent = agent_of(pressed, "enforce", journal, max_evictions_per_round=2)
        first, *rest = [tick for tick in pressed.ticks(agent, 8) if of_pods(tick)]
        assert len(asked(first)) == 2
        assert "NextRound" in of_pods(first).values()
        later = {name for tick in rest for name in asked(tick)}
        assert set(asked(first)) | later == {"first", "second", "third"}
        assert len(later) == 1
        pressed.ticks(agent, 32)
    assert present(pressed) == {"web"}


def test_a_pod_the_cluster_keeps_does_not_save_the_others(pressed: Emulated) -> None:
    (pressed.folder / "pod-kept.yaml").write_text(REFUSED)
    with pressed.journal() as journal:
        agent = agent_of(pressed, "enforce", journal, max_evictions_per_round=1)
        seen = pressed.ticks(agent, 20)
    refusals = [tick.time for tick in seen if asked(tick).get("kept")]
    assert len(refusals) == 2
    assert refusals[1] - refusals[0] >= 10
    assert {tick.status for tick in seen} == {"enforcing"}
    gone = {name for tick in seen for name, error in asked(tick).items() if not error}
    assert gone == {"first", "second", "third"}
    assert any(of_pods(tick).get("kept") == "EvictionRefused" for tick in seen)


def test_observing_shows_who_would_go_and_evicts_nobody(pressed: Emulated) -> None:
    agent = agent_of(pressed, "observe", None, max_evictions_per_round=2)
    seen = [of_pods(tick) for tick in pressed.ticks(agent, 6)]
    shown = [pods for pods in seen if pods]
    assert len(shown) > 3
    assert all(list(pods.values()).count("ChosenForEviction") == 2 for pods in shown)
    assert present(pressed) == {"web", "first", "second", "third"}


def test_without_a_rule_switched_on_enforcing_evicts_nobody(pressed: Emulated) -> None:
    with pressed.journal() as journal:
        agent = agent_of(pressed, "enforce", journal, be_memory_evict=False)
        assert not any(of_pods(tick) or asked(tick) for tick in pressed.ticks(agent, 4))


def test_what_the_cluster_keeps_is_killed_at_last_and_comes_back(tmp_path: Path) -> None:
    """On cgroup v2, by the kernel: the pod stays, its processes are new."""
    node = Emulated(msgspec.structs.replace(shapes.machine("small"), cgroup_version=2), tmp_path)
    threshold = {"enable": True, "memoryEvictThresholdPercent": 1, "memoryEvictLowerPercent": 0}
    node.raw_slo({"resource-threshold-config": {"clusterStrategy": threshold}})
    node.pod("web", "LS", "500m")
    (node.folder / "kept.yaml").write_text(REFUSED)
    with node.journal() as journal:
        agent = agent_of(node, "enforce", journal, be_memory_last_resort_seconds=5)
        host = node.host()
        agent.tick()
        assert agent.snapshot is not None
        group = next(iter(agent.snapshot.places["uid-kept"].containers.values()))
        before = host.cgroups.procs(group)
        steps = [step for tick in node.ticks(agent, 20) for step in tick.applied if str(step.place).startswith("kill/")]
        node.sandbox.advance(20.0)
        after = host.cgroups.procs(group)
    assert [(str(step.place), step.ok) for step in steps] == [("kill/ns/kept/uid-kept/main", True)]
    assert "evictions have failed for 5 s" in steps[0].value
    assert before and after and set(before).isdisjoint(after)
    assert present(node) == {"web", "kept"}


def _with_memory(node: Emulated, name: str, qos: str, gib: int) -> None:
    requests = {"kubernetes.io/batch-cpu": "1000"} if qos == "BE" else {"cpu": "1"}
    notes = {"sandbox.koordlite.io/cpu": "100m", "sandbox.koordlite.io/memory": f"{gib}Gi"}
    labels = {"koordinator.sh/qosClass": qos}
    meta = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "labels": labels, "annotations": notes}
    spec = {"nodeName": "node-a", "containers": [{"name": "main", "resources": {"requests": requests}}]}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": {"phase": "Running"}}
    (node.folder / f"pod-{name}.yaml").write_text(json.dumps(body))


@pytest.mark.parametrize("mode", ["observe", "enforce"])
def test_a_full_numa_node_is_relieved_for_a_service_that_is_bound_to_it(tmp_path: Path, mode: Mode) -> None:
    """96 of 128 GiB are the service's: with 6 of each batch pod's 12 the second NUMA node is over its 83 percent."""
    node = Emulated("intel-2s-ht", tmp_path)
    threshold = {"enable": True, "numaMemoryEvictThresholdPercent": 83, "numaMemoryEvictLowerPercent": 80}
    node.raw_slo({"resource-threshold-config": {"clusterStrategy": threshold}})
    _with_memory(node, "web", "LS", 96)
    _with_memory(node, "first", "BE", 12)
    _with_memory(node, "second", "BE", 12)
    rules = {"be_memory_evict": False, "evict_partly": False, "numa_memory_evict": True}
    with node.journal() as journal:
        agent = agent_of(node, mode, journal if mode == "enforce" else None, **rules)
        node.ticks(agent, 1)
        assert agent.snapshot is not None
        (group,) = agent.snapshot.places["uid-web"].containers.values()
        host = node.host()
        host.cgroups.write_raw(group, "cpuset.mems", b"1")
        seen = node.ticks(agent, 40)
    sentences = {line for tick in seen for d in tick.decisions if d.evidence.get("bound") for line in [sentence(d)]}
    assert sentences and all(line.startswith("NUMA node 1: ") for line in sentences)
    assert sum(name in present(node) for name in ("first", "second")) == (2 if mode == "observe" else 1)
    assert "web" in present(node)
