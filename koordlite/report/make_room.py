"""Room for a waiting pod in words and as a document: one for all programs that look for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, TypeVar

from koordlite.formulas.make_room import Rooms
from koordlite.report import units


class _Item(Protocol):
    @property
    def key(self) -> str: ...

    @property
    def node(self) -> str: ...


Item = TypeVar("Item", bound=_Item)


def document(rooms: Rooms[Item], about: Callable[[Item], str]) -> dict[str, Any]:
    """The answer as plain values. `about` says what else there is to know of a pod that moves."""
    return {
        "exact": rooms.exact,
        "whyNot": dict(rooms.why_not),
        "nodes": [
            {
                "node": room.node,
                "moves": [
                    {"pod": pod.key, "node": pod.node, "to": home, "about": about(pod)} for pod, home in room.moves
                ],
                "cost": room.cost._asdict(),
            }
            for room in rooms.rooms
        ],
    }


def lines(rooms: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Head and text of each line of a `document`."""
    for number, room in enumerate(rooms["nodes"]):
        moves = units.count(len(room["moves"]), "move")
        names = {"priority": "highest priority", "eviction_cost": "eviction cost"}
        cost = ", ".join(f"{name} {room['cost'][field]}" for field, name in names.items() if field in room["cost"])
        yield "or on" if number else "room on", f"{room['node']}, after {moves}; {cost}"
        for move in room["moves"]:
            yield "    move", f"{move['pod']} from {move['node']} to {move['to']} ({move['about']})"
    for why, count in sorted(rooms["whyNot"].items(), key=lambda item: (-item[1], item[0])):
        yield "no room", f"{units.count(count, 'node')}: {why}"
    sure = "fewer moves do not suffice" if rooms["nodes"] else "no other moves would do, as many as were tried"
    yield "sure", sure if rooms["exact"] else "not everything was tried: there may be fewer or cheaper moves"
