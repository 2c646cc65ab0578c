"""Who set which field: metadata.managedFields, and server-side apply (KEP 555, structured-merge-diff).

A field is a path of steps as managedFields writes them: `f:name`, `k:{"name":"main"}`, `v:"x"`, and `.` for a map or
list element itself.
"""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from apiserver import kinds, patches, strategic

Path = tuple[str, ...]
Fields = dict[Path, Any]
"""Each leaf with its value."""

_MAPS = frozenset(
    [
        "labels",
        "annotations",
        "data",
        "binaryData",
        "capacity",
        "allocatable",
        "limits",
        "requests",
        "matchLabels",
        "nodeSelector",
        "disruptedPods",
        "stringData",
    ]
)
_SYSTEM = frozenset(
    [
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "managedFields",
        "generateName",
        "selfLink",
    ]
)


@dataclasses.dataclass(frozen=True, slots=True)
class Manager:
    """Who writes, and how."""

    name: str
    operation: str
    """Apply or Update."""
    api_version: str
    subresource: str = ""

    @property
    def shown(self) -> str:
        """As a conflict names it."""
        using = f" using {self.api_version}" if self.operation == "Update" else ""
        return f'conflict with "{self.name}"{using}'


class Conflicts(Exception):
    """An apply that would change fields of others."""

    def __init__(self, found: list[tuple[Manager, Path]]) -> None:
        super().__init__(f"{len(found)} conflicts")
        self.found = found


def updated(old: Any, new: dict[str, Any], manager: Manager, now: str, *, custom: bool) -> dict[str, Any]:
    """`new` with managedFields after an ordinary write: the writer owns what it changed, others lose it."""
    before, after = fields(old or {}, custom=custom), fields(new, custom=custom)
    changed = {path for path, value in after.items() if path not in before or before[path] != value}
    owners = _owners(old or {})
    was, since = owners.get(manager, (frozenset(), now))
    mine = (was | changed) & after.keys()
    kept = {each: ((paths - changed) & after.keys(), time) for each, (paths, time) in owners.items()}
    return _with_owners(new, kept | {manager: (mine, now if changed else since)})


def applied(
    live: dict[str, Any], config: dict[str, Any], manager: Manager, now: str, *, force: bool, custom: bool
) -> dict[str, Any]:
    """`live` after a server-side apply of `config`; Conflicts unless `force`."""
    wanted, present = fields(config, custom=custom, leaves_only=True), fields(live, custom=custom)
    owners = _owners(live)
    mine, since = owners.get(manager, (frozenset(), now))
    others_own = {each: found for each, found in owners.items() if each != manager}
    disputed = {path for path, value in wanted.items() if path in present and present[path] != value}
    conflicts = [(each, path) for each, (paths, _) in others_own.items() for path in sorted(paths & disputed)]
    if conflicts and not force:
        raise Conflicts(conflicts)
    result = (patches.merged if custom else strategic.merged)(copy.deepcopy(live), config)
    others = frozenset[Path]().union(*(paths for paths, _ in others_own.values()))
    # Deepest first; of one list item, the item before its key, by which it is found.
    for path in sorted(mine - wanted.keys() - others, key=lambda path: (-len(path), path[-1] != ".", path)):
        _remove(result, path)
    kept = {each: (paths - disputed, time) for each, (paths, time) in owners.items()}
    same = frozenset(wanted) == mine and not disputed
    return _with_owners(result, kept | {manager: (frozenset(wanted), since if same else now)})


def fields(item: Mapping[str, Any], *, custom: bool, leaves_only: bool = False) -> Fields:
    """Every field a client may own."""
    found: Fields = {}
    for key, value in item.items():
        if key in ("apiVersion", "kind"):
            continue
        if key == "metadata":
            value = {name: each for name, each in value.items() if name not in _SYSTEM}  # noqa: PLW2901
            if not value:
                continue
        found.update(_walk((f"f:{key}",), key, value, custom, leaves_only))
    return found


