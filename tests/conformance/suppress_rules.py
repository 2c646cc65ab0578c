"""Rules that explain differences about CPU suppression: each asserts what ours says instead."""

from __future__ import annotations

import collections
import json
import math
from typing import Any

from koordlite.model.cpuset import CPUSet, union
from koordlite.model.pod.qos import KubeQoS, QoSClass
from koordlite.model.pod.values import Pod
from tests.conformance.adapters import shapes

_UNLIMITED = -1
_LEAST_US = 2000


def least_change(given: Any, wanted: Any, found: Any) -> bool:
    """As many CPUs of each kind and in each kind of place as Koordinator's answer has, and more of the old ones."""
    old = CPUSet.parse(given["beRootCPUSetFileBefore"])
    lsr = _pinned(given, QoSClass.LSR)
    alike = (len(found & lsr), len(found - lsr)) == (len(wanted & lsr), len(wanted - lsr))
    spread = _spread(given, found - lsr) == _spread(given, wanted - lsr)
    return alike and spread and found <= _allowed(given) and len(found & old) > len(wanted & old)


def small_pool(given: Any, wanted: Any, found: Any) -> bool:
    """Koordinator leaves the old set, or a part of the answer out; ours is everything allowed when that is less than
    was wanted."""
    allowed = _allowed(given)
    return bool(found == allowed and wanted != found and len(allowed) < _count(given))


def small_share(given: Any, wanted: Any, found: Any) -> bool:
    """Koordinator leaves the old set, which holds a CPU that is not allowed; ours has the size and none of those."""
    old = CPUSet.parse(given["beRootCPUSetFileBefore"])
    return bool(
        wanted == old and not old <= _allowed(given) and found <= _allowed(given) and len(found) <= _count(given)
    )


def no_pool(given: Any, wanted: Any, found: Any) -> bool:
    """Every CPU is somebody's: nothing is written."""
    return bool(not _allowed(given) and found == CPUSet.parse(given["beRootCPUSetFileBefore"]))


