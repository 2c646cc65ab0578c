"""The status of the Node: what the emulated machine's kubelet registers, whatever the manifest says."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import structs

from koordlite.lab.machine.machine import Machine
from koordlite.model import node as nodes
from koordlite.model.errors import Problem
from koordlite.model.quantity import Quantity
from koordlite.model.wire import objects

PODS = 110
EVICTION_MEMORY = 100 * 2**20
"""kubelet's default hard eviction threshold, which allocatable leaves out."""

Amounts = dict[str, str | int | float]


def fresh(machine: Machine, name: str) -> objects.NodeObject:
    """A Node as this machine's kubelet registers it."""
    capacity: Amounts = {**_native(machine), "pods": str(PODS)}
    allocatable = {**capacity, "memory": f"{(machine.memory - EVICTION_MEMORY) // 1024}Ki"}
    return objects.NodeObject(
        metadata=objects.ObjectMeta(name=name, uid=f"node-{name}"),
        status=objects.NodeStatus(capacity=capacity, allocatable=allocatable),
    )


def corrected(machine: Machine, written: objects.NodeObject) -> tuple[objects.NodeObject, tuple[Problem, ...]]:
    """`written` with the machine's CPUs and memory, keeping what it holds back from them; and what was wrong.

    The same object when it was right. A manifest without a status is not wrong.
    """
    described = nodes.from_wire(written)
    native = {name: Quantity.parse(text) for name, text in _native(machine).items()}
    wrong = {
        name: described.capacity.get(name) for name, amount in native.items() if described.capacity.get(name) != amount
    }
    if not wrong:
        return written, ()
    base = fresh(machine, written.metadata.name).status
    capacity: Amounts = {**(base.capacity or {}), **(written.status.capacity or {}), **_native(machine)}
    allocatable: Amounts = {**(base.allocatable or {}), **(written.status.allocatable or {})}
    allocatable |= _less_reserved(native, described)
    problems = tuple(_problem(written, name, given, native[name]) for name, given in wrong.items() if given)
    status = structs.replace(written.status, capacity=capacity, allocatable=allocatable)
    return structs.replace(written, status=status), problems


def _native(machine: Machine) -> Amounts:
    return {"cpu": str(len(machine.cpus)), "memory": f"{machine.memory // 1024}Ki"}


def _less_reserved(native: Mapping[str, Quantity], described: nodes.Node) -> Amounts:
    """The machine's amounts less what the manifest's allocatable leaves out of its capacity."""
    return {
        name: str(Quantity(max(0, amount.nano - capacity.nano + allocatable.nano), amount.format))
        for name, amount in native.items()
        if (capacity := described.capacity.get(name)) and (allocatable := described.allocatable.get(name))
    }


def _problem(written: objects.NodeObject, name: str, given: Quantity, real: Quantity) -> Problem:
    why = f"the emulated machine has {real}"
    do = "fix the manifest or take another shape; the machine's amount counts"
    return Problem(f"node/{written.metadata.name}", f"status.capacity.{name}", str(given), why, do)
