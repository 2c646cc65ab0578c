"""Rules by which the ordinary plugins of the descheduler differ: which cases each explains."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from descheduler.evictor_args import Args
from koordlite.model import strict
from tests.conformance.descheduler_view import picture
from tests.support.handles import handle

AFFINITY_TYPES = {"requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"}


def unknown_affinity_type(given: Any, wanted: Any, found: Any) -> bool:
    return found == "refused" and bool(set(given["args"]["nodeAffinityType"]) - AFFINITY_TYPES)


def better_node_is_full(given: Any, wanted: Any, found: Any) -> bool:
    preferred = any("preferred" in kind for kind in given["args"]["nodeAffinityType"])
    return preferred and found["evicted_count"] < wanted["evicted_count"]


def told_apart_by_uid(given: Any, wanted: Any, found: Any) -> bool:
    names = [pod["metadata"]["name"] for pod in given["pods"]]
    return len(set(names)) < len(names) and found["evicted_count"] > wanted["evicted_count"]


def namespace_selector(given: Any, wanted: Any, found: Any) -> bool:
    return "namespaceSelector" in json.dumps(given["pods"]) and found["evicted_count"] > wanted["evicted_count"]


def cordoned_targets(given: Any, wanted: Any, found: Any) -> bool:
    return any((node.get("spec") or {}).get("unschedulable") for node in given["nodes"])


def stuck_pods_stay(given: Any, wanted: Any, found: Any) -> bool:
    """Pods that fit nowhere or are guarded are not counted as moved, so that others go in their place."""
    stuck = given["args"].get("topologyBalanceNodeFit") is not False or bool(list(_guarded(given)))
    return stuck and found["evicted_count"] > wanted["evicted_count"]


def guarded_pods_count(given: Any, wanted: Any, found: Any) -> bool:
    return bool(list(_guarded(given))) and not _evicts(found, _guarded(given))


def least_important_first(given: Any, wanted: Any, found: Any) -> bool:
    priorities = {pod["spec"].get("priority") for pod in given["pods"]}
    return len(priorities) > 1 and found["evicted_count"] == wanted["evicted_count"]


def moved_once(given: Any, wanted: Any, found: Any) -> bool:
    written = {json.dumps(one, sort_keys=True) for pod in given["pods"] for one in _constraints(pod)}
    return len(written) > 1 and found["evicted_count"] < wanted["evicted_count"]


def excluded_nodes(given: Any, wanted: Any, found: Any) -> bool:
    """Pods on nodes that a constraint leaves out are not counted: some pods with constraints have to choose nodes."""
    choosy = [p for p in given["pods"] if p["spec"].get("nodeSelector") or p["spec"].get("affinity")]
    tainted = [node for node in given["nodes"] if (node.get("spec") or {}).get("taints")]
    return bool(choosy or tainted) and found["evicted_count"] != wanted["evicted_count"]


def spread_is_asked(given: Any, wanted: Any, found: Any) -> bool:
    """`nodeFit` of the evictor sees that the pod would lie no better anywhere."""
    asked = (given.get("defaultEvictorArgs") or {}).get("nodeFit", False)
    return asked and any(map(_constraints, given["pods"])) and found["evicted_count"] < wanted["evicted_count"]


def _constraints(pod: Any) -> Any:
    return pod["spec"].get("topologySpreadConstraints") or []


def _guarded(given: Any) -> Iterator[str]:
    args = strict.load(json.dumps(given.get("defaultEvictorArgs") or {}), Args, "defaultEvictorArgs")
    view = picture(given)
    asked = handle(view, args)
    return (pod.key for pod in view.pods() if not asked.evictable(pod))


def _evicts(found: Any, keys: Iterator[str]) -> bool:
    return bool(set(found.get("evicted", ())) & set(keys))
