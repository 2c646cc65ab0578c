"""Rules by which the ordinary plugins of the descheduler differ: which cases each explains."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from descheduler.arguments.evictor import Args
from koordlite.model.reading import strict
from tests.conformance.descheduler_view import picture, written
from tests.support.handles import handle

RUNS = (
    "run HighNodeUtilization",
    "run LowNodeUtilization",
    "run PodLifeTime",
    "run RemoveDuplicates",
    "run RemoveFailedPods",
    "run RemovePodsHavingTooManyRestarts",
    "run RemovePodsViolatingInterPodAntiAffinity",
    "run RemovePodsViolatingNodeAffinity",
    "run RemovePodsViolatingNodeTaints",
    "run RemovePodsViolatingTopologySpreadConstraint",
)
"""Whole runs of the ordinary plugins."""
AFFINITY_TYPES = {"requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"}


def unknown_affinity_type(given: Any, wanted: Any, found: Any) -> bool:
    return found in ("refused", False) and bool(set(_affinity_types(given)) - AFFINITY_TYPES)


def defaults_come_first(given: Any, wanted: Any, found: Any) -> bool:
    """A validator that is asked by itself refuses what a policy would have filled in before."""
    return found is True and not (given["args"] or {}).get("resources")


def better_node_is_full(given: Any, wanted: Any, found: Any) -> bool:
    preferred = any("preferred" in kind for kind in _affinity_types(given))
    return preferred and fewer(found, wanted)


def told_apart_by_uid(given: Any, wanted: Any, found: Any) -> bool:
    names = [pod["metadata"]["name"] for pod in given["pods"]]
    return len(set(names)) < len(names) and fewer(wanted, found)


def namespace_selector(given: Any, wanted: Any, found: Any) -> bool:
    return "namespaceSelector" in json.dumps(given["pods"]) and (fewer(wanted, found) or fewer(found, wanted))


def cordoned_targets(given: Any, wanted: Any, found: Any) -> bool:
    return any((node.get("spec") or {}).get("unschedulable") for node in given["nodes"])


def stuck_pods_stay(given: Any, wanted: Any, found: Any) -> bool:
    """Pods that fit nowhere or are guarded are not counted as moved, so that others go in their place."""
    stuck = (given.get("args") or {}).get("topologyBalanceNodeFit") is not False or bool(list(_guarded(given)))
    return stuck and fewer(wanted, found)


def guarded_pods_count(given: Any, wanted: Any, found: Any) -> bool:
    return bool(list(_guarded(given))) and not _evicts(found, _guarded(given))


def least_important_first(given: Any, wanted: Any, found: Any) -> bool:
    priorities = {pod["spec"].get("priority") for pod in given["pods"]}
    return len(priorities) > 1 and _count(found) == _count(wanted)


def moved_once(given: Any, wanted: Any, found: Any) -> bool:
    kinds = {json.dumps(one, sort_keys=True) for pod in given["pods"] for one in _constraints(pod)}
    return len(kinds) > 1 and fewer(found, wanted)


def excluded_nodes(given: Any, wanted: Any, found: Any) -> bool:
    """Pods on nodes that a constraint leaves out are not counted: some pods with constraints have to choose nodes."""
    choosy = [p for p in given["pods"] if p["spec"].get("nodeSelector") or p["spec"].get("affinity")]
    tainted = [node for node in given["nodes"] if (node.get("spec") or {}).get("taints")]
    return bool(choosy or tainted) and (fewer(found, wanted) or fewer(wanted, found))


def spread_is_asked(given: Any, wanted: Any, found: Any) -> bool:
    """`nodeFit` of the evictor, or the plugin's own, sees that the pod would lie no better anywhere."""
    return _fit_is_asked(given) and any(map(_constraints, given["pods"])) and fewer(found, wanted)


def rivals_are_asked(given: Any, wanted: Any, found: Any) -> bool:
    """`nodeFit` of the evictor, or the plugin's own, sees anti-affinity that upstream does not look at."""
    return _fit_is_asked(given) and "podAntiAffinity" in json.dumps(given["pods"]) and fewer(found, wanted)


def _fit_is_asked(given: Any) -> bool:
    by_evictor = (given.get("defaultEvictorArgs") or {}).get("nodeFit", False)
    return by_evictor or given["plugin"] == "RemovePodsViolatingNodeAffinity"


def fewer(found: Any, wanted: Any) -> bool:
    """Fewer pods are named: fewer go, or no pod is left over that a limit could stop."""
    if "refused" in (found, wanted):
        return False
    stopped, should_be = (set(side.get("eviction_errors", ())) for side in (found, wanted))
    same = _count(found) == _count(wanted)
    return _count(found) < _count(wanted) or (same and stopped < should_be)


def _count(side: Any) -> int:
    """How many go."""
    return int(side.get("evicted_count", len(side.get("evicted", ()))))


def _affinity_types(given: Any) -> Any:
    return (given.get("args") or {}).get("nodeAffinityType") or ()


def _constraints(pod: Any) -> Any:
    return pod["spec"].get("topologySpreadConstraints") or []


def _guarded(given: Any) -> Iterator[str]:
    args = strict.load(json.dumps(written(given.get("defaultEvictorArgs"))), Args, "defaultEvictorArgs")
    view = picture(given)
    asked = handle(view, args)
    return (pod.key for pod in view.pods() if not asked.evictable(pod))


def _evicts(found: Any, keys: Iterator[str]) -> bool:
    return bool(set(found.get("evicted", ())) & set(keys))
