"""Strategic merge patch: maps merge, some lists merge by key, directives delete and replace.

Rules: Kubernetes documentation "Strategic merge patch" and apimachinery's strategicpatch (merge keys: `kinds`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from apiserver import kinds

_DIRECTIVE = "$patch"
_DELETE_FROM = "$deleteFromPrimitiveList/"
_ORDER = "$setElementOrder/"
_RETAIN = "$retainKeys"


class NoMergeKey(Exception):
    """An element of a merged list that does not carry the key it is merged by."""


def merged(target: Any, patch: Any) -> Any:
    """`target` with the patch applied; NoMergeKey for a list element that cannot be matched."""
    if not isinstance(patch, dict):
        return patch
    directive = patch.get(_DIRECTIVE)
    rest = {key: value for key, value in patch.items() if key != _DIRECTIVE}
    if directive == "replace":
        return rest
    if directive == "delete":
        return {}
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in rest.items():
        _merge_field(result, key, value, order=rest.get(_ORDER + key))
    _retain(result, rest.get(_RETAIN))
    return result


def _merge_field(result: dict[str, Any], key: str, value: Any, *, order: Any) -> None:
    if key.startswith(_DELETE_FROM):
        field = key.removeprefix(_DELETE_FROM)
        result[field] = [each for each in result.get(field) or [] if each not in value]
    elif key.startswith("$"):
        _reorder_only(result, key, value)
    elif value is None:
        result.pop(key, None)
    elif isinstance(value, list):
        result[key] = _merged_list(key, result.get(key) or [], value)
        _reorder(result, key, order)
    else:
        result[key] = merged(result.get(key), value)


def _retain(result: dict[str, Any], names: Any) -> None:
    for key in [key for key in result if isinstance(names, list) and key not in names]:
        del result[key]


def _reorder_only(result: dict[str, Any], key: str, order: Any) -> None:
    """An order for a list of which the patch changes no element."""
    if key.startswith(_ORDER):
        _reorder(result, key.removeprefix(_ORDER), order)


def _reorder(result: dict[str, Any], field: str, order: Any) -> None:
    """Elements the client named in its order; the others keep their place at the end."""
    listed = result.get(field)
    if not isinstance(order, list) or not isinstance(listed, list):
        return
    identity = _identity(field)
    wanted = [identity(each) for each in order]
    ranks = {repr(each): rank for rank, each in enumerate(wanted)}
    result[field] = sorted(listed, key=lambda each: ranks.get(repr(identity(each)), len(ranks)))


def _merged_list(field: str, old: list[Any], patch: list[Any]) -> list[Any]:
    if field in kinds.MERGED_SETS:
        once = list({_scalar(each): each for each in patch}.values())
        return _in_order([each for each in old if each not in patch], once, old, _scalar)
    elements = [each for each in patch if isinstance(each, dict)]
    if field not in kinds.MERGE_KEYS or len(elements) != len(patch):
        return patch
    if any(each == {_DIRECTIVE: "replace"} for each in elements):
        return [each for each in elements if _DIRECTIVE not in each]
    return _merged_elements(field, old, elements)


def _merged_elements(field: str, old: list[Any], patch: list[Any]) -> list[Any]:
    identity = _identity(field)
    gone = {identity(each) for each in patch if each.get(_DIRECTIVE) == "delete"}
    known = {identity(each): each for each in old}
    changed = [merged(known.get(identity(each)), each) for each in patch if identity(each) not in gone]
    touched = {identity(each) for each in changed} | gone
    kept = [each for each in old if identity(each) not in touched]
    return _in_order(kept, changed, old, identity)


def _identity(field: str) -> Callable[[Any], Any]:
    key = kinds.MERGE_KEYS.get(field)

    def of(element: Any) -> Any:
        if key is None or not isinstance(element, dict):
            return _scalar(element)
        for name in (key, "port") if key == "containerPort" else (key,):
            if name in element:
                return _scalar(element[name])
        shown = " ".join(f"{name}:{value}" for name, value in sorted(element.items()))
        raise NoMergeKey(f"map: map[{shown}] does not contain declared merge key: {key}")

    return of


def _scalar(value: Any) -> Any:
    """`value` as something that can be looked up: what is no scalar, and so no legal key, by how it reads."""
    return repr(value) if isinstance(value, dict | list) else value


def _in_order(kept: list[Any], changed: list[Any], old: list[Any], identity: Callable[[Any], Any]) -> list[Any]:
    """The patch's elements in its order; an untouched one goes before those it stood before."""
    places = {identity(each): place for place, each in enumerate(old)}
    result, left = [], list(kept)
    for each in changed:
        place = places.get(identity(each))
        while left and place is not None and places[identity(left[0])] < place:
            result.append(left.pop(0))
        result.append(each)
    return result + left
