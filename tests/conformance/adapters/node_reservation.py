"""Node reservation as the descheduler and the scheduler see it: amounts, CPUs, what is left to hand out."""

from __future__ import annotations

import json
from typing import Any

from descheduler.fit.free_capacity import FreeCapacity
from descheduler.snapshot import assemble, files
from koordlite.formulas.allocatable import reservation
from koordlite.model.cpuset import EMPTY, CPUSet
from koordlite.model.errors import InputError
from tests.conformance.adapters import adapter, shapes
from tests.conformance.descheduler_view import NOW


@adapter("reservedResources")
def resources(given: Any, expect: Any) -> tuple[Any, Any]:
    wanted = shapes.quantities(expect["reserved"])
    try:
        return reservation.written_resources(shapes.reservation(given.get("annotations"))), wanted
    except InputError:
        return "refused", wanted


@adapter("reservedCPUs")
def cpus(given: Any, expect: Any) -> tuple[Any, Any]:
    wanted = (shapes.listed(expect["cpuset"]), expect["count"])
    try:
        written = shapes.reservation(given.get("annotations"))
    except InputError:
        return "refused", wanted
    listed = EMPTY if written is None or written.reserved_cpus is None else written.reserved_cpus
    return (listed, reservation.cpu_count(written)), wanted


@adapter("trimAllocatable")
def trimmed(given: Any, expect: Any) -> tuple[Any, Any]:
    before = shapes.quantities(given.get("allocatable"))
    after = reservation.trim_allocatable(allocatable=before, written=shapes.good_reservation(given.get("annotations")))
    return (after, after != before), (shapes.quantities(expect["allocatable"]), expect["trimmed"])


@adapter("kubeletReserved")
def kept_by_kubelet(given: Any, expect: Any) -> tuple[Any, Any]:
    amounts = {side: shapes.quantities(given.get(side)) for side in ("capacity", "allocatable")}
    return reservation.from_kubelet(**amounts), shapes.quantities(expect["reserved"])


@adapter("unusableCPUs")
def unusable(given: Any, expect: Any) -> tuple[Any, Any]:
    """What the fit sees as taken, on the picture that the product's reader makes of the report."""
    room = _room(given)
    taken = room.node.topology.cpuset - room.free_cpus
    left = {str(number): zone["cpu"].value for number, zone in room.zones.items()}
    return (taken, left), (CPUSet.parse(expect["cpuset"]), {n: int(amount) for n, amount in expect["numaCPU"].items()})


def _room(given: Any) -> FreeCapacity:
    objects = files.Objects()
    for obj in (_report(given), {"kind": "Node", "metadata": {"name": "n"}}, *_pods(given)):
        files.take(objects, json.dumps(obj).encode(), "case")
    return FreeCapacity.of(assemble.view(objects, NOW).nodes["n"])


def _report(given: Any) -> Any:
    detail = [
        {"id": cpu, "core": cpu, "socket": 0, "node": zone["node"]}
        for zone in given["zones"]
        for cpu in CPUSet.parse(zone["cpus"])
    ]
    topology = {"node.koordinator.sh/cpu-topology": json.dumps({"detail": detail})}
    zones = [
        {
            "name": f"node-{zone['node']}",
            "type": "Node",
            "resources": [{"name": "cpu", **dict.fromkeys(("capacity", "allocatable", "available"), zone["cpu"])}],
        }
        for zone in given["zones"]
    ]
    meta = {"name": "n", "annotations": {**topology, **(given.get("nrtAnnotations") or {})}}
    return {"kind": "NodeResourceTopology", "metadata": meta, "zones": zones}


def _pods(given: Any) -> list[Any]:
    allocs = json.loads((given.get("nrtAnnotations") or {}).get("node.koordinator.sh/pod-cpu-allocs", "null")) or []
    return [
        {
            "kind": "Pod",
            "metadata": {name: alloc[name] for name in ("namespace", "name", "uid")},
            "spec": {"nodeName": "n", "containers": [{"name": "main"}]},
            "status": {"phase": "Running"},
        }
        for alloc in allocs
        if alloc.get("uid")
    ]
