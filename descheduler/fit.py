"""Would a pod fit elsewhere? Asked of the nodes as the plan has left them so far; nodes answer one by one.

Order of the questions and their words: upstream NodeFit. Volumes, host ports, topology spread, whole-domain
anti-affinity, the node reservation and NUMA nodes are ours.

The emptiest node is asked first, so that a pod which fits is quickly done with. Pods that ask the same are refused
together: what nodes said once holds until the plan changes them.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping

from descheduler import fit_affinity, fit_numa, fit_spread, selectors
from descheduler import room as rooms_module
from descheduler.crowd import Crowd
from descheduler.fit_affinity import Rivals
from descheduler.fit_shapes import Shape, Shapes
from descheduler.fit_spread import Spread
from descheduler.framework import PodView, View
from descheduler.room import Booking, Port, Room
from koordlite.formulas import numa_fit
from koordlite.model import wire

ASK_ALL = 200
"""Up to so many nodes are all asked, for the sake of the report."""
ENOUGH = 3
"""Of more nodes, no further one is asked once so many have said yes."""
_FEW = 8
"""Nodes are sorted for the pod alone when it may go to less than one in so many."""

Answer = tuple[str, tuple[Booking, ...]]
"""Why not, or else what would be taken from which NUMA node."""


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
    unasked: int = 0
    """Nodes that were not asked, because enough others had said yes."""

    @property
    def sentence(self) -> str:
        """All nodes' answers in one line, most frequent first."""
        ordered = sorted(self.why_not.items(), key=lambda item: (-item[1], item[0]))
        return ", ".join(f"{count} × {why}" for why, count in ordered) or "there is no other node"


@dataclasses.dataclass(frozen=True, slots=True)
class _Question:
    """All that a pod asks of nodes, worked out once."""

    pod: PodView
    shape: Shape
    needs: tuple[tuple[str, int], ...]
    """Nano-units by resource."""
    blocked: fit_affinity.Blocked
    rules: list[fit_spread.Rule]
    ports: tuple[Port, ...]
    numa: numa_fit.Ask | None
    key: object
    """Equal for pods that get the same answers from every node."""
    plain: bool
    """It asks for nothing but resources on nodes of its shape. If not, no other pod gets the same answers."""

    @property
    def resources_only(self) -> _Question:
        """What remains when only resources are asked for: where that fits nowhere, the pod does not either."""
        return dataclasses.replace(self, blocked=[], rules=[], ports=(), numa=None, plain=True)


@dataclasses.dataclass(frozen=True, slots=True)
class _Nowhere:
    """Pods of one kind fit nowhere."""

    since: int
    """As of how many changes."""
    said: Mapping[str, str]
    unasked: frozenset[str]
    """The node that the pod was on: to others of its kind it might say something else."""


