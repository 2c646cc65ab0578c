"""Node reservation as written, and as the descheduler and the scheduler see it; CPU assignment, cpuset grammar."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from descheduler.fit.free_capacity import FreeCapacity
from descheduler.snapshot import assemble, files
from koordlite.formulas.allocatable import reservation
from koordlite.kube.kubelet import configz
from koordlite.model.cpuset import EMPTY, CPUSet
from koordlite.model.errors import InputError
from koordlite.model.quantity import Quantity
from koordlite.model.topology import Topology
from koordlite.numa.kubelet.cpu_take import take_by_topology
from tests.conformance.adapters import adapter, shapes
from tests.conformance.descheduler_view import NOW


@adapter("GetReservedCPUs", "reservedCPUs")
def reserved_cpus(given: Any, expect: Any) -> tuple[Any, Any]:
    names = ("reservedCPUs", "numReservedCPUs") if "reservedCPUs" in expect else ("cpuset", "count")
    wanted = (shapes.listed(expect[names[0]]), expect[names[1]])
    try:
        written = shapes.reservation(given.get("annotations"))
    except InputError:
        return "refused", wanted
    listed = EMPTY if written is None or written.reserved_cpus is None else written.reserved_cpus
    return (listed, reservation.cpu_count(written)), wanted


@adapter("GetNodeReservationFromAnnotation", "reservedResources")
def written_resources(given: Any, expect: Any) -> tuple[Any, Any]:
    wanted = shapes.quantities(expect.get("resources") or expect.get("reserved"))
    try:
        return reservation.written_resources(shapes.reservation(given.get("annotations"))), wanted
    except InputError:
        return "refused", wanted


@adapter("TrimNodeAllocatableByNodeReservation", "trimAllocatable")
def trimmed(given: Any, expect: Any) -> tuple[Any, Any]:
    before, wanted = shapes.quantities(given.get("allocatable")), shapes.quantities(expect["allocatable"])
    try:
        written = shapes.reservation(given.get("annotations"))
    except InputError:
        written = None  # The last good value stays in force, and there is none before.
    after = reservation.trim_allocatable(allocatable=before, written=written)
    return (after, after != before), (wanted, expect.get("trimmed", after != before))


@adapter("GetNodeReservationFromKubelet", "kubeletReserved")
def from_kubelet(given: Any, expect: Any) -> tuple[Any, Any]:
    status = (given.get("node") or {}).get("status") or given
    amounts = {side: shapes.quantities(status.get(side)) for side in ("capacity", "allocatable")}
    wanted = shapes.quantities(expect.get("resources") or expect.get("reserved"))
    return _without_zeros(reservation.from_kubelet(**amounts)), _without_zeros(wanted)


def _without_zeros(amounts: Mapping[str, Quantity]) -> dict[str, Quantity]:
    """Koordinator's list begins with nothing of cpu and memory, which says the same as their absence."""
    return {name: amount for name, amount in amounts.items() if amount.nano or name not in ("cpu", "memory")}


@adapter("getNodeReserved")
def resolved(given: Any, expect: Any) -> tuple[Any, Any]:
    wanted = (expect.get("reservedCPUs", ""), shapes.quantities(expect.get("resources")))
    try:
        written = shapes.reservation(given.get("annotations"))
    except InputError:
        return "refused", wanted
    found = reservation.resolve(written=written, cpus=shapes.cpus(given["topology"]))
    # Koordinator publishes the amounts as written; what holds is in `found.resources`.
    amounts = dict(written.resources) if written and not found.fallback else dict(found.resources)
    return (str(found.cpus), amounts), wanted


@adapter("GetStaticCPUManagerPolicyReservedCPUs")
def kept_by_kubelet(given: Any, expect: Any) -> tuple[Any, Any]:
    raw = json.dumps({"kubeletconfig": given["kubeletConfig"]}).encode()
    try:
        config = configz.parse_configz(raw)
    except InputError:
        return "", expect
    cpus = tuple(shapes.cpus(given["topology"]))
    seen, _ = configz.combine(config, configz.CPUManagerState(), Topology(cpus, ()))
    return str(seen.reserved_cpus), expect


@adapter("TakeByTopology")
def taken(given: Any, expect: Any) -> tuple[Any, Any]:
    try:
        found = take_by_topology(
            cpus=shapes.cpus(given["topology"]), available=shapes.cpuset(given["available"]), count=given["numCPUs"]
        )
    except ValueError as error:
        return str(error), expect.get("error")
    return found, shapes.cpuset(expect["cpuset"]) if "cpuset" in expect else expect


@adapter("cpuset.Parse")
def parsed(given: Any, expect: Any) -> tuple[Any, Any]:
    try:
        return {"cpuset": str(CPUSet.parse(given["s"]))}, expect
    except ValueError:
        return "refused", "refused" if expect.get("error") else expect


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
