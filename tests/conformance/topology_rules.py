"""Rules that explain differences about reservations, pools and topology: each asserts what ours says instead."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from koordlite.model import cpuset, keys
from koordlite.model.cpuset import CPUSet
from koordlite.model.node import SystemQoS
from koordlite.model.quantity import Quantity
from tests.conformance.adapters import shapes
from tests.conformance.deviations import deviation

POOLS = ("cpu-shared-pools", "be-cpu-shared-pools")


@deviation(
    "pools-emptied: a pool without CPUs is no pool, and sets are joined as sets",
    "getContainerCPUSet",
    "SetContainerCPUSet",
    "SetHostAppCPUSet",
)
def emptied_set(given: Any, wanted: Any, found: Any) -> bool:
    """A joined text with a comma too many: what is left of it is the set, and nothing is written where none is left."""
    parts = wanted.split(",") if isinstance(wanted, str) else []
    return "" in parts and (found or CPUSet()) == cpuset.union(CPUSet.parse(part) for part in parts)


@deviation(
    "cpuset-unchecked: a promise that is no CPU list is refused, and nothing is written",
    "getContainerCPUSet",
    "SetContainerCPUSet",
)
def no_cpu_list(given: Any, wanted: Any, found: Any) -> bool:
    """Koordinator writes a promised text that is no CPU list as it is; ours is an error."""
    text = wanted.get("cpuset") if isinstance(wanted, dict) else None
    return bool(text and not _cpus(text) and found == {"error": True})


@deviation(
    "pools-emptied: a pool without CPUs is no pool, and sets are joined as sets",
    "reportNodeTopology",
    "removeSystemQOSCPUs",
)
def emptied_pools(given: Any, wanted: Any, found: Any) -> bool:
    """Pools without CPUs are listed: the others are the same."""
    if not isinstance(wanted, dict):
        return bool(found == [row for row in wanted if row[2]])
    pools = all(found[name] == [row for row in wanted[name] if row[2]] for name in POOLS if name in wanted)
    return pools and _equal_but(POOLS, wanted, found)


@deviation("assignment-checked: a pod is assigned no more CPUs than it requests", "reportNodeTopology")
def unrequested(given: Any, wanted: Any, found: Any) -> bool:
    """Pods that request no CPU are assigned none: the pools have just those CPUs more."""
    pods = given.get("pods") or []
    theirs = _promised(pod for pod in pods if not (pod.get("spec") or {}).get("containers"))
    more = {name: (_all(found[name]) - _all(wanted[name])) for name in POOLS if name in wanted}
    fewer = any(_all(wanted[name]) - _all(found[name]) for name in more)
    return (
        any(more.values()) and not fewer and cpuset.union(more.values()) <= theirs and _equal_but(POOLS, wanted, found)
    )


@deviation("finished-pod-cpus: the CPUs of a pod that has finished are shared again", "reportNodeTopology")
def finished_pod(given: Any, wanted: Any, found: Any) -> bool:
    """Pools have CPUs of finished pods more, and no other ones; none has fewer."""
    pods = given.get("pods") or []
    ended = _promised(pod for pod in pods if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"))
    more = {name: (_all(found[name]) - _all(wanted[name])) for name in POOLS if name in wanted}
    fewer = any(_all(wanted[name]) - _all(found[name]) for name in more)
    return not fewer and all(cpus <= ended for cpus in more.values()) and _equal_but(POOLS, wanted, found)


@deviation("reservation-pinned: a reservation by quantity avoids CPUs that pods own", "reportNodeTopology")
def pinned_reservation(given: Any, wanted: Any, found: Any) -> bool:
    """Koordinator reserves CPUs that pods own or that are set apart; ours are as many, and none of those."""
    theirs, ours = _reserved(wanted), _reserved(found)
    taken = _promised(given.get("pods") or []) | _cpus(_note(given, keys.SYSTEM_QOS).get("cpuset"))
    return bool(theirs & taken) and not ours & taken and len(ours) == len(theirs)


@deviation(
    "reservation-beyond-machine: what the machine lacks is dropped, and the rest is reserved", "reportNodeTopology"
)
def reserved_beyond(given: Any, wanted: Any, found: Any) -> bool:
    """More is asked for than the machine has: ours is on the machine, leaves it a CPU, and is not shared."""
    written = _note(given, keys.RESERVATION)
    machine = CPUSet(cpu["cpu"] for cpu in given["cpus"])
    count = Quantity.parse((written.get("resources") or {}).get("cpu", "0")).value
    beyond = not _cpus(written.get("reservedCPUs")) <= machine or count > len(machine)
    ours = _reserved(found)
    shared = cpuset.union(_all(found[name]) for name in POOLS if name in found)
    return beyond and ours <= machine and ours != machine and not ours & shared


@deviation(
    "system-qos-refused: an annotation that cannot be read leaves the last good value, and the report goes on",
    "reportNodeTopology",
)
def system_qos_unread(given: Any, wanted: Any, found: Any) -> bool:
    """Koordinator gives up the whole report, or publishes what it cannot read; ours says that nothing is set apart."""
    if "error" in wanted:
        return not _note(given, keys.SYSTEM_QOS)
    name = "system-qos-resource"
    return name in wanted and found[name] == SystemQoS() and _equal_but((name,), wanted, found)


@deviation(
    "system-qos-refused: an annotation that cannot be read leaves the last good value, and the report goes on",
    "GetSystemQOSResource",
)
def system_qos_list_unread(given: Any, wanted: Any, found: Any) -> bool:
    """Koordinator hands on a CPU list that nobody can read; ours is an error."""
    written = _decoded((given.get("annotations") or {}).get(keys.SYSTEM_QOS)).get("cpuset")
    return bool(written and not _cpus(written) and found == {"error": True})


@deviation("zone-foreign-resource: what others put into a zone does not make us write", "nodeTopologyStatus.isChanged")
def foreign_gpu(given: Any, wanted: Any, found: Any) -> bool:
    """A resource that the node does not report stands in a zone, and nothing else differs."""
    old, new = ({resource["name"] for zone in zones for resource in zone} for zones in _zones(given))
    return bool(old - new == {"koordinator.sh/gpu"} and wanted["changed"] and not found["changed"])


@deviation("zone-capacity: a zone's capacity counts, not only what may be handed out", "nodeTopologyStatus.isChanged")
def other_capacity(given: Any, wanted: Any, found: Any) -> bool:
    """Only the capacity of a zone differs."""
    old, new = ([[resource["capacity"] for resource in zone] for zone in zones] for zones in _zones(given))
    return bool(old != new and not wanted["changed"] and found["reason"].endswith("item: resources"))


def _equal_but(names: Any, wanted: Any, found: Any) -> bool:
    return all(found.get(name) == wanted[name] for name in wanted if name not in names)


def _all(rows: Any) -> CPUSet:
    return cpuset.union(row[2] for row in rows)


def _reserved(side: Any) -> CPUSet:
    return _cpus((side.get("reservation") or {}).get("reservedCPUs"))


def _promised(pods: Any) -> CPUSet:
    notes = [pod["metadata"].get("annotations") or {} for pod in pods]
    return cpuset.union(_cpus(_decoded(note.get(keys.RESOURCE_STATUS)).get("cpuset")) for note in notes)


def _note(given: Any, key: str) -> dict[str, Any]:
    return _decoded((given.get("nodeAnnotations") or {}).get(key))


def _decoded(text: str | None) -> dict[str, Any]:
    """An annotation; empty when it cannot be read."""
    try:
        return json.loads(text or "{}") or {}
    except ValueError:
        return {}


def _cpus(text: str | None) -> CPUSet:
    """A CPU list; empty when it cannot be read."""
    try:
        return CPUSet.parse(text or "")
    except ValueError:
        return CPUSet()


def _zones(given: Any) -> tuple[list[Any], list[Any]]:
    """The resources of the old zones and of the new ones."""
    old, new = (given.get("oldTopo") or {}).get("zones"), given["newTopoStatus"].get("Zones")
    return [zone.get("resources") or [] for zone in old or []], [zone.get("resources") or [] for zone in new or []]


@deviation(
    "reservation-refused: an annotation that cannot be read is an error, never 'nothing reserved'",
    "GetReservedCPUs",
    "GetNodeReservationFromAnnotation",
    "getNodeReserved",
    "reservedCPUs",
    "reservedResources",
    "cpu_suppress.adjust_by_cpuset",
    "cpu_suppress.recover_cpuset",
)
def _refused(given: Any, wanted: Any, found: Any) -> bool:
    return bool(found == "refused")


@deviation("reservation-beyond-machine: what the machine lacks is dropped, and the rest is reserved", "getNodeReserved")
def _asks_for_what_is_not_there(given: Any, wanted: Any, found: Any) -> bool:
    written = json.loads(given["annotations"]["node.koordinator.sh/reservation"])
    count = Quantity.parse((written.get("resources") or {}).get("cpu", "0"))
    return "reservedCPUs" in written or -(-count.milli // 1000) > len(given["topology"])


@deviation(
    "reservation-negative: a negative amount counts as 0",
    "getNodeReserved",
    "TrimNodeAllocatableByNodeReservation",
    "trimAllocatable",
)
def _negative(given: Any, wanted: Any, found: Any) -> bool:
    """Only amounts of resources that are reserved below 0 differ."""
    if found == "refused":
        return False
    written = json.loads(given["annotations"]["node.koordinator.sh/reservation"])
    below = {name for name, amount in shapes.quantities(written.get("resources")).items() if amount.nano < 0}
    ours, theirs = (side[0] if isinstance(side[0], Mapping) else side[1] for side in (found, wanted))
    return bool(below) and {n for n in {*ours, *theirs} if ours.get(n) != theirs.get(n)} <= below
