"""A recorded session with resctrl as cases: one for each operation, in order, and one for each picture of the tree."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from koordlite.lab.resctrl.filesystem import POINT
from tests.conformance.transcript import Player

Case = tuple[str, str, Any, Any]

OPERATION = "resctrl operation"
SNAPSHOT = "resctrl snapshot"


def of_recording(recording: Any) -> Iterator[Case]:
    """(function, source, input, expect); the input of each is only good when its turn has come."""
    player = Player(recording)
    names = (recording.get("variant"), recording["flavour"], recording["kernel"])
    title = " ".join(str(name) for name in names if name)
    pictures = dict(recording.get("snapshots") or {})
    operations = recording["ops"]
    if operations[0]["op"] == "umount" and operations[0]["result"] == "ok":
        # A section by itself: it begins with unmounting what the one before has left.
        player.there.mount()
    for number, op in enumerate(operations):
        for name in [name for name in pictures if _is_due(name, operations, number)]:
            if name == "end":
                _remove_untold(player, pictures[name])
            yield SNAPSHOT, f"{title} {name}", {"player": player}, pictures.pop(name)
        source = f"{title} #{op['n']} {op['section']}: {op['op']} {op['path'][:60]}"
        yield OPERATION, source, {"player": player, "op": op}, op


def _is_due(name: str, operations: Any, number: int) -> bool:
    """Whether the picture was taken before this operation: its name says when."""
    op, before = operations[number], operations[number - 1]
    if name == "after mount":
        return bool(op["op"] == "mkdir" and op["result"] == "ok")
    if name.startswith("after mkdir"):
        return bool(before["op"] == "mkdir" and name.endswith(before["path"]) and before["result"] == "ok")
    if name.startswith("mounted with cdp"):
        return bool(before["section"] == "cdp" and op["section"] != "cdp")
    return bool(name == "end" and op["op"] == "umount")


def _remove_untold(player: Player, picture: Any) -> None:
    """The groups made to use up the CLOSIDs were removed before the picture, which no operation tells."""
    shown = {entry["path"] for entry in picture}
    for name in [name for name in player.there.groups if name and name not in shown]:
        player.files.rmdir(f"{POINT}/{name}")
