"""The NUMA nodes and CPUs a pod would get on a node, of Koordinator's scheduler or by kubelet's admission."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from descheduler.fit.free_capacity import Booking, FreeCapacity
from descheduler.framework import PodView
from koordlite.model import keys
from koordlite.model.pod.qos import KubeQoS
from koordlite.model.quantity import ZERO, Quantity
from koordlite.numa.koordinator import ask as koordinator_ask
from koordlite.numa.koordinator import schedule
from koordlite.numa.koordinator.node_report import KoordinatorNode
from koordlite.numa.koordinator.values import Allocation, Refusal
from koordlite.numa.kubelet import requests
from koordlite.numa.nrt import filter as nrt


def is_koordinators(pod: PodView, capacity: FreeCapacity) -> bool:
    """Koordinator's scheduler gave the pod its CPUs or NUMA nodes, and knows the CPUs of the node."""
    return bool(capacity.node.koordinator.machine.cpus) and any(c.source == "koordinator" for c in pod.containers)


def koordinator_answer(pod: PodView, capacity: FreeCapacity) -> tuple[str, tuple[Booking, ...]]:
    """(why not, what the pod would take of each NUMA node): the scheduler's own rules and words.

    A pod that was promised one NUMA node does not fit where the scheduler would give it several.
    """
    allocation = _allocation(pod, koordinator_state(capacity))
    if isinstance(allocation, Refusal):
        return f"Koordinator's scheduler would refuse it: {allocation}", ()
    bookings = () if allocation is None else _allocated(allocation, capacity)
    if pod.single_numa and len(bookings) > 1:
        several = ", ".join(str(zone) for zone, _ in bookings)
        return f"Koordinator's scheduler would give it NUMA nodes {several}, and one was promised", ()
    return "", bookings


def koordinator_state(capacity: FreeCapacity) -> KoordinatorNode:
    """The node as the scheduler would see it: pods that the plan sends there hold what it would give them."""

    def after_arrivals() -> KoordinatorNode:
        current = capacity.koordinator
        for pod, _ in capacity.arrivals:
            allocation = _allocation(pod, current) if is_koordinators(pod, capacity) else None
            if isinstance(allocation, Allocation):
                current = current.with_pod(allocation)
        return current

    return capacity.koordinator.once("after arrivals", after_arrivals)


def _allocation(pod: PodView, current: KoordinatorNode) -> Allocation | Refusal | None:
    request = koordinator_ask.of(pod.pod)
    return schedule.bind(request, current, uid=pod.uid) if isinstance(request, koordinator_ask.PodRequest) else request


def _allocated(allocation: Allocation, capacity: FreeCapacity) -> tuple[Booking, ...]:
    """Amounts by NUMA node; where only CPUs were given, those of each."""
    if allocation.zones:
        return tuple(allocation.zones.items())
    split = {zone: len(cpus & allocation.cpus) for zone, cpus in capacity.node.koordinator.machine.by_node.items()}
    return tuple((zone, {"cpu": Quantity.of(count)}) for zone, count in sorted(split.items()) if count)


def answer(pod: PodView, capacity: FreeCapacity, request: nrt.AlignedRequest) -> tuple[str, tuple[Booking, ...]]:
    """Ask whether the node keeps the pod's promise and kubelet would admit it: (why not, what it would take)."""
    unlike = _other_policy(pod, capacity)
    if unlike:
        return unlike, ()
    strict = _strict_policy(capacity)
    if not pod.promised and not (strict and counted_by_admission(pod)):
        return "", ()
    if is_koordinators(pod, capacity) and not strict:
        return koordinator_answer(pod, capacity)
    if not capacity.zones:
        return ("the node's NUMA nodes are not reported", ()) if pod.promised else ("", ())
    if pod.promised and not pod.single_numa and not strict:
        return _pieces_anywhere(pod, capacity)
    zones = _nano_zones(capacity.zones)
    if strict is None:
        scope = "pod" if any(c.scope == "pod" for c in pod.containers) else "container"
        fit = nrt.align(request, zones=zones, allocatable=None, scope=scope)
    else:
        totals, scope = _nano_zones(capacity.node.zone_totals), capacity.node.topology_scope
        fit = nrt.admit(request, strict, zones=zones, at_most=zones, totals=totals, scope=scope)
    why = "kubelet would not admit it" if strict == "restricted" else "no single NUMA node is free"
    return (f"{why}: {fit.why_not}", ()) if fit.why_not else ("", tuple(_bookings(fit, zones)))


