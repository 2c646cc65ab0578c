"""Node reservation, CPU assignment, cpuset grammar."""

from __future__ import annotations

import json
from typing import Any

from koordlite.formulas.allocatable import reservation
from koordlite.kube.kubelet import configz
from koordlite.model.cpuset import EMPTY, CPUSet
from koordlite.model.errors import InputError
from koordlite.model.topology import Topology
from koordlite.numa.kubelet.cpu_take import take_by_topology
from tests.conformance.adapters import adapter, shapes


@adapter("GetReservedCPUs")
def reserved_cpus(given: Any, expect: Any) -> tuple[Any, Any]:
    wanted = (shapes.listed(expect["reservedCPUs"]), expect["numReservedCPUs"])
    try:
        written = shapes.reservation(given.get("annotations"))
    except InputError:
        return "refused", wanted
    listed = EMPTY if written is None or written.reserved_cpus is None else written.reserved_cpus
    return (listed, reservation.cpu_count(written)), wanted


@adapter("GetNodeReservationFromAnnotation")
def written_resources(given: Any, expect: Any) -> tuple[Any, Any]:
    wanted = shapes.quantities(expect.get("resources"))
    try:
        return reservation.written_resources(shapes.reservation(given.get("annotations"))), wanted
    except InputError:
        return "refused", wanted


@adapter("TrimNodeAllocatableByNodeReservation")
def trimmed(given: Any, expect: Any) -> tuple[Any, Any]:
    before, wanted = shapes.quantities(given.get("allocatable")), shapes.quantities(expect["allocatable"])
    written = shapes.good_reservation(given.get("annotations"))
    return reservation.trim_allocatable(allocatable=before, written=written), wanted


@adapter("GetNodeReservationFromKubelet")
def from_kubelet(given: Any, expect: Any) -> tuple[Any, Any]:
    node = shapes.node_of(given.get("node"))
    found = reservation.from_kubelet(capacity=node.capacity, allocatable=node.allocatable)
    return found, shapes.quantities(expect.get("resources"))


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
