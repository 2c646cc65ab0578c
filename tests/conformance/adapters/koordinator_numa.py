"""Koordinator's NodeNUMAResource: CPUs, amounts by NUMA node, hints, and a whole pod on a node."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from koordlite.model.cpuset import EMPTY, CPUSet
from koordlite.model.pod.values import Pod
from koordlite.model.wire import objects
from koordlite.numa.koordinator import allocate as allocating
from koordlite.numa.koordinator import ask, merge, node_report, schedule, values
from koordlite.numa.koordinator.allocate import NodeRequest, Supply
from koordlite.numa.koordinator.node_report import KoordinatorNode, NodeTopology
from koordlite.numa.koordinator.take import TakePolicy, take, take_preferred
from koordlite.numa.koordinator.values import IDLE, AllocatedCPU, Allocation, Hint, NodeAllocation, Refusal
from koordlite.numa.machine import Machine, mask_of, nodes_of
from tests.conformance.adapters import adapter, shapes


@adapter("takeCPUs")
def taken(given: Any, expect: Any) -> tuple[Any, Any]:
    return _cpus_or_error(
        lambda: take(*_taking(given), available=_set(given["available"]), count=given["numCPUs"])
    ), expect


@adapter("takePreferredCPUs")
def preferred(given: Any, expect: Any) -> tuple[Any, Any]:
    sets = {name: _set(given[name]) for name in ("available", "preferred")}
    return _cpus_or_error(lambda: take_preferred(*_taking(given), **sets, count=given["numCPUs"])), expect


def _cpus_or_error(call: Any) -> Any:
    try:
        return {"cpus": str(call())}
    except ValueError as error:
        return {"error": str(error)}


def _taking(given: Any) -> tuple[Machine, dict[int, AllocatedCPU], TakePolicy]:
    machine = _machine(given)
    held_cpus = {row["cpu"]: _taken(machine, row) for row in given["allocated"] if row["cpu"] in machine.by_id}
    words = given["bindPolicy"], given["exclusivePolicy"], given["numaAllocateStrategy"]
    return machine, held_cpus, TakePolicy(*words, most_holders=given["maxRefCount"])


def _taken(machine: Machine, row: Any) -> AllocatedCPU:
    cpu = machine.by_id[row["cpu"]]
    return AllocatedCPU(cpu.node, cpu.core, row.get("refCount", 0), row.get("exclusivePolicy", ""))


@adapter("getAvailableCPUs")
def available_cpus(given: Any, expect: Any) -> tuple[Any, Any]:
    machine = _machine(given)
    whole = _held(machine, given)
    left = values.released(whole.cpus, *(_set(text) for text in given.get("preferred") or ()))
    free = values.available_cpus(machine, left, reserved=_set(given["reservedCPUs"]), most_holders=given["maxRefCount"])
    rows = [_row(cpu, left[cpu]) for cpu in sorted(left)]
    states = [whole.states.get(zone, IDLE) for zone in range(len(expect["numaStatus"]))]
    return {"allocated": rows, "available": str(free), "numaStatus": states}, expect


def _row(cpu: int, one: AllocatedCPU) -> Any:
    row = {"cpu": cpu, "refCount": one.holders, "exclusivePolicy": one.exclusive}
    return {name: value for name, value in row.items() if value != ""}


@adapter("getAvailableNUMANodeResources")
def available_zones(given: Any, expect: Any) -> tuple[Any, Any]:
    node, reusable = node_of(given), _zones(given.get("reusableResources"))
    allocated = values.allocated_zones(node.allocated, node.zones, cpu_ratio=node.cpu_ratio, reusable=reusable)
    free = values.available_zones(node.allocated, node.zones, cpu_ratio=node.cpu_ratio, reusable=reusable)
    wanted = _zones(expect["available"]), _zones(expect.get("allocated"))
    return (free, allocated), wanted


@adapter("NewTopologyOptions")
def topology_options(given: Any, expect: Any) -> tuple[Any, Any]:
    found = _report(given["nrt"])
    manager = {"policy": found.cpu_manager.policy, "options": dict(found.cpu_manager.options)}
    kubelet = {name: value for name, value in manager.items() if value}
    wanted_kubelet = {name: value for name, value in expect["kubeletPolicy"].items() if name != "reservedCPUs"}
    summary = {
        "kubeletPolicy": kubelet,
        "maxRefCount": found.most_holders,
        "numaNodeResources": found.zones,
        "numaTopologyPolicy": found.numa_policy,
        "reservedCPUs": str(found.reserved),
        **({} if found.ratios is None else {"amplificationRatios": dict(found.ratios)}),
    }
    zones = _zones(expect["numaNodeResources"])
    return summary, {**expect, "numaNodeResources": zones, "kubeletPolicy": wanted_kubelet}


@adapter("Allocate")
def allocated(given: Any, expect: Any) -> tuple[Any, Any]:
    node, request = node_of(given), request_of(given)
    found = allocating.allocate(Supply.of(node, request), request, _mask(given.get("hint")))
    if isinstance(found, Refusal):
        return _status(found), expect
    rows = expect.get("numaNodeResources")
    return (str(found.cpus), found.zones), (expect.get("cpuset", expect), _zones(rows))


@adapter("GetTopologyHints")
def topology_hints(given: Any, expect: Any) -> tuple[Any, Any]:
    node, request = node_of(given), request_of(given)
    supply = Supply.of(node, request)
    found = merge.hints(
        node.zones,
        supply.zones,
        request,
        lambda mask: allocating.fits(supply, request, mask),
        policy=given["policy"],
        settings=None,
    )
    return {"hints": {name: [_hint_row(hint) for hint in one] for name, one in found.items()}}, expect


@adapter("numa.merge")
def merged(given: Any, expect: Any) -> tuple[Any, Any]:
    providers = [_provider(one) for one in given.get("providers") or ()]
    states = dict(enumerate(given["numaStatus"]))
    found = merge.merge(given["policy"], given["numaNodes"], providers, exclusive=given["exclusive"], states=states)
    answer: dict[str, Any] = {"admit": found.admitted, "hint": _hint_row(found.hint)}
    return ({**answer, "reasons": list(found.reasons)} if found.reasons else answer), expect


@adapter("checkExclusivePolicy")
def exclusive(given: Any, expect: Any) -> tuple[Any, Any]:
    states = dict(enumerate(given["numaStatus"]))
    return {"ok": merge.may_use(_mask(given.get("affinity")), given["exclusive"], states)}, expect


@adapter("PreFilter")
def asked(given: Any, expect: Any) -> tuple[Any, Any]:
    found = ask.of(pod_of(given["pod"]), ask.NUMAArgs(default_bind=given["defaultCPUBindPolicy"]))
    if not isinstance(found, ask.PodRequest):
        return {"code": "Skip"} if found is None else _status(found), expect
    summary = {
        "code": "Success",
        "hasReservationAffinity": found.needs_reservation,
        "numCPUsNeeded": found.count,
        "numaTopologyPolicy": found.numa_policy,
        "preferredCPUBindPolicy": found.preferred_bind,
        "preferredCPUExclusivePolicy": found.exclusive,
        "requestCPUBind": found.bound,
        "requests": found.requests,
        "requiredCPUBindPolicy": found.required_bind,
        "singleNUMANodeExclusive": found.numa_exclusive,
    }
    return summary, {**expect, "requests": shapes.quantities(expect.get("requests"))}


@adapter("schedule")
def scheduled(given: Any, expect: Any) -> tuple[Any, Any]:
    return _schedule(given, settings_of(given)), {**expect, **_decoded(expect)}


def settings_of(given: Any) -> ask.NUMAArgs:
    """The plugin's arguments of a case."""
    return ask.NUMAArgs(
        default_bind=given["defaultCPUBindPolicy"],
        scoring=given["scoringStrategy"],
        numa_scoring=given["numaScoringStrategy"],
    )


