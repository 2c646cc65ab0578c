"""The fewest and cheapest moves that let a waiting pod fit: a search over any board of nodes and pods.

Room is made on a node by pods that leave it; each needs a place on another node, and where there is none, room is made
there in the same way. A rearrangement counts only when every pod has its place at the end. Fewer moves come first, then
the cost of the pods that move.

Where the step budget, the width and the board's own answers cut nothing off, no rearrangement with fewer moves exists;
`Rooms.exact` says so. Steps are counted, not seconds: the same board gives the same answer.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

Item = TypeVar("Item")
STEPS = 4_000
"""Questions to the board."""
WIDTH = 8
"""Places and nodes that are tried for a pod that has to move."""
_NODES_A_STEP = 20
"""Nodes that are compared by their amounts in the time of one question."""
MOST_ROOMS = 4
"""Nodes on which room is looked for, once the cheapest is known."""


class Cost(NamedTuple):
    """Cost of pods that move; the first field that differs decides."""

    priority: int = -(2**31)
    """The highest of them."""
    eviction_cost: int = 0
    """Sum of what they ask for by annotation."""
    disruption: int = 0
    """Sum of 1000 / replicas of the owner."""
    age_seconds: int = 0
    """Sum: what may be lost by a restart."""

    def plus(self, other: Cost) -> Cost:
        """Cost of both."""
        return Cost(
            max(self.priority, other.priority),
            self.eviction_cost + other.eviction_cost,
            self.disruption + other.disruption,
            self.age_seconds + other.age_seconds,
        )


class Move(NamedTuple, Generic[Item]):
    """A pod, and the node it goes to."""

    item: Item
    node: str


class Room(NamedTuple, Generic[Item]):
    """A node that would take the waiting pod after some moves."""

    node: str
    moves: tuple[Move[Item], ...]
    cost: Cost


class Rooms(NamedTuple, Generic[Item]):
    """The answer for one waiting pod."""

    rooms: tuple[Room[Item], ...]
    """The best first, one for each node; all of them need equally many moves."""
    why_not: Mapping[str, int]
    """Number of nodes by what stands against them, where there is no room at all."""
    exact: bool
    """Nothing was cut off: fewer moves do not suffice, and where there is no room, none can be made by so many."""
    steps: int

    @property
    def best(self) -> Room[Item] | None:
        """The room with the fewest and cheapest moves."""
        return self.rooms[0] if self.rooms else None


class Board(Protocol[Item]):
    """Nodes and the pods on them, as the moves so far have left them."""

    def nodes(self, item: Item) -> Sequence[str]:
        """Nodes that would take it if they were empty, as far as that is known without looking at their pods. Its own
        is none of them."""

    def refusal(self, item: Item, node: str) -> str:
        """Reason why the node does not take it now; empty when it does."""

    def lacking(self, item: Item, node: str) -> Mapping[str, int]:
        """Amounts that the node has too little of now, by resource."""

    def places(self, item: Item) -> tuple[Sequence[str], bool]:
        """Nodes that take it now, the best first, its own none of them; and whether these are all."""

    def residents(self, node: str) -> Sequence[Item]:
        """Pods on the node that have not moved and that nothing keeps there, the cheapest first."""

    def amounts(self, item: Item) -> Mapping[str, int]:
        """Its requests, by resource."""

    def kind(self, item: Item) -> object:
        """Equal for pods of one node that make the same room and fit on the same places."""

    def cost(self, item: Item) -> Cost:
        """Cost of its move."""

    def objection(self, items: Sequence[Item]) -> str:
        """Reason why these pods may not all go; empty when they may. More pods never make an objection go away."""

    def leave(self, item: Item) -> None:
        """It leaves its node."""

    def settle(self, item: Item, node: str) -> None:
        """It comes to this node."""

    def mark(self) -> int:
        """This state, for `back_to`."""

    def back_to(self, mark: int) -> None:
        """Undo everything since then."""


def rooms(board: Board[Item], waiting: Item, *, most_moves: int, steps: int = STEPS, width: int = WIDTH) -> Rooms[Item]:
    """Find where and how room can be made for `waiting` by up to `most_moves` moves."""
    return _Search(board, waiting, steps, width).run(most_moves)


class _Search(Generic[Item]):
    def __init__(self, board: Board[Item], waiting: Item, steps: int, width: int) -> None:
        self._board, self._waiting, self._width = board, waiting, width
        self._most_steps, self._steps, self._exact = steps, 0, True
        self._rooms: dict[str, Room[Item]] = {}
        self._top = ""
        """The node on which room is made."""

    def run(self, most_moves: int) -> Rooms[Item]:
        needs = self._needs(self._waiting)
        for count in range(most_moves + 1):
            for need in needs:
                # Nothing better can come of this node, and some others are known as well; or the steps are used up.
                enough = len(self._rooms) >= MOST_ROOMS and need.least >= min(r.cost for r in self._rooms.values())
                if need.moves > count or self._spent() or enough:
                    continue
                self._top = need.node
                self._free(self._waiting, need.node, (), count, ())
            if self._rooms:
                break
        rooms = sorted(self._rooms.values(), key=lambda room: (room.cost, room.node))
        why = {} if rooms else Counter(self._objections(needs, most_moves))
        return Rooms(tuple(rooms), dict(why), self._exact, self._steps)

    def _spent(self) -> bool:
        if self._steps >= self._most_steps:
            self._exact = False
        return self._steps >= self._most_steps

    def _needs(self, item: Item) -> list[_Need]:
        """Nodes by the fewest moves that can make room there, then by the least that these can cost."""
        nodes = self._board.nodes(item)
        self._steps += len(nodes) // _NODES_A_STEP
        needs = (self._need(item, node) for node in nodes)
        return sorted(need for need in needs if need is not None)

    def _need(self, item: Item, node: str) -> _Need | None:
        """None when the pods that may leave do not hold enough."""
        residents, lacking = self._board.residents(node), self._board.lacking(item, node)
        if not lacking:
            least = self._board.cost(residents[0]) if residents else Cost()
            return _Need(0, least, node)
        amounts = [self._board.amounts(one) for one in residents]
        moves = 0
        for resource, amount in lacking.items():
            descending = sorted((one.get(resource, 0) for one in amounts), reverse=True)
            sums = itertools.takewhile(lambda total: total < amount, itertools.accumulate(descending))  # noqa: B023
            moves = max(moves, 1 + sum(1 for _ in sums))
        if moves > len(residents):
            return None
        if moves > 1:
            return _Need(moves, self._board.cost(residents[0]), node)
        alone = (
            self._board.cost(one)
            for one, own in zip(residents, amounts, strict=True)
            if all(own.get(resource, 0) >= amount for resource, amount in lacking.items())
        )
        return _Need(1, next(alone, self._board.cost(residents[0])), node)

    def _free(
        self,
        item: Item,
        node: str,
        homeless: tuple[Item, ...],
        moves_left: int,
        done: tuple[Move[Item], ...],
        *,
        victims: tuple[Item, ...] = (),
        first: int = 0,
    ) -> None:
        """Let pods leave `node` until it takes `item`, with up to `moves_left` moves; then settle those without a home.
        `victims` have left for it so far; residents before `first` were passed over."""
        self._steps += 1
        if not self._board.refusal(item, node):
            mark = self._board.mark()
            self._board.settle(item, node)
            come = () if item is self._waiting else (Move(item, node),)
            self._settle((*homeless, *victims), moves_left, (*done, *come))
            self._board.back_to(mark)
            return
        if moves_left == 0 or self._spent():
            return
        going = (*(move.item for move in done), *homeless, *victims, *(() if item is self._waiting else (item,)))
        kinds = set()
        for number, one in enumerate(self._board.residents(node)[first:], first):
            kind = self._board.kind(one)
            if kind in kinds:
                continue
            kinds.add(kind)
            if self._board.objection((*going, one)) or self._too_dear((*going, one)):
                continue
            mark = self._board.mark()
            self._board.leave(one)
            self._free(item, node, homeless, moves_left - 1, done, victims=(*victims, one), first=number)
            self._board.back_to(mark)

    def _settle(self, homeless: tuple[Item, ...], moves_left: int, done: tuple[Move[Item], ...]) -> None:
        """Find places for pods that have left their nodes, the largest first."""
        if not homeless:
            cost = self._cost(move.item for move in done)
            best = self._rooms.get(self._top)
            if best is None or (len(done), cost) < (len(best.moves), best.cost):
                self._rooms[self._top] = Room(self._top, done, cost)
            return
        if self._spent():
            return
        self._steps += 1
        item, *remaining = sorted(homeless, key=lambda one: sorted(self._board.amounts(one).values()), reverse=True)
        places, whole = self._board.places(item)
        if remaining:  # Whichever place the last one takes, the moves and their cost are the same.
            self._exact &= whole and len(places) <= self._width
        for node in places[: self._width]:
            mark = self._board.mark()
            self._board.settle(item, node)
            self._settle(tuple(remaining), moves_left, (*done, Move(item, node)))
            self._board.back_to(mark)
            if not remaining:
                return
        if moves_left == 0:
            return
        nodes = set(places)
        needs = [need for need in self._needs(item) if need.moves <= moves_left and need.node not in nodes]
        self._exact &= len(needs) <= self._width
        for need in needs[: self._width]:
            self._free(item, need.node, tuple(remaining), moves_left, done)

    def _too_dear(self, items: Iterable[Item]) -> bool:
        best = self._rooms.get(self._top)
        return best is not None and self._cost(items) >= best.cost

    def _cost(self, items: Iterable[Item]) -> Cost:
        total = Cost()
        for item in items:
            total = total.plus(self._board.cost(item))
        return total

    def _objections(self, needs: Sequence[_Need], most_moves: int) -> Iterator[str]:
        by_node = {need.node: need for need in needs}
        for node in self._board.nodes(self._waiting):
            need = by_node.get(node)
            if need is None:
                yield "the pods that may leave hold too little"
            elif need.moves > most_moves:
                yield f"more than {most_moves} pods would have to leave"
            else:
                yield "the pods that would have to leave fit nowhere else, or may not all go"


class _Need(NamedTuple):
    """A lower bound for making room on a node."""

    moves: int
    least: Cost
    node: str
