"""Rules that explain differences about CPU suppression: each asserts what ours says instead."""

from __future__ import annotations

import collections
import json
from typing import Any

from koordlite.model.cpuset import CPUSet, union


def least_change(given: Any, wanted: Any, found: Any) -> bool:
    """As many CPUs of each kind and in each kind of place as Koordinator's answer has, and more of the old ones."""
    old = CPUSet.parse(given["beRootCPUSetFileBefore"])
    lsr = _pinned(given, "LSR")
    alike = (len(found & lsr), len(found - lsr)) == (len(wanted & lsr), len(wanted - lsr))
    spread = _spread(given, found - lsr) == _spread(given, wanted - lsr)
    return alike and spread and found <= _allowed(given) and len(found & old) > len(wanted & old)


def small_pool(given: Any, wanted: Any, found: Any) -> bool:
    """Koordinator leaves the old set; ours is everything allowed when that is less than was wanted."""
    count = max(-(-given["suppressMilliCPU"] // 1000), 2)
    allowed = _allowed(given)
    return bool(wanted == CPUSet.parse(given["beRootCPUSetFileBefore"]) and found == allowed and len(allowed) < count)


def small_share(given: Any, wanted: Any, found: Any) -> bool:
    """Koordinator leaves the old set, which holds a CPU that is not allowed; ours has the size and none of those."""
    old, count = CPUSet.parse(given["beRootCPUSetFileBefore"]), max(-(-given["suppressMilliCPU"] // 1000), 2)
    return bool(wanted == old and not old <= _allowed(given) and found <= _allowed(given) and len(found) <= count)


def labelled_outside(given: Any, wanted: Any, found: Any) -> bool:
    """Pods labelled BE that kubelet put elsewhere: their use is taken off the budget."""
    used = given["podCPUUsageCoresByUID"]
    outside = [pod["metadata"]["uid"] for pod in given["pods"] if _is_outside(pod)]
    less = sum(int(used.get(uid, 0) * 1000) for uid in outside)
    return bool(less and found == {"suppressMilliCPU": wanted["suppressMilliCPU"] - less})


def limit_kept(given: Any, wanted: Any, found: Any) -> bool:
    """With the gate BECPUManager ours limits all the same, and containers keep to what was promised."""
    if not given["featureGates"]["BECPUManager"] or wanted["beRootQuotaAfter"] != -1:
        return False
    if given["thresholdStrategy"]["cpuSuppressPolicy"] != "cfsQuota":
        return bool(found["beRootCPUSetAfter"] <= wanted["beRootCPUSetAfter"])
    place = _promised_nodes(given) or wanted["beRootCPUSetAfter"]
    bound = all(cpus == place for cpus in found.get("containerCPUSetAfter", {}).values())
    return bound and found["beRootQuotaAfter"] == max(_budget_milli(given) * 100, 2000)


def _budget_milli(given: Any) -> int:
    """capacity × threshold − pods that are not BE − what is neither: the round's budget, without host applications."""
    used = given["podCPUUsageCores"]
    others = sum(use for name, use in used.items() if name not in _named(given, "BE"))
    system = max(given["nodeCPUUsageCores"] - sum(used.values()), 0)
    capacity = int(given["node"]["status"]["capacity"]["cpu"])
    percent = given["thresholdStrategy"]["cpuSuppressThresholdPercent"]
    return int(capacity * 10 * percent - (others + system) * 1000)


def _named(given: Any, qos: str) -> set[str]:
    labelled = (p["metadata"] for p in given["pods"])
    return {m["uid"] for m in labelled if (m.get("labels") or {}).get("koordinator.sh/qosClass") == qos}


def _promised_nodes(given: Any) -> CPUSet:
    """The CPUs of the NUMA nodes on which any pod was promised CPU; a node alone promises none."""
    notes = (pod["metadata"].get("annotations") or {} for pod in given["pods"])
    promises = (json.loads(note.get("scheduling.koordinator.sh/resource-status", "{}")) for note in notes)
    entries = [entry for promise in promises for entry in promise.get("numaNodeResources", [])]
    nodes = {entry["node"] for entry in entries if "cpu" in (entry.get("resources") or {})}
    return CPUSet(row["cpu"] for row in given["processors"] if row["node"] in nodes)


def _is_outside(pod: Any) -> bool:
    label = (pod["metadata"].get("labels") or {}).get("koordinator.sh/qosClass")
    return label == "BE" and (pod.get("status") or {}).get("qosClass") in ("Burstable", "Guaranteed")


def _promise(pod: Any) -> CPUSet:
    """CPUs by list; promises by NUMA node are left to the adapter's picture."""
    notes = pod["metadata"].get("annotations") or {}
    return CPUSet.parse(json.loads(notes.get("scheduling.koordinator.sh/resource-status", "{}")).get("cpuset", ""))


def _pinned(given: Any, qos: str) -> CPUSet:
    labelled = (p for p in given["pods"] if (p["metadata"].get("labels") or {}).get("koordinator.sh/qosClass") == qos)
    return union(map(_promise, labelled))


def _allowed(given: Any) -> CPUSet:
    notes = given["nodeResourceTopologyAnnotations"] or {}
    reserved = json.loads(notes.get("node.koordinator.sh/reservation", "{}")).get("reservedCPUs", "")
    system = json.loads(notes.get("node.koordinator.sh/system-qos-resource", "{}"))
    kept = system.get("cpuset", "") if system.get("cpusetExclusive", True) else ""
    every = CPUSet(row["cpu"] for row in given["processors"])
    return every - _pinned(given, "LSE") - CPUSet.parse(reserved) - CPUSet.parse(kept)


def _spread(given: Any, cpus: CPUSet) -> collections.Counter[int]:
    """How many places have how many of these CPUs."""
    places = collections.Counter((row["socket"], row["node"]) for row in given["processors"] if row["cpu"] in cpus)
    return collections.Counter(places.values())
