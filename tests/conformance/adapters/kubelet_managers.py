"""Kubelet's CPU, memory and topology managers: hints, allocations and how hints are merged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from koordlite.model.cpuset import EMPTY, CPUSet
from koordlite.model.picture.kubelet import MemoryBlock
from koordlite.model.quantity import NANO, Quantity
from koordlite.model.topology import CPU
from koordlite.numa.kubelet import memory_manager, merge, requests
from koordlite.numa.kubelet.cpu_manager import CPUOptions, CPUState, StaticPolicy
from koordlite.numa.kubelet.cpu_take import take_distributed, take_packed
from koordlite.numa.kubelet.memory_manager import MemoryNode, MemoryState, Table
from koordlite.numa.kubelet.merge import Hint, Hints, Refused
from koordlite.numa.kubelet.requests import ContainerRequest, PodRequest
from koordlite.numa.machine import Machine, mask_of, nodes_of
from tests.conformance.adapters import adapter

NO_HINT = {"numa": None, "preferred": False}
TAIL = ": requested="
"""Today's kubelet goes on with numbers where that of the tables ends."""


def machine(topology: Any) -> Machine:
    """The CPUs of a topology's rows `[cpu, core, socket, numa, uncore?]`."""
    return Machine(tuple(CPU(*row) for row in topology["cpus"]))


def nodes(mask: int | None) -> list[int] | None:
    """NUMA node ids of a mask as the tables list them."""
    return None if mask is None else list(nodes_of(mask))


def shown(found: Iterable[Hint]) -> list[dict[str, Any]]:
    """Hints as the tables list them."""
    return [{"numa": nodes(hint.mask), "preferred": hint.preferred} for hint in found]


@adapter("cpu.take_by_topology")
def take(given: Any, expect: Any) -> tuple[Any, Any]:
    options, free, count = _options(given.get("options")), CPUSet.parse(given["available"]), given["numCPUs"]
    try:
        if given["strategy"] == "distributed":
            cpus = take_distributed(machine(given["topology"]), free, count, group=given.get("cpuGroupSize") or 1)
        else:
            cpus = take_packed(
                machine(given["topology"]),
                free,
                count,
                spread_cores=options.across_cores,
                align_uncore=options.by_uncore,
            )
    except ValueError as error:
        return {"cpus": "", "error": _older(str(error))}, dict(expect)
    return {"cpus": str(cpus)}, dict(expect)


@adapter("cpu.static_add")
def static_add(given: Any, expect: Any) -> tuple[Any, Any]:
    options, layout = _options(given.get("options")), machine(given["topology"])
    policy = StaticPolicy.reserving(layout, given["numReservedCPUs"], options)
    policy = msgspec.structs.replace(policy, counts_free_cores=False)  # the tables are those of 1.23
    state, pod = _state(given), given["pod"]
    container = pod["containers"][0]
    ask = _cpu_ask(container, pod)
    try:
        after = policy.allocate(state, pod["uid"], ask, affinity=None)
    except Refused as refused:
        return {"error": _older(refused.message)}, dict(expect)
    cpus = after.of(pod["uid"], container["name"])
    return {"allocated": cpus is not None, "cpus": str(cpus or EMPTY)}, dict(expect)


@adapter("cpu.static_sequence")
def static_sequence(given: Any, expect: Any) -> tuple[Any, Any]:
    policy = StaticPolicy(machine(given["topology"]), CPUSet.parse(given["reserved"]), _options(given["options"]))
    state = CPUState(CPUSet.parse(given["defaultCPUSet"]))
    for number, count in enumerate(given["containers"]):
        try:
            state = policy.allocate(state, "pod", ContainerRequest(str(number), cpus=count), affinity=None)
        except Refused as refused:
            return {"error": refused.message}, dict(expect)
    cpus = [state.of("pod", str(number)) or EMPTY for number in range(len(given["containers"]))]
    caches = {policy.machine.by_id[cpu].l3 for each in cpus for cpu in each}
    found = {"uncoreIDs": sorted(cache for cache in caches if cache is not None), "cpus": [str(each) for each in cpus]}
    return {key: found[key] for key in expect}, dict(expect)


@adapter("cpu.topology_hints")
def cpu_hints(given: Any, expect: Any) -> tuple[Any, Any]:
    pod = given["pod"]
    container = next(c for c in pod["containers"] if c["name"] == given["container"])
    policy = StaticPolicy(machine(given["topology"]))
    found = policy.hints(_state(given), PodRequest(pod["uid"], (_cpu_ask(container, pod),))) or {}
    return {"hints": shown(found.get("cpu") or ())}, {"hints": expect["hints"] or []}


@adapter("topology_manager.merge")
def merged(given: Any, expect: Any) -> tuple[Any, Any]:
    return _merged(given, equal_masks=True), dict(expect)


def merged_as_1_23(given: Any) -> dict[str, Any]:
    """The answer of the older kubelet, for the cases that have one."""
    return _merged(given, equal_masks=False)


def _merged(given: Any, *, equal_masks: bool) -> dict[str, Any]:
    options = given.get("options") or {}
    rules = merge.Rules(
        tuple(given["numaNodes"]),
        {int(node): dict(enumerate(row)) for node, row in (given.get("distances") or {}).items()},
        bool(options.get("prefer-closest-numa-nodes")),
        equal_masks=equal_masks,
    )
    best, admitted = merge.merge(given["policy"], [_hints(each) for each in given["providers"] or ()], rules)
    return {"affinity": nodes(best.mask), "preferred": best.preferred, "admit": admitted}


