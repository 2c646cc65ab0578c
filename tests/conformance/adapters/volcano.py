"""Volcano's numa-aware plugin."""

from __future__ import annotations

from typing import Any

from koordlite.model.cpuset import CPUSet
from koordlite.numa import volcano
from koordlite.numa.kubelet.cpu_manager import CPUState, StaticPolicy
from koordlite.numa.kubelet.merge import Refused
from koordlite.numa.kubelet.requests import ContainerRequest, PodRequest
from koordlite.numa.machine import mask_of
from tests.conformance.adapters import adapter, kubelet_managers


@adapter("volcano.cpu_hints")
def cpu_hints(given: Any, expect: Any) -> tuple[Any, Any]:
    layout, free = kubelet_managers.machine(given["topology"]), CPUSet.parse(given["available"])
    pod = PodRequest("", (ContainerRequest("", cpus=given.get("cpus") or 0),))
    hints = (StaticPolicy(layout).hints(CPUState(free), pod) or {}).get("cpu") or ()
    return {"hints": kubelet_managers.shown(hints)}, {"hints": expect["hints"] or []}


@adapter("volcano.cpu_allocate")
def cpu_allocate(given: Any, expect: Any) -> tuple[Any, Any]:
    layout, free = kubelet_managers.machine(given["topology"]), CPUSet.parse(given["available"])
    affinity = None if given["hint"] is None else mask_of(given["hint"])
    request = ContainerRequest("c", cpus=given.get("cpus") or 0)
    try:
        state = StaticPolicy(layout).allocate(CPUState(free), "p", request, affinity=affinity)
    except Refused:
        return {"cpus": ""}, dict(expect)
    return {"cpus": str(state.of("p", "c") or "")}, dict(expect)


@adapter("volcano.policy_predicate")
def policy_predicate(given: Any, expect: Any) -> tuple[Any, Any]:
    """The extender asks only for Guaranteed pods."""
    node = given["nodePolicies"] or {}
    cpu_policy = None if given["nodePolicies"] is None else node.get("CPUManagerPolicy", "")
    mismatch = volcano.policy_mismatch(given["podPolicy"], cpu_policy, node.get("TopologyManagerPolicy", ""))
    return {"policyAccepted": given["qosClass"] != "Guaranteed" or not mismatch}, dict(expect)


@adapter("volcano.score")
def score(given: Any, expect: Any) -> tuple[Any, Any]:
    used = {"one": given["numaNodesUsed"], "most": given["maxNUMANodesUsed"]}
    return {"score": volcano.scores(used, given["weight"])["one"]}, dict(expect)
