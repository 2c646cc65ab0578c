"""What a transcript reads back after an operation, and its snapshots of the whole tree."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from resctrl_vfs import MAGIC

from koordlite.lab.machine.tree import Tree
from koordlite.lab.resctrl.filesystem import POINT

if TYPE_CHECKING:
    from tests.conformance.transcript import Player

_LINEAR_FULL = 100


def readback(player: Player, op: Any) -> Any:
    """The field `readback` of an operation."""
    if "*" in op["path"]:
        return {prefix: player.content(op["path"].replace("*/", prefix)) for prefix in op["readback"]}
    view = _VIEWS.get(op["op"])
    return view(player, op) if view else player.content(op["path"])


def snapshot(player: Player) -> dict[str, dict[str, Any]]:
    """Every file and folder with its mode, links and content, by path."""
    found: dict[str, dict[str, Any]] = {}
    for path in ["", *_walk(player.files, "")]:
        seen = player.vfs.attributes(f"{POINT}{path}")
        kind = "dir" if seen.folder else "file"
        entry: dict[str, Any] = {"type": kind, "mode": oct(seen.mode), "nlink": seen.links, "size": 0}
        if not seen.folder:
            text = player.files.read(f"{POINT}{path}").decode()
            entry["content"] = "<tids>" if text and path.endswith("tasks") else text
        found[path.lstrip("/") or "."] = entry
    return found


def _mounts(player: Player, op: Any) -> list[str]:
    mounted = player.resctrl is not None and player.resctrl.mounted
    return [f"resctrl {POINT} resctrl {player.there.mount_options} 0 0"] if mounted else []


def _made(player: Player, op: Any) -> dict[str, Any]:
    path = player.path(op)
    found: dict[str, Any] = {"mode": oct(player.vfs.attributes(path).mode), "list": _names(player, op)}
    if "schemata" in op["readback"]:
        found["schemata"] = player.files.read(f"{path}/schemata").decode()
    return found


def _names(player: Player, op: Any) -> list[str]:
    return sorted(name.rstrip("/") for name in player.files.list(player.path(op)))


def _information(player: Player, op: Any) -> dict[str, str]:
    """All of info, or the part of it that was noted."""
    everything = "info/last_cmd_status" in op["readback"]
    paths = (path.removeprefix(f"{POINT}/") for path in player.files.paths(f"{POINT}/info"))
    return {path: player.bytes(path).decode() for path in paths if everything or path in op["readback"]}


def _statistics(player: Player, op: Any) -> str:
    return f"type={MAGIC:x} name=rdt namelen=255\n"


def _registers(player: Player, op: Any) -> list[str]:
    return list(_register_lines(player))


def _register_lines(player: Player) -> Iterator[str]:
    """What the hardware was told, by cache and CLOSID; how often is not counted."""
    schemas, hardware = player.there.schemas, player.hardware
    for cache_id in next(iter(schemas.values())).domains:
        if "L3" in schemas:
            yield f"L3 {cache_id} cbm {' '.join(f'{mask:x}' for mask in schemas['L3'].domains[cache_id])}"
        if "MB" in schemas:
            values = schemas["MB"].domains[cache_id]
            yield f"L3 {cache_id} mba {' '.join(str(v if hardware.amd else _LINEAR_FULL - v) for v in values)}"
        if hardware.smba:
            slow = schemas["SMBA"].domains[cache_id] if "SMBA" in schemas else [0] * hardware.smba.closids
            yield f"L3 {cache_id} smba {' '.join(map(str, slow))}"


_VIEWS: dict[str, Callable[[Player, Any], Any]] = {
    "mount": _mounts,
    "umount": _mounts,
    "mkdir": _made,
    "list": _names,
    "info": _information,
    "statfs": _statistics,
    "registers": _registers,
}


def _walk(files: Tree, top: str) -> Iterator[str]:
    for name in files.list(f"{POINT}{top}"):
        path = f"{top}/{name.rstrip('/')}"
        yield path
        if name.endswith("/"):
            yield from _walk(files, path)