def _strict_policy(capacity: FreeCapacity) -> nrt.Policy | None:
    """The policy by which kubelet would refuse a pod; `restricted` only where the report has what it needs."""
    match capacity.node.topology_policy:
        case "single-numa-node":
            return "single-numa-node"
        case "restricted" if capacity.node.zone_totals:
            return "restricted"
    return None


def _bookings(fit: nrt.Fit, zones: nrt.Zones) -> Iterator[Booking]:
    """Amounts that each part takes: of its first NUMA node as much as that has, then of the next."""
    for part, nodes in fit.placed:
        missing = dict(part.usage)
        for node in nodes:
            amounts = {name: min(amount, zones[node].get(name, amount)) for name, amount in missing.items()}
            missing = {name: amount - amounts[name] for name, amount in missing.items()}
            yield node, {n: Quantity(nano, "BinarySI" if n == "memory" else "DecimalSI") for n, nano in amounts.items()}


def is_numa_aware(pod: PodView) -> bool:
    """Tell whether NUMA nodes could matter to the pod at all."""
    return pod.promised or counted_by_admission(pod) or bool(volcano_policy(pod))


def volcano_policy(pod: PodView) -> str:
    """The topology manager policy that the pod asks of its node, for Volcano; empty when it asks for none."""
    policy = pod.pod.annotations.get(keys.VOLCANO_NUMA_POLICY, "")
    return "" if policy == "none" else policy


def _other_policy(pod: PodView, capacity: FreeCapacity) -> str:
    """Source: Volcano numa-aware, which places such a pod only where kubelet runs the very policy."""
    policy, node = volcano_policy(pod), capacity.node
    if not policy or (node.topology_policy == policy and node.cpu_manager.policy == "static"):
        return ""
    if not node.topology_policy:
        return f"it is unknown whether kubelet runs the topology policy {policy}"
    return f"kubelet runs topology policy {node.topology_policy}, CPU manager {node.cpu_manager.policy or 'unknown'}"


def ask(pod: PodView) -> nrt.AlignedRequest:
    """The pod's requests as kubelet aligns them."""
    own = pod.promised or pod.pod.kube_qos is KubeQoS.GUARANTEED
    return nrt.aligned_by_kubelet(requests.in_nano(pod.object.spec), guaranteed=own)


def _nano_zones(zones: Mapping[int, Mapping[str, Quantity]]) -> dict[int, dict[str, int]]:
    return {number: {name: amount.nano for name, amount in amounts.items()} for number, amounts in zones.items()}


def counted_by_admission(pod: PodView) -> bool:
    """Kubelet aligns devices for everybody, CPUs and memory for Guaranteed pods."""
    return pod.pod.kube_qos is KubeQoS.GUARANTEED or any(not nrt.is_shared(name) for name in pod.pod.requests)


def _pieces_anywhere(pod: PodView, capacity: FreeCapacity) -> tuple[str, tuple[Booking, ...]]:
    """Whole CPUs of its own, from any NUMA nodes: the lowest first."""
    missing = pod.pod.requests.get("cpu", ZERO).nano
    bookings: list[Booking] = []
    for zone, amounts in capacity.zones.items():
        amount = min(missing, amounts.get("cpu", ZERO).nano)
        if amount > 0:
            bookings.append((zone, {"cpu": Quantity(amount)}))
            missing -= amount
    return ("too few CPUs that no pod has to itself", ()) if missing > 0 else ("", tuple(bookings))
