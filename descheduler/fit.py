"""Would a pod fit elsewhere? Asked of every node as the plan has left it so far, and answered node by node.

Order of the questions and their words: upstream NodeFit; host ports, the node reservation, whole-domain anti-affinity
and NUMA nodes are ours.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping

from descheduler import room as rooms_module
from descheduler import selectors
from descheduler.anti_affinity import Domains
from descheduler.framework import PodView, View
from descheduler.room import Booking, Room
from koordlite.formulas import numa_fit
from koordlite.model import wire
from koordlite.model.pod import parse_resources
from koordlite.model.qos import KubeQoS
from koordlite.model.quantity import Quantity


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """A node the pod would fit on."""

    node: str
    here: bool = False
    """The node it is on: starting anew there would do."""
    bookings: tuple[Booking, ...] = ()
    """What it would take from which NUMA node."""


@dataclasses.dataclass(frozen=True, slots=True)
class Search:
    """Where a pod would fit, best place first, and why not elsewhere."""

    places: tuple[Place, ...]
    why_not: Mapping[str, int]
    """How many nodes said so, by what they said."""
    by_node: Mapping[str, str]
    """What each node that does not fit said."""

    @property
    def sentence(self) -> str:
        """All nodes' answers in one line, most frequent first."""
        ordered = sorted(self.why_not.items(), key=lambda item: (-item[1], item[0]))
        return ", ".join(f"{count} × {why}" for why, count in ordered) or "there is no other node"


class Rooms:
    """Every node's room, kept up to date while a plan is made."""

    def __init__(self, view: View) -> None:
        self.by_node = {name: Room.of(node) for name, node in view.nodes.items()}
        self._domains = Domains(view)

    def search(self, pod: PodView, node_selector: str = "") -> Search:
        """Ask every node that `node_selector` leaves. The pod's own node is asked only when a new start there could
        cure a broken promise."""
        selector, wanted = selectors.parse(node_selector), ask(pod)
        places, by_node = [], {}
        for name, room in self.by_node.items():
            here = name == pod.node
            if here and not pod.promised:
                continue
            outside = not selectors.labels_match(selector, room.node.node.labels)
            why, bookings = self._answer(pod, room.without(pod) if here else room, wanted)
            if outside:
                by_node[name] = "outside the evictor's nodeSelector"
            elif why:
                by_node[name] = why
            else:
                places.append(Place(name, here, bookings))
        places.sort(key=lambda place: (-self._free_cpu_share(place.node), place.node))
        return Search(tuple(places), Counter(by_node.values()), by_node)

    def move(self, pod: PodView, place: Place) -> None:
        """Note that the plan takes `pod` away, and that its successor is expected at `place`."""
        self.leave(pod)
        self.by_node[place.node] = self.by_node[place.node].with_arrival(pod, place.bookings)

    def leave(self, pod: PodView) -> None:
        """Note that the plan takes `pod` away, to nowhere we know of."""
        if pod.node in self.by_node:
            self.by_node[pod.node] = self.by_node[pod.node].without(pod)

    def _free_cpu_share(self, name: str) -> float:
        room = self.by_node[name]
        whole = room.allocatable.get("cpu")
        return room.free("cpu") / whole.nano if whole and whole.nano else 0.0

    def _answer(self, pod: PodView, room: Room, wanted: numa_fit.Ask) -> tuple[str, tuple[Booking, ...]]:
        """Why not, or else what would be taken from which NUMA node."""
        why = self._placement_refusal(pod, room) or resource_refusal(pod, room) or _port_refusal(pod, room)
        return (why, ()) if why else numa_answer(pod, room, wanted)

    def _placement_refusal(self, pod: PodView, room: Room) -> str:
        node = room.node
        labels, spec = node.node.labels, pod.object.spec
        if not node.ready:
            return "node is not ready"
        if node.object.spec.unschedulable:
            return "node is not schedulable"
        if not selectors.node_matches(spec, node.name, labels):
            return "pod node selector does not match the node label"
        return self._taint_refusal(pod, room) or self._anti_affinity_refusal(pod, room)

    def _taint_refusal(self, pod: PodView, room: Room) -> str:
        taint = selectors.untolerated(room.node.object.spec.taints or (), pod.object.spec.tolerations or ())
        return f"pod does not tolerate the taint {taint.key}:{taint.effect}" if taint else ""

    def _anti_affinity_refusal(self, pod: PodView, room: Room) -> str:
        conflict = self._domains.conflict(pod, room.node.name, self.by_node)
        return "pod matches inter-pod anti-affinity rule of other pod on node" if conflict else ""


