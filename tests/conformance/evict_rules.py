"""Which differences about evictions are on purpose."""

from __future__ import annotations

from typing import Any

from koordlite.formulas import evict_config
from koordlite.model import eviction
from koordlite.model.slo import Threshold
from tests.conformance.adapters import shapes


def threshold_not_set(given: Any, wanted: Any, found: Any) -> bool:
    """A memory threshold that is not set has its default; what is wrong besides is told all the same."""
    written = given["thresholdStrategy"]
    unset = written is not None and written.get("memoryEvictThresholdPercent") is None
    by_use = given["feature"] in (evict_config.BE_MEMORY, evict_config.USED_MEMORY)
    lower, priority = ((written or {}).get(n) for n in ("memoryEvictLowerPercent", "evictEnabledPriorityThreshold"))
    ours = Threshold(memory_evict_lower_percent=lower, evict_enabled_priority_threshold=priority)
    mistake = evict_config.mistake(given["feature"], ours) or None
    return bool(unset and by_use and found == {"valid": mistake is None, "message": mistake})


def only_by_api(given: Any, wanted: Any, found: Any) -> bool:
    """Containers are never stopped behind the cluster's back."""
    return bool(not given["onlyEvictByAPI"] and found == {"result": given["evictionAPISucceeds"]})


def no_priority(given: Any, wanted: Any, found: Any) -> bool:
    """Pods without a priority have priority 0, so that the order is total."""
    lacking = any(pod.get("spec", {}).get("priority") is None for pod in given["pods"])
    values = {p["metadata"]["name"]: p.get("spec", {}).get("priority") or 0 for p in given["pods"]}
    ranks = [values[name] for name in found]
    return bool(lacking and ranks == sorted(ranks) and sorted(found) == sorted(wanted))


def finished(given: Any, wanted: Any, found: Any) -> bool:
    """Pods that have ended are neither counted nor evicted."""
    ended = {p["metadata"]["name"] for p in given["pods"] if not shapes.pod_of(p).active}
    if isinstance(found, list):
        return bool(ended) and [name for name in wanted if name not in ended] == found
    if isinstance(found, tuple):
        return bool(ended) and found[0] == wanted[0] - ended
    return bool(ended) and not ended & {n for n, amounts in found["podContribution"].items() if amounts}


def without_promise(given: Any, wanted: Any, found: Any) -> bool:
    """Requests of classes behind no batch or mid resource count for nothing; the others are released alike."""
    plain = {"cpu", "memory"}
    kept = {name: amount for name, amount in wanted["release"].items() if name not in plain}
    return bool(plain & wanted["release"].keys()) and found["release"] == kept


def nothing_to_release(given: Any, wanted: Any, found: Any) -> bool:
    """Who releases nothing stays. `found` and `wanted` are of a round."""
    used = given.get("podMemoryUsedBytes") or {}
    pods = {p["metadata"]["name"]: shapes.pod_of(p) for p in given["pods"]}
    spared = wanted[0] - found[0]
    idle = all(not used.get(n) and not sum(eviction.request(pods[n], "memory").values()) for n in spared)
    return bool(spared and idle and found[0] <= wanted[0])


def counted_in_bytes(given: Any, wanted: Any, found: Any) -> bool:
    """A victim of MemoryEvict counts with its bytes, not a thousand times as much: more of them are needed."""
    rounds = evict_config.USED_MEMORY in given["enabledFeatureGates"]
    return bool(rounds and wanted[0] < found[0])
