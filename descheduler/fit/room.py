"""Room for a pod that waits: the board of `koordlite.formulas.make_room` over the nodes as a plan has left them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec

from descheduler.fit.search import FitSearch, Place
from descheduler.framework import PodView, View
from descheduler.picture.pods import least_important_first
from koordlite.formulas import make_room
from koordlite.formulas.make_room import Cost, Rooms
from koordlite.model import keys

Objection = Callable[[Sequence[PodView]], str]
"""Reason why pods may not all go; empty when they may."""
_NO_PRIORITY = 0
"""Priority of pods without one, as the scheduler has it."""


def find(
    view: View,
    fit: FitSearch,
    waiting: PodView,
    *,
    inside: str,
    objection: Objection,
    most_moves: int,
    evictions: Collection[str] = (),
) -> Rooms[PodView]:
    """Ways to make room for `waiting`. `inside`: where pods may go (`DefaultEvictor.nodeSelector`); `objection`
    says why pods stay; `evictions`: uids of pods that the plan moves already."""
    with fit.attempt():
        board = _Board(view, fit, inside, objection, evictions, priority(waiting))
        return make_room.rooms(board, waiting, most_moves=most_moves)


def priority(pod: PodView) -> int:
    """The pod's priority, as the scheduler has it."""
    return _NO_PRIORITY if pod.pod.priority is None else pod.pod.priority


class _Board(msgspec.Struct):
    """`make_room.Board` of pods."""

    view: View
    fit: FitSearch
    inside: str
    objection: Objection
    evictions: Collection[str]
    most_priority: int
    movable: dict[str, list[PodView]] = {}
    """Pods by node."""
    costs: dict[str, Cost] = {}
    departures: list[PodView] = []
    """Pods that have left their nodes, in turn."""
    marks: dict[int, int] = {}
    """Number of departures by mark of the fit."""

    def nodes(self, item: PodView) -> Sequence[str]:
        """Nodes whose state, labels and taints allow it."""
        return [name for name in self.fit.eligible(item) if name != item.node]

    def refusal(self, item: PodView, node: str) -> str:
        """All rules of the fit."""
        return self.fit.answer(item, node)[0]

    def lacking(self, item: PodView, node: str) -> Mapping[str, int]:
        """Nano-units by resource, and slots for pods."""
        capacity = self.fit.by_node[node]
        free = capacity.unrequested
        missing = {
            name: amount.nano - free.get(name, 0)
            for name, amount in item.pod.requests.items()
            if amount.nano > free.get(name, 0)
        }
        if capacity.free_slots is not None and capacity.free_slots < 1:
            missing["pods"] = 1 - capacity.free_slots
        return missing

    def places(self, item: PodView) -> tuple[Sequence[str], bool]:
        """Places elsewhere; of large clusters a few."""
        search = self.fit.search(item, self.inside)
        return [place.node for place in search.places if not place.here], not search.unasked

    def residents(self, node: str) -> Sequence[PodView]:
        """Pods that no guard keeps, and that are not more important than the one that waits."""
        movable = self.movable.get(node)
        if movable is None:
            pods = (pod for pod in self.fit.by_node[node].residents if priority(pod) <= self.most_priority)
            movable = [pod for pod in pods if pod.uid not in self.evictions and not self.objection((pod,))]
            movable.sort(key=lambda pod: (self.cost(pod), *least_important_first(pod), pod.key))
            self.movable[node] = movable
        uids = {pod.uid for pod in self.departures if pod.node == node}
        return [pod for pod in movable if pod.uid not in uids] if uids else movable

    def amounts(self, item: PodView) -> Mapping[str, int]:
        """Requests, and one slot."""
        return {**{name: amount.nano for name, amount in item.pod.requests.items()}, "pods": 1}

    def kind(self, item: PodView) -> object:
        """Pods of one template; a pod with CPUs or claims of its own is like no other."""
        return item.uid if item.containers or item.object.spec.volumes else (item.template, self.cost(item)[:3])

    def cost(self, item: PodView) -> Cost:
        """Priority, the cost that it asks for, its part of its owner's pods, its age."""
        if item.uid not in self.costs:
            try:
                own_cost = int(item.pod.annotations.get(keys.EVICTION_COST, "0"))
            except ValueError:
                own_cost = 0
            owners = item.object.metadata.owner_references or ()
            replicas = max(1, self.view.replicas.get(owners[0].uid, 1)) if owners else 1
            age = int(self.view.age(item) or 0)
            self.costs[item.uid] = Cost(priority(item), own_cost, 1000 // replicas, age)
        return self.costs[item.uid]

    def leave(self, item: PodView) -> None:
        """Note it in the fit."""
        self.departures.append(item)
        self.fit.leave(item)

    def settle(self, item: PodView, node: str) -> None:
        """Note it in the fit, with what it would take from NUMA nodes."""
        self.fit.move(item, Place(node, bookings=self.fit.answer(item, node)[1]))

    def mark(self) -> int:
        """The state of the fit."""
        mark = self.fit.mark()
        self.marks[mark] = len(self.departures)
        return mark

    def back_to(self, mark: int) -> None:
        """Undo in the fit."""
        self.fit.back_to(mark)
        del self.departures[self.marks[mark] :]
