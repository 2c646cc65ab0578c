"""Would a pod get the NUMA nodes and CPUs it was promised, or pass kubelet's own admission?"""

from __future__ import annotations

from descheduler.fit import koordinator
from descheduler.fit.free_capacity import Booking, FreeCapacity
from descheduler.framework import VOLCANO_POLICY, PodView
from koordlite.formulas.topology import numa_fit
from koordlite.model.pod.qos import KubeQoS
from koordlite.model.quantity import Quantity
from koordlite.model.resources import parse_resources
from koordlite.model.wire import objects


def answer(pod: PodView, capacity: FreeCapacity, wanted: numa_fit.Ask) -> tuple[str, tuple[Booking, ...]]:
    """Can the node keep the pod's promise, or pass kubelet's own admission? (why not, what it would take)."""
    unlike = _other_policy(pod, capacity)
    if unlike:
        return unlike, ()
    strict = capacity.node.topology_policy == "single-numa-node"
    if not pod.promised and not (strict and counted_by_admission(pod)):
        return "", ()
    if koordinator.concerned(pod, capacity) and not strict:
        return koordinator.answer(pod, capacity)
    if not capacity.zones:
        return ("the node's NUMA nodes are not reported", ()) if pod.promised else ("", ())
    if pod.promised and not pod.single_numa and not strict:
        return _pieces_anywhere(pod, capacity)
    scope = capacity.node.topology_scope if strict else _scope(pod)
    found = numa_fit.align(wanted, zones=capacity.zones, allocatable=capacity.allocatable, scope=scope)
    return (f"no single NUMA node is free: {found.why_not}", ()) if found.why_not else ("", found.parts)


def concerned(pod: PodView) -> bool:
    """Could NUMA nodes matter to the pod at all?"""
    return pod.promised or counted_by_admission(pod) or bool(asked_policy(pod))


def asked_policy(pod: PodView) -> str:
    """The topology manager policy that the pod asks of its node, for Volcano; empty when it asks for none."""
    asked = pod.pod.annotations.get(VOLCANO_POLICY, "")
    return "" if asked == "none" else asked


def _other_policy(pod: PodView, capacity: FreeCapacity) -> str:
    """Source: Volcano numa-aware, which places such a pod only where kubelet runs the very policy."""
    asked, node = asked_policy(pod), capacity.node
    if not asked or (node.topology_policy == asked and node.cpu_manager.policy == "static"):
        return ""
    if not node.topology_policy:
        return f"it is unknown whether kubelet runs the topology policy {asked}"
    return f"kubelet runs topology policy {node.topology_policy}, CPU manager {node.cpu_manager.policy or 'unknown'}"


def ask(pod: PodView) -> numa_fit.Ask:
    """The pod's requests as alignment counts them."""
    spec = pod.object.spec
    own = pod.promised or pod.pod.kube_qos is KubeQoS.GUARANTEED
    overhead = parse_resources(spec.overhead, "", "", [])
    return numa_fit.Ask(_amounts(spec.init_containers), _amounts(spec.containers), own, overhead)


def _amounts(containers: tuple[objects.Container, ...] | None) -> list[dict[str, Quantity]]:
    """A limit without a request is the request; amounts that cannot be read are in the view's problems already."""
    wanted = [container.resources or objects.Resources() for container in containers or ()]
    return [{**parse_resources(r.limits, "", "", []), **parse_resources(r.requests, "", "", [])} for r in wanted]


def counted_by_admission(pod: PodView) -> bool:
    """Kubelet aligns devices for everybody, CPUs and memory for Guaranteed pods."""
    return pod.pod.kube_qos is KubeQoS.GUARANTEED or any(not numa_fit.is_shared(name) for name in pod.pod.requests)


def _scope(pod: PodView) -> str:
    return "pod" if any(c.scope == "pod" for c in pod.containers) else "container"


def _pieces_anywhere(pod: PodView, capacity: FreeCapacity) -> tuple[str, tuple[Booking, ...]]:
    """Whole CPUs of its own, from any NUMA nodes: the lowest first."""
    left = pod.pod.requests.get("cpu", Quantity(0)).nano
    bookings: list[Booking] = []
    for zone, amounts in capacity.zones.items():
        taken = min(left, amounts.get("cpu", Quantity(0)).nano)
        if taken > 0:
            bookings.append((zone, {"cpu": Quantity(taken)}))
            left -= taken
    return ("too few CPUs that no pod has to itself", ()) if left > 0 else ("", tuple(bookings))