def scheduled_node(given: Any) -> KoordinatorNode:
    """The node of a case about a whole pod."""
    topology = _report(given["nrt"]) if given.get("nrt") else NodeTopology()
    return KoordinatorNode.of(shapes.node_of(given["node"]), topology, _held(topology.machine, given), {})


def _schedule(given: Any, settings: ask.NUMAArgs) -> dict[str, Any]:
    wanted = ask.of(pod_of(given["pod"]), settings)
    if not isinstance(wanted, ask.PodRequest):
        return {"preFilter": {"code": "Skip"} if wanted is None else _status(wanted)}
    ok = {"code": "Success"}
    node = scheduled_node(given)
    filtered = schedule.filter_node(wanted, node, settings)
    if isinstance(filtered, Refusal):
        return {"preFilter": ok, "filter": _status(filtered)}
    points = schedule.score_node(wanted, node, filtered, settings)
    found = schedule.reserve(wanted, node, filtered, settings)
    result = {"preFilter": ok, "filter": ok, "score": points}
    if filtered:
        result["affinity"] = list(nodes_of(filtered))
    if isinstance(found, Refusal):
        return {**result, "reserve": _status(found)}
    written = schedule.for_binding(wanted, node, found)
    texts = {
        "resourceStatus": written.get("scheduling.koordinator.sh/resource-status"),
        "resourceSpecWritten": written.get("scheduling.koordinator.sh/resource-spec"),
    }
    return {**result, "reserve": ok, **_decoded(texts)}