def two_owners(given: Any, wanted: Any, found: Any) -> bool:
    """A CPU that pods of two classes were promised counts as that of the stricter one, not of the last in the list."""
    read = [(pod.raw_qos, pod.resource_status.cpuset) for pod in _pods(given)]
    disputed = union(a & b for one, a in read for other, b in read if one is not other)
    allowed = _allowed(given)
    count = min(_count(given), len(allowed))
    shared = allowed & _pinned(given, QoSClass.LSR)
    sizes = (count * len(shared) // len(allowed), count) if allowed else (0, 0)
    return bool(disputed and found <= allowed and (len(found & shared), len(found)) == sizes)


def without_topology(given: Any, wanted: Any, found: Any) -> bool:
    """Koordinator leaves the old set where there is no NodeResourceTopology; ours looks at the machine."""
    unchanged = wanted == CPUSet.parse(given["beRootCPUSetFileBefore"])
    return bool(given.get("nodeResourceTopologyAnnotations") is None and unchanged and found <= _allowed(given))


def static_parents(given: Any, wanted: Any, found: Any) -> bool:
    """Under kubelet's static policy on v1 the groups above containers have every CPU: Koordinator takes those of others
    out of them, and a container that starts with kubelet's own set is refused."""
    static = given.get("kubeletCPUManagerPolicy") == "static"
    every = CPUSet(cpu.id for cpu in shapes.cpus(given["processors"] or []))
    return bool(static and found == every and wanted < every and not (every - wanted) & _allowed(given))


def labelled_outside(given: Any, wanted: Any, found: Any) -> bool:
    """Pods labelled BE that kubelet put elsewhere: their use is taken off the budget."""
    used = given["podCPUUsageCoresByUID"]
    less = sum(used.get(pod.uid, 0) for pod in _pods(given) if _is_outside(pod)) * 1000
    floor = _part(given["node"], given.get("cpuSuppressMinPercent"))
    # One sum is cut to millicores where Koordinator has none.
    return bool(less and abs(found["suppressMilliCPU"] - max(wanted["suppressMilliCPU"] - less, floor)) <= 1)


def from_unlimited(given: Any, wanted: Any, found: Any) -> bool:
    """The smallest limits are written too where there was none."""
    limit = max(given["suppressMilliCPU"] * 100, _LEAST_US)
    return bool(given["beRootQuotaBefore"] == wanted == _UNLIMITED and found == limit)


def round_by_set(given: Any, wanted: Any, found: Any) -> bool:
    """A round that differs in the set alone, by one of the rules of the set."""
    name = "beRootCPUSetAfter"
    if {**wanted, name: found[name]} != found or given["thresholdStrategy"]["cpuSuppressPolicy"] == "cfsQuota":
        return False
    before = {
        "suppressMilliCPU": _budget_milli(given),
        "beRootCPUSetFileBefore": given["beRootPodContainerCPUSetBefore"],
    }
    rules = (least_change, small_pool, small_share, two_owners)
    return any(rule({**given, **before}, wanted[name], found[name]) for rule in rules)


def without_pods(given: Any, wanted: Any, found: Any) -> bool:
    """Koordinator gives up a round without pods; ours judges what else uses the node."""
    before = (given["beRootQuotaBefore"], CPUSet.parse(given["beRootPodContainerCPUSetBefore"]))
    unchanged = (wanted["beRootQuotaAfter"], wanted["beRootCPUSetAfter"]) == before
    return bool(not given["pods"] and unchanged and found["beRootCPUSetAfter"] <= _allowed(given))


def settings_gone(given: Any, wanted: Any, found: Any) -> bool:
    """Without settings the defaults hold, which are off: all CPUs and no quota."""
    strategy = given.get("thresholdStrategy") or {}
    whole = (found["beRootQuotaAfter"], found["beRootCPUSetAfter"]) == (_UNLIMITED, _allowed(given))
    return strategy.get("enable") is None and whole


def limit_kept(given: Any, wanted: Any, found: Any) -> bool:
    """With the gate BECPUManager ours limits all the same, and containers keep to what was promised."""
    if not (given.get("featureGates") or {}).get("BECPUManager") or wanted["beRootQuotaAfter"] != _UNLIMITED:
        return False
    strategy, limit = given["thresholdStrategy"], found["beRootCPUSetAfter"]
    by_quota = strategy.get("enable") and strategy.get("cpuSuppressPolicy") == "cfsQuota"
    quota = max(_budget_milli(given) * 100, _LEAST_US) if by_quota else _UNLIMITED
    promises = {c.id: _promise(given, pod) for pod in _pods(given) for c in pod.containers}
    held = found.get("containerCPUSetAfter", {}).items()
    bound = all(cpus == (promises[name] & limit or limit) for name, cpus in held)
    return bool(bound and limit <= wanted["beRootCPUSetAfter"] and _is_step(given, found["beRootQuotaAfter"], quota))


def _is_step(given: Any, found: int, quota: int) -> bool:
    """The quota, or as much of the way up as a round may take."""
    before, node_us = given["beRootQuotaBefore"], _part(given["node"], 100) * 100
    return found in (quota, before + int(node_us * 0.1)) or (abs(quota - before) < node_us * 0.01 and found == before)


def _promise(given: Any, pod: Pod) -> CPUSet:
    """The CPUs by list, else those of the NUMA nodes on which the pod was promised CPU; a node alone promises none."""
    status = pod.resource_status
    nodes = status.numa_nodes if status.numa_cpu else ()
    return status.cpuset or CPUSet(row["cpu"] for row in given["processors"] if row["node"] in nodes)


def _budget_milli(given: Any) -> int:
    """capacity × threshold − pods that are not BE − what is neither: the round's budget, without host applications."""
    used, strategy, node = given["podCPUUsageCores"], given["thresholdStrategy"], given["node"]
    limited = {pod.uid for pod in _pods(given) if pod.kube_qos is KubeQoS.BEST_EFFORT}
    others = sum(use for name, use in used.items() if name not in limited)
    system = max(given["nodeCPUUsageCores"] - sum(used.values()), 0)
    budget = _part(node, strategy["cpuSuppressThresholdPercent"]) - int((others + system) * 1000)
    return max(budget, _part(node, strategy.get("cpuSuppressMinPercent"), otherwise=budget))


def _part(node: Any, percent: int | None, *, otherwise: float = -math.inf) -> Any:
    """Millicores of a part of the node's CPU."""
    return otherwise if percent is None else shapes.node_of(node).capacity_milli * percent // 100


def _count(given: Any) -> int:
    """How many CPUs Koordinator wants: at most a tenth of the machine more than there were."""
    grown = len(CPUSet.parse(given["beRootCPUSetFileBefore"])) + math.ceil(len(given["processors"]) * 0.1)
    return min(max(-(-given["suppressMilliCPU"] // 1000), 2), grown)


def _is_outside(pod: Pod) -> bool:
    return pod.raw_qos is QoSClass.BE and pod.kube_qos is not KubeQoS.BEST_EFFORT


def _pods(given: Any) -> list[Pod]:
    return [shapes.pod_of(pod) for pod in given.get("pods") or []]


def _pinned(given: Any, qos: QoSClass) -> CPUSet:
    """CPUs by list; promises by NUMA node are left to the adapter's picture."""
    return union(pod.resource_status.cpuset for pod in _pods(given) if pod.raw_qos is qos)


def _allowed(given: Any) -> CPUSet:
    notes = given.get("nodeResourceTopologyAnnotations") or {}
    reserved = json.loads(notes.get("node.koordinator.sh/reservation") or "{}").get("reservedCPUs") or ""
    system = json.loads(notes.get("node.koordinator.sh/system-qos-resource") or "{}")
    kept = system.get("cpuset") or "" if system.get("cpusetExclusive") is not False else ""
    every = CPUSet(row["cpu"] for row in given["processors"])
    return every - _pinned(given, QoSClass.LSE) - CPUSet.parse(reserved) - CPUSet.parse(kept)


def _spread(given: Any, cpus: CPUSet) -> collections.Counter[int]:
    """How many places have how many of these CPUs."""
    places = collections.Counter((row["socket"], row["node"]) for row in given["processors"] if row["cpu"] in cpus)
    return collections.Counter(places.values())
