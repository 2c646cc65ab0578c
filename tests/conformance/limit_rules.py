"""Rules that explain differences about limits of best effort, memory and caches: each asserts what ours says."""

from __future__ import annotations

import collections
import json
import math
from typing import Any

from koordlite.model.cpuset import CPUSet, union
from koordlite.model.pod.qos import KubeQoS, QoSClass
from koordlite.model.pod.values import Pod
from tests.conformance.adapters import shapes
from tests.conformance.deviations import deviation

_UNLIMITED = -1
_LEAST_US = 2000


@deviation(
    "suppress-least-change: of all sets spread alike, the one with most CPUs of the present set",
    "cpu_suppress.adjust_by_cpuset",
)
def least_change(given: Any, wanted: Any, found: Any) -> bool:
    """As many CPUs of each kind and in each kind of place as Koordinator's answer has, and more of the old ones."""
    old = CPUSet.parse(given["beRootCPUSetFileBefore"])
    lsr = _pinned(given, QoSClass.LSR)
    alike = (len(found & lsr), len(found - lsr)) == (len(wanted & lsr), len(wanted - lsr))
    spread = _spread(given, found - lsr) == _spread(given, wanted - lsr)
    return alike and spread and found <= _allowed(given) and len(found & old) > len(wanted & old)


@deviation(
    "suppress-small-pool: where fewer CPUs are allowed than wanted, those are used, and no others",
    "cpu_suppress.adjust_by_cpuset",
)
def small_pool(given: Any, wanted: Any, found: Any) -> bool:
    """Koordinator leaves the old set, or a part of the answer out; ours is everything allowed when that is less than
    was wanted."""
    allowed = _allowed(given)
    return bool(found == allowed and wanted != found and len(allowed) < _count(given))


@deviation(
    "suppress-small-pool: where fewer CPUs are allowed than wanted, those are used, and no others",
    "cpu_suppress.adjust_by_cpuset",
)
def small_share(given: Any, wanted: Any, found: Any) -> bool:
    """Koordinator leaves the old set, which holds a CPU that is not allowed; ours has the size and none of those."""
    old = CPUSet.parse(given["beRootCPUSetFileBefore"])
    return bool(
        wanted == old and not old <= _allowed(given) and found <= _allowed(given) and len(found) <= _count(given)
    )


@deviation("suppress-no-pool: where every CPU is somebody's nothing is written", "cpu_suppress.adjust_by_cpuset")
def no_pool(given: Any, wanted: Any, found: Any) -> bool:
    """Every CPU is somebody's: nothing is written."""
    return bool(not _allowed(given) and found == CPUSet.parse(given["beRootCPUSetFileBefore"]))


