"""Reservation for processes outside Kubernetes: from the annotation as written to CPUs and amounts that hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from koordlite.model import keys
from koordlite.model.cpuset import EMPTY, CPUSet
from koordlite.model.node import Reservation, ResolvedReservation
from koordlite.model.quantity import ZERO, Quantity
from koordlite.model.topology import CPU
from koordlite.numa.kubelet.cpu_take import take_by_topology

Resources = Mapping[str, Quantity]

_FROM_KUBELET = ("cpu", "memory")
_NEVER_TRIMMED = (keys.BATCH_CPU, keys.BATCH_MEMORY)


def resolve(*, written: Reservation | None, cpus: Sequence[CPU], pinned: CPUSet = EMPTY) -> ResolvedReservation:
    """the listed CPUs that exist, else ⌈cpu⌉ CPUs by topology outside `pinned`: the reservation on this machine.

    What cannot be honoured as written gets the nearest thing that can, and `fallback` says which: ids the machine
    lacks are dropped; CPUs pinned by pods are taken only when there are too few others; what asks for more than the
    machine has leaves it one CPU. Source: Koordinator `getNodeReserved`, which in these cases reserves nothing, or
    ids that do not exist, without a word (docs/compatibility.md).
    """
    if written is None:
        return ResolvedReservation()
    resources = written.resources
    negative = [f"{name} {amount} is negative; 0 is reserved" for name, amount in resources.items() if amount.nano < 0]
    amounts = {name: max(amount, ZERO) for name, amount in resources.items()}
    if written.reserved_cpus is not None:
        reserved, fallback = _listed(written.reserved_cpus, CPUSet(cpu.id for cpu in cpus))
        amounts["cpu"], source = Quantity.of(len(reserved)), "list"
    else:
        count = cpu_count(written)
        reserved, fallback = _counted(count, cpus, pinned)
        source = "quantity" if count else "none"
        if len(reserved) < count:
            amounts["cpu"] = Quantity.of(len(reserved))
    words = [*([fallback] if fallback else []), *negative, *written.ignored]
    return ResolvedReservation(reserved, amounts, written, source, "; ".join(words))


def written_resources(written: Reservation | None) -> dict[str, Quantity]:
    """resources as written, cpu replaced by the number of listed CPUs when there is a list.

    The list is not compared with the machine, and a fraction of a CPU stays one. Source: Koordinator
    `GetNodeReservationResources`.
    """
    if written is None:
        return {}
    listed = {} if written.reserved_cpus is None else {"cpu": Quantity.of(len(written.reserved_cpus))}
    return {**written.resources, **listed}


def cpu_count(written: Reservation | None) -> int:
    """⌈cpu⌉ whole CPUs asked for by quantity; 0 when negative, absent, or when a list was given instead.

    Source: Koordinator `GetReservedCPUs`.
    """
    if written is None or written.reserved_cpus is not None or "cpu" not in written.resources:
        return 0
    return max(0, -(-written.resources["cpu"].milli // 1000))


def from_kubelet(*, capacity: Resources, allocatable: Resources) -> dict[str, Quantity]:
    """max(capacity − allocatable, 0) of cpu and memory: what kubelet itself keeps back.

    Source: Koordinator `GetNodeReservationFromKubelet`.
    """
    names = [name for name in _FROM_KUBELET if name in capacity or name in allocatable]
    return {name: _clamped_difference(capacity.get(name, ZERO), allocatable.get(name, ZERO)) for name in names}


def larger(a: Resources, b: Resources) -> dict[str, Quantity]:
    """max(a, b) key by key; a key of one side only is kept as it is."""
    return {name: max(a.get(name, b.get(name, ZERO)), b.get(name, a.get(name, ZERO))) for name in {**a, **b}}


def trim_allocatable(*, allocatable: Resources, written: Reservation | None) -> dict[str, Quantity]:
    """max(allocatable − reserved, 0), batch-cpu and batch-memory untouched: what a scheduler may hand out.

    Unchanged when nothing is reserved or the policy is neither empty nor `Default`. Resources that only the
    reservation names, and the batch ones when absent, appear as 0. Source: Koordinator
    `TrimNodeAllocatableByNodeReservation`, to which a negative amount adds.
    """
    reserved = {name: max(amount, ZERO) for name, amount in written_resources(written).items()}
    applies = written is not None and written.apply_policy in ("", "Default")
    if not applies or not any(amount.nano for amount in reserved.values()):
        return dict(allocatable)
    names = {**allocatable, **reserved}
    trimmed = {name: _clamped_difference(allocatable.get(name, ZERO), reserved.get(name, ZERO)) for name in names}
    return {**trimmed, **{name: allocatable.get(name, ZERO) for name in _NEVER_TRIMMED}}


def _listed(listed: CPUSet, machine: CPUSet) -> tuple[CPUSet, str]:
    reserved, lacking = listed & machine, listed - machine
    if not listed:
        return reserved, "reservedCPUs names no CPU; no CPU is reserved"
    if not lacking:
        return reserved, ""
    if reserved == machine:
        # A list that overshoots is a mistake, and a mistake must not take the last CPU from the pods.
        reserved -= CPUSet(list(machine)[-1:])
    return reserved, f"the machine has no CPU {lacking} of reservedCPUs {listed}; {_reserved(reserved)}"


def _counted(count: int, cpus: Sequence[CPU], pinned: CPUSet) -> tuple[CPUSet, str]:
    machine = CPUSet(cpu.id for cpu in cpus)
    if count > len(machine):
        possible = max(len(machine) - 1, 0)
        reserved = take_by_topology(cpus=cpus, available=machine, count=possible)
        why = f"{count} CPUs are asked for but the machine has {len(machine)}; {possible} are reserved: {reserved}"
        return reserved, why
    usual = take_by_topology(cpus=cpus, available=machine, count=count)
    if not usual & pinned:
        # The answer must not wander when pods elsewhere come and go, so pinned CPUs matter only where they are hit.
        return usual, ""
    free = machine - pinned
    if count <= len(free):
        return take_by_topology(cpus=cpus, available=free, count=count), ""
    overlap = f"{count} CPUs are asked for but only {len(free)} are not pinned by pods"
    return usual, f"{overlap}; {_reserved(usual)}, of which {usual & pinned} are pinned"


def _reserved(cpus: CPUSet) -> str:
    return f"CPUs {cpus} are reserved" if cpus else "no CPU is reserved"


def _clamped_difference(a: Quantity, b: Quantity) -> Quantity:
    return Quantity(max(a.nano - b.nano, 0), a.format)