def _decoded(texts: Any) -> dict[str, Any]:
    return {name: json.loads(texts[name]) for name in ("resourceStatus", "resourceSpecWritten") if texts.get(name)}


def pod_of(given: Any) -> Pod:
    """The pod of a case."""
    return shapes.pod_of(given)


def _report(given: Any) -> NodeTopology:
    return node_report.read(msgspec.convert(given, objects.NRTObject, strict=False), [])


def _machine(given: Any) -> Machine:
    return Machine.of(shapes.cpus(given["topology"]["cpus"]))


def _held(machine: Machine, given: Any) -> NodeAllocation:
    pods = enumerate(given.get("allocatedPods") or ())
    return NodeAllocation.of(machine, (_allocation(pod, str(number)) for number, pod in pods))


def _allocation(pod: Any, uid: str) -> Allocation:
    return Allocation(
        uid=pod.get("uid") or uid,
        cpus=_set(pod.get("cpuset")),
        exclusive=pod.get("exclusivePolicy") or "",
        zones=_zones(pod.get("numaNodeResources")),
    )


def node_of(given: Any) -> KoordinatorNode:
    """The node of a case about one function."""
    machine = _machine(given)
    topology = NodeTopology(
        machine=machine,
        most_holders=given.get("maxRefCount", 1),
        reserved=_set(given.get("reservedCPUs")),
        zones=_zones(given["numaNodeResources"]),
        ratios=given.get("amplificationRatios"),
    )
    return KoordinatorNode(topology=topology, allocated=_held(machine, given))


def request_of(given: Any) -> NodeRequest:
    """What is asked of it."""
    policy = TakePolicy(
        given["cpuBindPolicy"],
        given.get("cpuExclusivePolicy", ""),
        given["numaAllocateStrategy"],
        given["maxRefCount"],
    )
    return NodeRequest(
        requests=shapes.quantities(given["requests"]),
        original=shapes.quantities(given["originalRequests"]),
        count=given["numCPUsNeeded"],
        bound=given["requestCPUBind"],
        required=given["requiredCPUBindPolicy"],
        policy=policy,
    )


def _provider(given: Any) -> dict[str, list[Hint] | None] | None:
    if given is None:
        return None
    return {name: None if one is None else [_hint(row) for row in one] for name, one in given.items()}


def _hint(row: Any) -> Hint:
    return Hint(_mask(row.get("numa")), row["preferred"], row.get("score", 0), row.get("unsatisfied", False))


def _hint_row(hint: Hint) -> Any:
    row: dict[str, Any] = {
        "numa": None if hint.mask is None else list(nodes_of(hint.mask)),
        "preferred": hint.preferred,
    }
    return {
        **row,
        **({"score": hint.score} if hint.score else {}),
        **({"unsatisfied": True} if hint.unsatisfied else {}),
    }


def _mask(nodes: Any) -> int | None:
    return None if nodes is None else mask_of(nodes)


def _zones(rows: Any) -> dict[int, Any]:
    return {row.get("node") or 0: shapes.quantities(row["resources"]) for row in rows or ()}


def _set(text: str | None) -> CPUSet:
    return CPUSet.parse(text) if text else EMPTY


def _status(refusal: Refusal) -> Any:
    return {"code": refusal.code, "reasons": list(refusal.reasons)}