@deviation(
    "suppress-two-owners: a CPU promised to pods of two classes counts as the stricter one's",
    "cpu_suppress.adjust_by_cpuset",
)
def two_owners(given: Any, wanted: Any, found: Any) -> bool:
    """A CPU that pods of two classes were promised counts as that of the stricter one, not of the last in the list."""
    read = [(pod.raw_qos, pod.resource_status.cpuset) for pod in _pods(given)]
    disputed = union(a & b for one, a in read for other, b in read if one is not other)
    allowed = _allowed(given)
    count = min(_count(given), len(allowed))
    shared = allowed & _pinned(given, QoSClass.LSR)
    sizes = (count * len(shared) // len(allowed), count) if allowed else (0, 0)
    return bool(disputed and found <= allowed and (len(found & shared), len(found)) == sizes)


@deviation(
    "suppress-own-topology: the machine and the Node are looked at, whether or not a topology was published",
    "cpu_suppress.adjust_by_cpuset",
    "cpu_suppress.recover_cpuset",
)
def without_topology(given: Any, wanted: Any, found: Any) -> bool:
    """Koordinator leaves the old set where there is no NodeResourceTopology; ours looks at the machine."""
    unchanged = wanted == CPUSet.parse(given["beRootCPUSetFileBefore"])
    return bool(given.get("nodeResourceTopologyAnnotations") is None and unchanged and found <= _allowed(given))


@deviation(
    "suppress-static-parents: under kubelet's static policy on v1 the groups above containers keep every CPU",
    "cpu_suppress.adjust_by_cpuset",
)
def static_parents(given: Any, wanted: Any, found: Any) -> bool:
    """Under kubelet's static policy on v1 the groups above containers have every CPU: Koordinator takes those of others
    out of them, and a container that starts with kubelet's own set is refused."""
    static = given.get("kubeletCPUManagerPolicy") == "static"
    every = CPUSet(cpu.id for cpu in shapes.cpus(given["processors"] or []))
    return bool(static and found == every and wanted < every and not (every - wanted) & _allowed(given))


@deviation(
    "suppress-by-cgroup: a pod outside the besteffort group is protected, whatever its label says",
    "cpu_suppress.calculate",
)
def labelled_outside(given: Any, wanted: Any, found: Any) -> bool:
    """Pods labelled BE that kubelet put elsewhere: their use is taken off the budget."""
    used = given["podCPUUsageCoresByUID"]
    less = sum(used.get(pod.uid, 0) for pod in _pods(given) if _is_outside(pod)) * 1000
    floor = _part(given["node"], given.get("cpuSuppressMinPercent"))
    # One sum is cut to millicores where Koordinator has none.
    return bool(less and abs(found["suppressMilliCPU"] - max(wanted["suppressMilliCPU"] - less, floor)) <= 1)


@deviation(
    "suppress-from-unlimited: a limit is written at once where there was none, however small",
    "cpu_suppress.adjust_by_cfs_quota",
)
def from_unlimited(given: Any, wanted: Any, found: Any) -> bool:
    """The smallest limits are written too where there was none."""
    limit = max(given["suppressMilliCPU"] * 100, _LEAST_US)
    return bool(given["beRootQuotaBefore"] == wanted == _UNLIMITED and found == limit)


@deviation(
    "suppress-least-change: of all sets spread alike, the one with most CPUs of the present set",
    "cpu_suppress.reconcile",
)
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


@deviation("suppress-without-pods: a node without pods is judged as any other", "cpu_suppress.reconcile")
def without_pods(given: Any, wanted: Any, found: Any) -> bool:
    """Koordinator gives up a round without pods; ours judges what else uses the node."""
    before = (given["beRootQuotaBefore"], CPUSet.parse(given["beRootPodContainerCPUSetBefore"]))
    unchanged = (wanted["beRootQuotaAfter"], wanted["beRootCPUSetAfter"]) == before
    return bool(not given["pods"] and unchanged and found["beRootCPUSetAfter"] <= _allowed(given))


@deviation("config-deleted: without settings the defaults hold, which are off", "cpu_suppress.reconcile")
def settings_gone(given: Any, wanted: Any, found: Any) -> bool:
    """Without settings the defaults hold, which are off: all CPUs and no quota."""
    strategy = given.get("thresholdStrategy") or {}
    whole = (found["beRootQuotaAfter"], found["beRootCPUSetAfter"]) == (_UNLIMITED, _allowed(given))
    return strategy.get("enable") is None and whole


@deviation(
    "be-cpu-manager: best effort stays limited, and containers keep to what was promised", "cpu_suppress.reconcile"
)
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


_LOW = "memory.low"


@deviation("memory-level-low: a level protects as much as its pods do, min included", "cgroup_reconcile.calculate")
def level_low(given: Any, wanted: Any, found: Any) -> bool:
    """A level has the lows its pods really have: nothing else differs, and the root has the sum of all pods."""
    ours, theirs = (dict(_lows(answer)) for answer in (found, wanted))
    of_pods = sum(int(row["value"]) for row in found["podLevel"] if row["resource"] == _LOW)
    raised = ours.keys() == theirs.keys() and all(ours[tier] >= theirs[tier] for tier in ours)
    return bool(raised and ours.get("Guaranteed") == of_pods and _without_lows(found) == _without_lows(wanted))


@deviation("memory-page-cache: a pod has no limit where one of its containers has none", "cgroup_reconcile.calculate")
def page_cache_of_no_limit(given: Any, wanted: Any, found: Any) -> bool:
    """Page caches of pods differ, and nothing else: some are not labelled BE and have containers of different kinds."""
    mixed = any(
        len({bool((each["resources"].get("limits") or {}).get("memory")) for each in pod["spec"]["containers"]}) > 1
        or pod["spec"].get("initContainers")
        for pod in given["pods"]
    )
    return mixed and _only_expected(given, _without_page_cache(wanted), _without_page_cache(found))


@deviation("memory-init-containers: they have values of their own, as containers have", "cgroup_reconcile.calculate")
def init_containers(given: Any, wanted: Any, found: Any) -> bool:
    """Ours has their rows beside all of Koordinator's; only it and page caches differ where those explain it."""
    names = {each["name"] for pod in given["pods"] for each in pod["spec"].get("initContainers") or ()}
    rows = [row for row in found["containerLevel"] if row["container"] not in names]
    ours = {**found, "containerLevel": rows}
    return rows != found["containerLevel"] and (
        _only_expected(given, wanted, ours) or page_cache_of_no_limit(given, wanted, ours)
    )


def _only_expected(given: Any, wanted: Any, found: Any) -> bool:
    return found == wanted or level_low(given, wanted, found)


def _without_page_cache(answer: Any) -> Any:
    return {**answer, "podLevel": [row for row in answer["podLevel"] if "pagecache_limit" not in row["resource"]]}


@deviation("memory-annotation-enable: the annotation's switch counts", "cgroup_reconcile.merged_pod_qos")
def annotation_switch(given: Any, wanted: Any, found: Any) -> bool:
    """Koordinator has the class's switch; nothing else differs."""
    note = json.loads(given["pod"]["metadata"]["annotations"]["koordinator.sh/memoryQOS"])
    ours = {"memoryQOS": {**wanted["memoryQOS"], "enable": note["enable"]}}
    return bool(found == ours)


def _lows(answer: Any) -> list[tuple[str, int]]:
    return [(row["kubeQoS"], int(row["value"])) for row in answer["qosLevel"] if row["resource"] == _LOW]


def _without_lows(answer: Any) -> Any:
    return {**answer, "qosLevel": [row for row in answer["qosLevel"] if row["resource"] != _LOW]}


@deviation("resctrl-thread-zero: thread id 0 is never written, since it means the writer itself", "resctrl.write_tasks")
def _zero_never_written(given: Any, wanted: Any, found: Any) -> bool:
    others = [tid for tid in wanted["writesInOrder"] if tid != "0"]
    return 0 in (given["taskIds"] or ()) and bool(found == {**wanted, "writesInOrder": others})


@deviation(
    "resctrl-partial: a machine that divides only cache or only bandwidth is used for what it has",
    "resctrl.schemata_valid",
)
def _divides_one_only(given: Any, wanted: Any, found: Any) -> bool:
    return bool((given["schemata"] or "").strip()) and found == {"error": False}


@deviation("resctrl-detection: what the kernel offers is used, whoever made the CPU", "resctrl.vendor_supported")
def _offered_by_the_kernel(given: Any, wanted: Any, found: Any) -> bool:
    return wanted == {"supported": False} and found == {"supported": True}


@deviation(
    "resctrl-group-gone: a group that went between two looks has no threads, and is no error", "resctrl.read_tasks"
)
def _group_gone(given: Any, wanted: Any, found: Any) -> bool:
    return given["tasksFile"] is None and found == {"tasks": [], "error": False}


@deviation(
    "cache-mask-empty: a range that rounds to no way gets the smallest legal mask",
    "koord_cat_l3_mask",
    "resctrl.l3_mask",
)
def _empty_mask(given: Any, wanted: Any, found: Any) -> bool:
    """Koordinator's mask is empty; ours is the way in which the range begins, or the last one; none without ways."""
    mask = int(given["cbm"], 16) if isinstance(given["cbm"], str) else given["cbm"]
    if wanted != "0" or not mask:
        return bool(wanted == "0" and found == "")
    first = -(-mask.bit_length() * given.get("start", given.get("startPercent")) // 100)
    return bool(found == f"{1 << min(first, mask.bit_length() - 1):x}")


@deviation("resctrl-register-writes: how often the driver wrote a register is not counted", "resctrl operation")
def _register_writes(given: Any, wanted: Any, found: Any) -> bool:
    """The lines that count writes are missing, and nothing else differs."""
    if given["op"]["op"] != "registers":
        return False
    rest = [line for line in wanted["readback"] if "writes=" not in line]
    return bool({**wanted, "readback": rest} == found)
