"""A strategic merge patch of a pod: objects are merged, null removes, lists of named things are merged by name.

Source: `patchMergeKey` of the pod's fields in the Kubernetes API. Lists without such a key are replaced.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

_MERGE_KEYS: Mapping[str, str] = {
    **dict.fromkeys(("containers", "initContainers", "ephemeralContainers", "env", "volumes"), "name"),
    **dict.fromkeys(("imagePullSecrets", "resourceClaims", "schedulingGates"), "name"),
    "hostAliases": "ip",
    "ownerReferences": "uid",
    "ports": "containerPort",
    "topologySpreadConstraints": "topologyKey",
    "volumeDevices": "devicePath",
    "volumeMounts": "mountPath",
}


def merged(target: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """`target` after `patch`, both untouched; ValueError where the patch has a directive (`$patch`, …) or a list item
    lacks the key that it is found by."""
    found = dict(target)
    for key, value in patch.items():
        if key.startswith("$"):
            raise ValueError(f"the directive {key} is not supported; write the fields themselves, null to remove one")
        if value is None:
            found.pop(key, None)
        elif isinstance(value, Mapping):
            held = found.get(key)
            made = merged(held if isinstance(held, Mapping) else {}, value)
            # What only removes from an object that is not there makes none.
            if made or not value or key in found:
                found[key] = made
        elif isinstance(value, list) and key in _MERGE_KEYS:
            found[key] = _merged_list(found.get(key) or [], value, key)
        else:
            found[key] = copy.deepcopy(value)
    return found


def _merged_list(target: list[Any], patch: list[Any], field: str) -> list[Any]:
    name = _MERGE_KEYS[field]
    found = list(target)
    for item in patch:
        if not isinstance(item, Mapping) or name not in item:
            raise ValueError(f"an item of {field} has to say its {name}")
        at = next((n for n, held in enumerate(found) if isinstance(held, Mapping) and held.get(name) == item[name]), -1)
        if at < 0:
            found.append(merged({}, item))
        else:
            found[at] = merged(found[at], item)
    return found
