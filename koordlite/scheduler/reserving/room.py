"""Room of nodes that is promised and not bound yet: who makes a placeholder counts it beside what pods have.

It is derived from the objects each time: hand-overs that are under way, pods that a scheduler keeps room for, and
placeholders that wait.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator, Mapping

import msgspec

from koordlite.formulas.reservation import capacity as capacities
from koordlite.formulas.reservation import lifecycle
from koordlite.formulas.reservation.capacity import NodeCapacity
from koordlite.model import node_selectors
from koordlite.model.quantity import Quantity, add_resources
from koordlite.model.wire.objects import PodSpec
from koordlite.model.wire.reservation import ReservationObject
from koordlite.numa.koordinator.amounts import ZERO, left
from koordlite.scheduler.reserving.world import SeenPod, World

Amounts = Mapping[str, Quantity]


def capacity(world: World, node: str, mine: str, *, matched: int = 0, owner: str = "") -> NodeCapacity | None:
    """A node as the Reservation with uid `mine` meets it: room that others were promised there counts as requested.

    No more than there is: what was promised and is gone is not taken from those who still have theirs. None when the
    node is unknown. `matched`: as for `World.capacity`. `owner`: uid of a pod whose own claim does not count.
    """
    where = world.capacity(node, matched)
    if where is None:
        return None
    promised: collections.Counter[str] = collections.Counter()
    for amounts in _of_node(world, node, mine, owner):
        promised.update({**capacities.whole(amounts), "pods": 1})
    most, pods = where.allocatable, where.pods
    requested = {
        name: used + min(promised[name], max(most.get(name, 0) - used, 0))
        for name in {*where.requested, *promised} - {"pods"}
        for used in (where.requested.get(name, 0),)
    }
    pods += min(promised["pods"], max(most.get("pods", 0) - pods, 0))
    return msgspec.structs.replace(where, requested=requested, pods=pods)


def displaced(world: World, amounts: Amounts, spec: PodSpec, mine: str) -> str:
    """The Reservation whose freed room a new placeholder would take from its owner; empty for none."""
    for reservation, _ in world.handed_over():
        name = reservation.status.node_name
        node, where = world.nodes.get(name), world.capacity(name)
        if node is None or where is None or reservation.metadata.uid == mine:
            continue
        may = node_selectors.node_matches(spec, name, node.metadata.labels or {})
        if not may or node_selectors.untolerated(node.spec.taints or (), spec.tolerations or ()) is not None:
            continue
        kept = capacity(world, name, mine)
        whole = capacities.whole(amounts)
        if not capacities.fit_node(whole, where, {}) and kept and capacities.fit_node(whole, kept, {}):
            return reservation.metadata.name
    return ""


def _of_node(world: World, node: str, mine: str, owner: str) -> Iterator[Amounts]:
    """Amounts promised on a node to others, and not bound yet."""
    counted = {owner}
    for reservation, coming in world.handed_over(node):
        counted.add(coming.uid)
        uid = reservation.metadata.uid
        waiting = [pod for pod in world.placeholders(uid) if pod.alive and not pod.node]
        counted.update(pod.uid for pod in waiting)
        if uid != mine and (pod := world.waiting.get(coming.uid)) is not None:
            yield _outstanding(world, reservation, pod)
    for pod in world.nominated(node):
        if pod.uid not in counted and pod.placeholder_of != mine:
            yield pod.requests


def _outstanding(world: World, reservation: ReservationObject, owner: SeenPod) -> Amounts:
    """Amounts that have to be free for an owner and for what it leaves over, beyond what placeholders still hold."""
    status = reservation.status
    rest = left(lifecycle.amounts(status.allocatable), lifecycle.amounts(status.allocated))
    whole = {name: max(rest.get(name, ZERO), owner.requests.get(name, ZERO)) for name in {*rest, *owner.requests}}
    held: dict[str, Quantity] = {}
    for pod in world.placeholders(reservation.metadata.uid):
        if pod.node == status.node_name and not pod.ended:
            add_resources(held, pod.requests)
    return {name: amount for name, amount in left(whole, held).items() if amount.nano > 0 and name != "pods"}