@adapter("memory_manager.hints")
def memory_hints(given: Any, expect: Any) -> tuple[Any, Any]:
    container = given["containers"][0]
    found = memory_manager.hints(_memory(given), PodRequest(given["podUID"], (_memory_ask(container),)), {}) or {}
    shown_by_kind = {kind: shown(each or ()) for kind, each in sorted(found.items())}
    return {**dict(expect), "hints": shown_by_kind}, {**dict(expect), "hints": dict(expect["hints"] or {})}


@adapter("memory_manager.allocate")
def memory_allocate(given: Any, expect: Any) -> tuple[Any, Any]:
    """Init containers first, as kubelet does; the last hint is that of all further containers."""
    state, uid, affinities = _memory(given), given["podUID"], list(given["topologyHint"] or [NO_HINT])
    early = [_memory_ask(container, kind="init") for container in given.get("initContainers") or ()]
    pod = PodRequest(uid, (*early, *(_memory_ask(container) for container in given["containers"])))
    reusable: memory_manager.Reusable = {}
    try:
        for number, ask in enumerate(pod.containers):
            hint = affinities[min(number, len(affinities) - 1)]
            affinity = Hint(None if hint["numa"] is None else mask_of(hint["numa"]), hint["preferred"])
            # The tables are those of 1.23.
            state = memory_manager.allocate(state, uid, ask, affinity=affinity, reusable=reusable, keeps_groups=False)
            reusable = memory_manager.reusable_after(reusable, ask, state.of(uid, ask.name) or ())
            state = memory_manager.share_with_init(state, pod, ask)
    except Refused as refused:
        return {"err": _cause(refused.message)}, {"err": expect.get("err")}
    wanted = {"machineState": _sorted(expect["machineState"]), "assignments": _by_kind(expect["assignments"])}
    return {"machineState": _books(state, given["machineState"]), "assignments": _by_kind(_blocks(state))}, wanted


def _options(options: Mapping[str, Any] | None) -> CPUOptions:
    return CPUOptions.parse({name: str(value).lower() for name, value in (options or {}).items()})


def _older(message: str) -> str:
    return _cause(message).partition(TAIL)[0]


def _cause(message: str) -> str:
    return message.removeprefix("Allocate failed due to ").removesuffix(", which is unexpected")


def _state(given: Any) -> CPUState:
    assigned = {
        uid: {name: CPUSet.parse(text) for name, text in own.items()} for uid, own in given["assignments"].items()
    }
    return CPUState(CPUSet.parse(given["defaultCPUSet"]), assigned)


def _cpu_ask(container: Any, pod: Any) -> ContainerRequest:
    cpu = Quantity.parse(container["requestCPU"]).nano if pod["qos"] == "Guaranteed" else 0
    return ContainerRequest(container["name"], cpus=0 if cpu % NANO else cpu // NANO)


def _hints(provider: Any) -> Hints | None:
    if provider is None:
        return None
    return {
        name: None
        if each is None
        else [Hint(None if h["numa"] is None else mask_of(h["numa"]), h["preferred"]) for h in each]
        for name, each in provider.items()
    }


def _memory_ask(container: Any, kind: requests.Kind = "app") -> ContainerRequest:
    """Only containers of Guaranteed pods reserve memory; all pods of the tables have one container of each kind."""
    amounts = {
        name: Quantity.parse(text).value for name, text in container["requests"].items() if requests.is_memory(name)
    }
    return ContainerRequest(
        container["name"], memory=amounts if container["requests"] == container["limits"] else {}, kind=kind
    )


def _memory(given: Any) -> MemoryState:
    assigned = {
        uid: {
            name: tuple(MemoryBlock(b["type"], b["size"], tuple(b["numaAffinity"])) for b in blocks)
            for name, blocks in own.items()
        }
        for uid, own in (given["assignments"] or {}).items()
    }
    return MemoryState({int(id_): _node(node) for id_, node in (given["machineState"] or {}).items()}, assigned)


def _node(given: Any) -> MemoryNode:
    tables = {kind: Table(table["allocatable"], table["free"]) for kind, table in given["memoryMap"].items()}
    return MemoryNode(tables, tuple(given["cells"]), given["numberOfAssignments"])


def _books(state: MemoryState, before: Any) -> dict[str, Any]:
    return {
        str(id_): {
            "numberOfAssignments": node.assignments,
            "cells": list(node.group),
            "memoryMap": {
                kind: {
                    **before[str(id_)]["memoryMap"][kind],
                    "allocatable": table.allocatable,
                    "reserved": table.allocatable - table.free,
                    "free": table.free,
                }
                for kind, table in node.tables.items()
            },
        }
        for id_, node in state.nodes.items()
    }


def _sorted(books: Any) -> Any:
    return {id_: dict(node) for id_, node in (books or {}).items()}


def _blocks(state: MemoryState) -> dict[str, Any]:
    return {
        uid: {
            name: [{"numaAffinity": list(b.nodes), "type": b.kind, "size": b.size} for b in blocks]
            for name, blocks in own.items()
        }
        for uid, own in state.assigned.items()
    }


def _by_kind(assigned: Any) -> Any:
    """Kubelet lists the blocks in random order."""
    return {
        uid: {name: sorted(blocks, key=lambda b: str(b["type"])) for name, blocks in own.items()}
        for uid, own in (assigned or {}).items()
    }