class Rooms:
    """Every node's room, kept up to date while a plan is made."""

    def __init__(self, view: View) -> None:
        self.by_node = {name: Room.of(node) for name, node in view.nodes.items()}
        self._view = view
        self._shapes = Shapes(view)
        self._changed: list[str] = []
        self._nowhere: dict[object, _Nowhere] = {}

    def search(self, pod: PodView, inside: str | wire.LabelSelector = "") -> Search:
        """Ask the nodes that `inside` selects, and say what they said. The pod's own node is asked only when a new
        start there could cure a broken promise."""
        question = self._question(pod, inside)
        names = question.shape.names
        places, said = self._ask(question, len(names) if len(names) <= ASK_ALL else ENOUGH)
        own = pod.node if not pod.promised else ""
        by_node = {name: why for name, why in (*question.shape.refusals.items(), *said.items()) if name != own}
        unasked = len(names) - len(places) - len(said) - (own in names and own not in said)
        return Search(tuple(places), Counter(by_node.values()), by_node, unasked)

    def fits(self, pod: PodView, inside: str | wire.LabelSelector = "") -> bool:
        """Does `search` find a place? Much faster, because it stops at the first."""
        return bool(self._ask(self._question(pod, inside), 1)[0])

    def fits_on(self, pod: PodView, names: Collection[str]) -> bool:
        """Would it fit on one of these nodes, its own included?"""
        question = self._question(pod, "")
        few, many = sorted((names, question.shape.names), key=len)
        return any(not self._answer(question, name, moved=False)[0] for name in few if name in many)

    def first_fit(self, pod: PodView, names: Iterable[str]) -> str:
        """The first of these nodes, its own aside, that it would fit on; empty when there is none."""
        question = self._question(pod, "")
        others = (name for name in names if name in question.shape.names and name != pod.node)
        return next((name for name in others if not self._answer(question, name)[0]), "")

    def refusal(self, pod: PodView, node: str) -> str:
        """What one node says, be it the pod's own; empty when the pod fits there.

        Resources are not asked of its own node, as upstream has it: it is there already.
        """
        question = self._question(pod, "")
        return question.shape.refusals.get(node) or self._answer(question, node, moved=False)[0]

    def move(self, pod: PodView, place: Place) -> None:
        """Note that the plan takes `pod` away, and that its successor is expected at `place`."""
        self._leave(pod)
        self._set(place.node, self.by_node[place.node].with_arrival(pod, place.bookings))
        self._crowd.move(pod, place.node)
        self._rivals.came(pod, place.node)

    def leave(self, pod: PodView) -> None:
        """Note that the plan takes `pod` away, to nowhere we know of."""
        self._leave(pod)
        self._crowd.move(pod, "")

    def _leave(self, pod: PodView) -> None:
        if pod.node in self.by_node:
            self._set(pod.node, self.by_node[pod.node].without(pod))
            self._rivals.left(pod, pod.node)

    def _set(self, name: str, room: Room) -> None:
        order = self._order
        del order[bisect.bisect_left(order, (self._fullness(name), name))]
        self.by_node[name] = room
        bisect.insort(order, (self._fullness(name), name))
        self._changed.append(name)

    @functools.cached_property
    def _order(self) -> list[tuple[float, str]]:
        """Nodes with the largest free part of their CPUs first."""
        return sorted((self._fullness(name), name) for name in self.by_node)

    @functools.cached_property
    def _crowd(self) -> Crowd:
        return Crowd(self._view)

    @functools.cached_property
    def _rivals(self) -> Rivals:
        return Rivals(self._view, self._crowd)

    @functools.cached_property
    def _spread(self) -> Spread:
        return Spread(self._view, self._crowd)

    def _fullness(self, name: str) -> float:
        room = self.by_node[name]
        whole = room.allocatable.get("cpu")
        return -room.free("cpu") / whole.nano if whole and whole.nano else 0.0

    def _by_room(self, shape: Shape) -> Iterator[str]:
        """Nodes of a shape, the emptiest first."""
        if len(shape.names) * _FEW < len(self.by_node):
            return iter(sorted(shape.names, key=lambda name: (self._fullness(name), name)))
        return (name for _, name in self._order if name in shape.names)

    def _question(self, pod: PodView, inside: str | wire.LabelSelector) -> _Question:
        selector = _parsed(inside) if isinstance(inside, str) else inside
        shape_key, shape = self._shapes.of(pod, selector)
        needs = tuple((name, amount.nano) for name, amount in pod.pod.requests.items())
        blocked = self._rivals.blocked(pod)
        rules = self._spread.rules(pod, shape_key, shape)
        ports = tuple(rooms_module.host_ports(pod))
        numa = fit_numa.ask(pod) if fit_numa.concerned(pod) else None
        return _Question(
            pod=pod,
            shape=shape,
            needs=needs,
            blocked=blocked,
            rules=rules,
            ports=ports,
            numa=numa,
            key=(shape_key, needs),
            plain=not (blocked or rules or ports or numa),
        )

    def _ask(self, question: _Question, most: int) -> tuple[list[Place], Mapping[str, str]]:
        """Up to `most` places, and what nodes said that are none."""
        pod = question.pod
        if not question.plain and not pod.promised:
            places, said = self._ask(question.resources_only, 1)
            if not places:
                return [], said
        known = self._known_nowhere(question)
        if known is not None:
            return [], known
        places, said = list[Place](), dict[str, str]()
        for name in self._by_room(question.shape):
            if name == pod.node and not pod.promised:
                continue
            why, bookings = self._answer(question, name)
            if why:
                said[name] = why
                continue
            places.append(Place(name, name == pod.node, bookings))
            if len(places) == most:
                break
        if not places and question.plain:
            self._nowhere[question.key] = _Nowhere(len(self._changed), said, frozenset((pod.node,)))
        return places, said

    def _known_nowhere(self, question: _Question) -> Mapping[str, str] | None:
        """What nodes said to a pod like this, when none of them takes it even now; None when that is not known."""
        found = self._nowhere.get(question.key) if question.plain else None
        if found is None:
            return None
        open_ = {name for name in (*self._changed[found.since :], *found.unasked) if name in question.shape.names}
        own = frozenset((question.pod.node,)) & open_
        answers = {name: self._answer(question, name)[0] for name in open_ - own}
        if not all(answers.values()):
            return None
        said = {**found.said, **answers} if answers else found.said
        self._nowhere[question.key] = _Nowhere(len(self._changed), said, own)
        return said

    def _answer(self, question: _Question, name: str, *, moved: bool = True) -> Answer:
        """What a node of the pod's shape says. `moved`: the pod would start there anew, even where it is already."""
        room, pod = self.by_node[name], question.pod
        here = name == pod.node
        if here:
            room = room.without(pod)
        why = (
            _affinity_refusal(question, room)
            or ("" if here and not moved else _resource_refusal(question, room))
            or _port_refusal(question, room)
            or next((why for rule in question.rules if (why := rule.refusal(room.node.node.labels))), "")
        )
        if why or question.numa is None:
            return why, ()
        return fit_numa.answer(pod, room, question.numa)


def _affinity_refusal(question: _Question, room: Room) -> str:
    labels = room.node.node.labels
    conflict = any(labels.get(key) in values for key, values in question.blocked)
    return "pod matches inter-pod anti-affinity rule of other pod on node" if conflict else ""


def _resource_refusal(question: _Question, room: Room) -> str:
    """`insufficient <resource>` for the first of the pod's requests that is more than is free."""
    free = room.unrequested
    for name, nano in question.needs:
        if nano > free.get(name, 0):
            return f"insufficient {name}"
    return "insufficient pods" if room.free_slots is not None and room.free_slots < 1 else ""


def _port_refusal(question: _Question, room: Room) -> str:
    taken = next((p for p in question.ports if rooms_module.clashes(p, room.ports)), None)
    return f"host port {taken[1]}/{taken[0]} is in use" if taken else ""


@functools.lru_cache(maxsize=64)
def _parsed(text: str) -> wire.LabelSelector:
    return selectors.parse(text)
