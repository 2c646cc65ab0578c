"""Volcano's numa-aware plugin."""

from __future__ import annotations

from typing import Any

from koordlite.model.cpuset import CPUSet
from koordlite.model.topology import CPU
from koordlite.numa import volcano
from koordlite.numa.machine import Machine, mask_of
from tests.conformance.adapters import adapter, kubelet_managers

ANY = Machine((CPU(0, 0, 0, 0),))


@adapter("volcano.cpu_hints")
def cpu_hints(given: Any, expect: Any) -> tuple[Any, Any]:
    layout, free = kubelet_managers.machine(given["topology"]), CPUSet.parse(given["available"])
    found = volcano.cpu_hints(layout, free, given.get("cpus") or 0)
    return {"hints": kubelet_managers.shown(found)}, {"hints": expect["hints"] or []}


@adapter("volcano.cpu_allocate")
def cpu_allocate(given: Any, expect: Any) -> tuple[Any, Any]:
    layout, free = kubelet_managers.machine(given["topology"]), CPUSet.parse(given["available"])
    affinity = None if given["hint"] is None else mask_of(given["hint"])
    return {"cpus": str(volcano.allocate(layout, free, given.get("cpus") or 0, affinity))}, dict(expect)


@adapter("volcano.policy_predicate")
def policy_predicate(given: Any, expect: Any) -> tuple[Any, Any]:
    told = given["nodePolicies"]
    node = None
    if told is not None:
        words = (told.get("CPUManagerPolicy", ""), told.get("TopologyManagerPolicy", ""))
        node = volcano.Reported(ANY, ANY.all, *words)
    answer = volcano.predicate(given["podPolicy"], (), node, guaranteed=given["qosClass"] == "Guaranteed")
    return {"policyAccepted": not answer.why_not}, dict(expect)


@adapter("volcano.score")
def score(given: Any, expect: Any) -> tuple[Any, Any]:
    used = {"one": given["numaNodesUsed"], "most": given["maxNUMANodesUsed"]}
    return {"score": volcano.scores(used, given["weight"])["one"]}, dict(expect)