def resource_refusal(pod: PodView, room: Room) -> str:
    """`insufficient <resource>` for the first of the pod's requests that is more than is free."""
    for name, amount in pod.pod.requests.items():
        if amount.nano > room.free(name):
            return f"insufficient {name}"
    return "insufficient pods" if room.free_slots is not None and room.free_slots < 1 else ""


def _port_refusal(pod: PodView, room: Room) -> str:
    taken = next((p for p in rooms_module.host_ports(pod) if rooms_module.clashes(p, room.ports)), None)
    return f"host port {taken[1]}/{taken[0]} is in use" if taken else ""


def numa_answer(pod: PodView, room: Room, wanted: numa_fit.Ask) -> tuple[str, tuple[Booking, ...]]:
    """Can the node keep the pod's promise, or pass kubelet's own admission? (why not, what it would take)."""
    strict = room.node.topology_policy == "single-numa-node"
    if not pod.promised and not (strict and _counted_by_admission(pod)):
        return "", ()
    if not room.zones:
        return ("nobody reports the node's NUMA nodes", ()) if pod.promised else ("", ())
    if pod.promised and not pod.single_numa and not strict:
        return _pieces_anywhere(pod, room)
    scope = room.node.topology_scope if strict else _scope(pod)
    found = numa_fit.align(wanted, zones=room.zones, allocatable=room.allocatable, scope=scope)
    return (f"no single NUMA node is free: {found.why_not}", ()) if found.why_not else ("", found.parts)


def ask(pod: PodView) -> numa_fit.Ask:
    """The pod's requests as alignment counts them."""
    spec = pod.object.spec
    own = pod.promised or pod.pod.kube_qos is KubeQoS.GUARANTEED
    overhead = parse_resources(spec.overhead, "", "", [])
    return numa_fit.Ask(_amounts(spec.init_containers), _amounts(spec.containers), own, overhead)


def _amounts(containers: tuple[wire.Container, ...] | None) -> list[dict[str, Quantity]]:
    """A limit without a request is the request; amounts that cannot be read are in the view's problems already."""
    wanted = [container.resources or wire.Resources() for container in containers or ()]
    return [{**parse_resources(r.limits, "", "", []), **parse_resources(r.requests, "", "", [])} for r in wanted]


def _counted_by_admission(pod: PodView) -> bool:
    """Kubelet aligns devices for everybody, CPUs and memory for Guaranteed pods."""
    return pod.pod.kube_qos is KubeQoS.GUARANTEED or any(not numa_fit.is_shared(name) for name in pod.pod.requests)


def _scope(pod: PodView) -> str:
    return "pod" if any(c.scope == "pod" for c in pod.containers) else "container"


def _pieces_anywhere(pod: PodView, room: Room) -> tuple[str, tuple[Booking, ...]]:
    """Whole CPUs of its own, from any NUMA nodes: the lowest first."""
    left = pod.pod.requests.get("cpu", Quantity(0)).nano
    bookings: list[Booking] = []
    for zone, amounts in room.zones.items():
        taken = min(left, amounts.get("cpu", Quantity(0)).nano)
        if taken > 0:
            bookings.append((zone, {"cpu": Quantity(taken)}))
            left -= taken
    return ("too few CPUs that are nobody's own", ()) if left > 0 else ("", tuple(bookings))
