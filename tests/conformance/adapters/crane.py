"""Crane: CPUs on the node, its zones, and what its scheduler answers."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from koordlite.model import keys
from koordlite.model.cpuset import EMPTY, CPUSet, union
from koordlite.model.pod import crane
from koordlite.model.quantity import parse_resources
from koordlite.model.topology import CPU, NUMANode
from koordlite.model.wire.crane import TopologyObject, Zone
from koordlite.numa.crane import scheduling, zones
from koordlite.numa.crane.assignments import Assignments, Entry
from koordlite.numa.machine import Machine
from tests.conformance.adapters import adapter, shapes


def _machine(given: Any) -> list[CPU]:
    return shapes.cpus([row[:4] for row in given["topology"]["cpus"]])


@adapter("crane.allocate")
def allocate(given: Any, expect: Any) -> tuple[Any, Any]:
    machine = Machine(tuple(_machine(given)))
    held = Assignments(machine=machine, usable=machine.all, reserved=CPUSet.parse(given["reservedCPUs"]))
    results = []
    for step in given["steps"]:
        held, error = _step(held, step)
        results.append(
            {
                "error": error,
                "assignments": {
                    pod: {name: str(held.of(pod, name)) for name in theirs} for pod, theirs in held.entries.items()
                },
                "defaultCPUSet": str(held.default),
            }
        )
    return {"results": results}, expect


def _step(held: Assignments, step: Any) -> tuple[Assignments, str]:
    """Crane gives containers their CPUs one by one; one whose result is as large as what its pod has gets the pod's."""
    pod, name, policy = step["pod"], step["container"], step.get("cpuPolicy")
    theirs = dict(held.entries.get(pod, {}))
    if step["op"] == "remove":
        theirs.pop(name, None)
        others = {uid: entries for uid, entries in held.entries.items() if uid != pod}
        return msgspec.structs.replace(held, entries={**others, pod: theirs} if theirs else others), ""
    if name in theirs:
        return held, ""
    counts = {int(node): count for node, count in step["topologyResultCPUs"].items()}
    own = union(entry.cpus for entry in theirs.values())
    same = bool(own) and policy != "numa" and len(own) == sum(counts.values())
    try:
        cpus = own if same else EMPTY if policy == "numa" else held.pick(counts)
        return held.with_entry(pod, name, Entry(policy, tuple(sorted(counts.items())), cpus)), ""
    except ValueError as error:
        # Since kubelet 1.24 the text ends with the numbers; Crane has that of 1.23.
        return held, str(error).partition(": requested=")[0]


@adapter("crane.parse_reserved_cpus")
def parse_reserved_cpus(given: Any, expect: Any) -> tuple[Any, Any]:
    text = given["attributes"].get(keys.CRANE_RESERVED_CPUS, "")
    return {"cpus": list(CPUSet.parse(text))}, expect


@adapter("crane.build_zones")
def build_zones(given: Any, expect: Any) -> tuple[Any, Any]:
    cpus = _machine(given)
    ids = sorted({cpu.node for cpu in cpus})
    nodes = [NUMANode(node, CPUSet(cpu.id for cpu in cpus if cpu.node == node), memory=0) for node in ids]
    reserved = parse_resources(given.get("reserved"), "", "", [])
    found = zones.node_zones(nodes, reserved_cpus=CPUSet.parse(given.get("reservedCPUs", "")), reserved=reserved)
    return {"zones": json.loads(msgspec.json.encode(tuple(found)))}, expect


def _verdict(given: Any) -> scheduling.CraneVerdict:
    pod, nrt = given["pod"], given.get("nrt")
    spec = crane.parse(pod["annotations"], "pod", [])
    return scheduling.verdict(
        scheduling.CranePod(
            containers=[
                (each["name"], shapes.quantities(each.get("requests")), shapes.quantities(each.get("limits")))
                for each in pod["containers"]
            ],
            policy=spec.policy,
            aware=spec.aware,
            of_daemon_set=given.get("daemonSetPod", False),
        ),
        msgspec.convert(nrt, TopologyObject) if nrt else None,
        [scheduling.results_of(msgspec.convert(one["topologyResult"], list[Zone])) for one in given["nodePods"]],
        resources=given["topologyAwareResources"],
    )


@adapter("crane.filter")
def filtered(given: Any, expect: Any) -> tuple[Any, Any]:
    found = _verdict(given)
    answer = {"code": "Success"} if found.passes else {"code": "Unschedulable", "message": found.text}
    return answer, expect


@adapter("crane.score")
def score(given: Any, expect: Any) -> tuple[Any, Any]:
    found = _verdict(given)
    return {"score": found.score, "numaNodes": list(found.result)}, expect
