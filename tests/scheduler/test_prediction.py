"""The prediction and kubelet's own admission, compared: by amounts in a report, and by CPUs on the machine."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import slices
from hypothesis import given, settings
from hypothesis import strategies as st

from koordlite.model.cpuset import CPUSet
from koordlite.model.topology import CPU, NUMANode, Topology
from koordlite.numa.kubelet import admit as kubelet
from koordlite.numa.kubelet import requests
from koordlite.numa.kubelet.admit import KubeletNode, empty_node
from koordlite.numa.kubelet.merge import Policy
from tests.scheduler.builders import Scene, as_object

PER_NODE = 8


@functools.cache
def machine(nodes: int) -> Topology:
    cpus = tuple(CPU(n, n // 2, n // PER_NODE, n // PER_NODE) for n in range(nodes * PER_NODE))
    parts = [CPUSet(cpu.id for cpu in cpus if cpu.node == node) for node in range(nodes)]
    return Topology(cpus, tuple(NUMANode(node, part, 0) for node, part in enumerate(parts)))


def pod_object(name: str, containers: list[tuple[str, str]]) -> Any:
    """A Guaranteed pod: (kind, CPUs) of each container."""
    parts: dict[str, list[Any]] = {"containers": [], "initContainers": []}
    for number, (kind, cpu) in enumerate(containers):
        amounts = {"cpu": cpu, "memory": "1Gi"}
        one: dict[str, Any] = {"name": f"c{number}", "resources": {"requests": amounts, "limits": amounts}}
        if kind == "sidecar":
            one["restartPolicy"] = "Always"
        parts["containers" if kind == "app" else "initContainers"].append(one)
    meta = {"name": name, "namespace": "ns", "uid": f"uid-{name}"}
    return {"metadata": meta, "spec": parts, "status": {"phase": "Pending", "qosClass": "Guaranteed"}}


def scene_of(state: KubeletNode, nodes: int, policy: str, scope: str) -> Scene:
    """What a reporter would say of this node."""
    free = [sum(1 for n in state.cpus.shared if n // PER_NODE == node) for node in range(nodes)]
    scene = Scene()
    zones = [{"cpu": str(count)} for count in free]
    scene.node("a", *zones, policy=policy, scope=scope, totals={"cpu": str(PER_NODE)})
    return scene


apps = st.tuples(st.just("app"), st.sampled_from(["500m", "1", "2", "3", "5", "6", "8", "9", "12"]))
sidecars = st.tuples(st.just("sidecar"), st.sampled_from(["1", "2", "4"]))
inits = st.tuples(st.just("init"), st.sampled_from(["1", "2", "4", "6"]))
beside = st.tuples(st.lists(sidecars, max_size=1), st.lists(apps, min_size=1, max_size=3))
after = st.tuples(st.lists(inits, min_size=1, max_size=2), st.lists(apps, min_size=1, max_size=1))
"""Which of its CPUs a container uses again is not in a report: with several containers after an init container, kubelet
may refuse what by amounts would fit."""
pods = (beside | after).map(lambda both: both[0] + both[1])


@pytest.mark.sliced
@pytest.mark.parametrize("scope", ["container", "pod"])
@pytest.mark.parametrize("policy", ["single-numa-node", "restricted", "best-effort", "none"])
@settings(max_examples=slices.amount(300, 25), deadline=None)
@given(nodes=st.integers(1, 4), running=st.lists(pods, max_size=5), requested=pods)
def test_it_refuses_what_kubelet_refuses_and_nothing_else(
    policy: Policy, scope: Any, nodes: int, running: list[Any], requested: Any
) -> None:
    state = empty_node(machine(nodes), policy=policy, scope=scope)
    for number, containers in enumerate(running):
        state = kubelet.admit(state, requests.of_pod(as_object(pod_object(f"r{number}", containers)))).node
    pod = pod_object("asked", requested)
    answer = kubelet.admit(state, requests.of_pod(as_object(pod)))
    passed, refused = scene_of(state, nodes, policy, scope).filter(pod, "a")
    if sum(int(cpu) for _, cpu in requested if not cpu.endswith("m")) > len(state.cpus.shared):
        return  # The scheduler's own filter asks about the node as a whole.
    assert bool(passed) is answer.admitted, (refused, answer.message, answer.evidence)