def _walk(path: Path, name: str, value: Any, custom: bool, leaves_only: bool) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, dict) and value:
        if name in _MAPS and not leaves_only:
            yield (*path, "."), ""
        for key, each in value.items():
            yield from _walk((*path, f"f:{key}"), key, each, custom, leaves_only)
    elif _is_keyed(value, name) and not custom:
        yield from _walk_list(path, kinds.MERGE_KEYS[name], value, leaves_only)
    elif isinstance(value, list) and not custom and name in kinds.MERGED_SETS:
        yield from (((*path, f"v:{json.dumps(each)}"), each) for each in value)
    else:
        yield path, value


def _is_keyed(value: Any, name: str) -> bool:
    """Whether a list's elements are told apart by a key."""
    return (
        name in kinds.MERGE_KEYS and isinstance(value, list) and bool(value) and all(isinstance(e, dict) for e in value)
    )


def _walk_list(path: Path, key: str, value: list[Any], leaves_only: bool) -> Iterator[tuple[Path, Any]]:
    for each in value:
        step = "k:" + json.dumps({key: each.get(key)}, separators=(",", ":"))
        yield (*path, step, "."), ""
        for field, inner in each.items():
            yield from _walk((*path, step, f"f:{field}"), field, inner, False, leaves_only)


def shown(path: Path) -> str:
    """The path as a message names it: `.data.k`."""
    text = ""
    for step in path:
        sign, _, rest = step.partition(":")
        if sign == "f":
            text += f".{rest}"
        elif sign == "k":
            text += "[" + ",".join(f'{key}="{value}"' for key, value in json.loads(rest).items()) + "]"
        elif sign == "v":
            text += f"[={rest}]"
    return text


def _owners(item: Mapping[str, Any]) -> dict[Manager, tuple[frozenset[Path], str]]:
    found = {}
    for entry in item.get("metadata", {}).get("managedFields") or ():
        manager = Manager(
            entry.get("manager", ""),
            entry.get("operation", ""),
            entry.get("apiVersion", ""),
            entry.get("subresource", ""),
        )
        found[manager] = (frozenset(_read(entry.get("fieldsV1") or {}, ())), entry.get("time", ""))
    return found


def _read(tree: Mapping[str, Any], path: Path) -> Iterator[Path]:
    for step, below in tree.items():
        if below:
            yield from _read(below, (*path, step))
        else:
            yield (*path, step)


def _tree(paths: Iterable[Path]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for path in sorted(paths):
        below = tree
        for step in path:
            below = below.setdefault(step, {})
    return tree


def _with_owners(item: dict[str, Any], owners: Mapping[Manager, tuple[frozenset[Path], str]]) -> dict[str, Any]:
    entries = []
    for manager, (paths, time) in owners.items():
        if not paths:
            continue
        entry = {"manager": manager.name, "operation": manager.operation, "apiVersion": manager.api_version}
        entry |= {"time": time, "fieldsType": "FieldsV1", "fieldsV1": _tree(paths)}  # type: ignore[dict-item]
        entries.append(entry | ({"subresource": manager.subresource} if manager.subresource else {}))
    metadata = {key: value for key, value in item["metadata"].items() if key != "managedFields"}
    return item | {"metadata": metadata | ({"managedFields": entries} if entries else {})}


def _remove(item: Any, path: Path) -> None:
    """Take one field out; what is gone already is no matter."""
    *above, last = [step for step in path if step != "."] or [""]
    for step in above:
        item = _below(item, step)
        if item is None:
            return
    if isinstance(item, dict):
        item.pop(last.removeprefix("f:"), None)
    elif isinstance(item, list):
        gone = _below(item, last)
        item[:] = [each for each in item if each is not gone]


def _below(item: Any, step: str) -> Any:
    if step.startswith("f:"):
        return item.get(step[2:]) if isinstance(item, dict) else None
    wanted = json.loads(step[2:])
    if not isinstance(item, list):
        return None
    if step.startswith("v:"):
        return next((each for each in item if each == wanted), None)
    return next((each for each in item if all(each.get(key) == value for key, value in wanted.items())), None)
