"""Where we answer differently on purpose: which cases, and the rule (docs/compatibility.md has the reasons)."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from typing import Any

from tests.conformance import (
    apiserver_cases,
    apiserver_rules,
    descheduler_guard_rules,
    evict_rules,
    machine_rules,
    memory_rules,
    migration_rules,
    numa_rules,
    plugin_rules,
    resource_rules,
    suppress_rules,
    topology_rules,
    utilization_rules,
)
from tests.conformance.adapters import slo


@dataclasses.dataclass(frozen=True, slots=True)
class Deviation:
    """Cases of these functions that differ by one rule of ours."""

    functions: tuple[str, ...]
    applies: Callable[[Any, Any, Any], bool]
    """Whether the rule explains a difference: (input, expected, found)."""
    rule: str


def _refused(given: Any, wanted: Any, found: Any) -> bool:
    return bool(found == "refused")


def _asks_for_what_is_not_there(given: Any, wanted: Any, found: Any) -> bool:
    written = json.loads(given["annotations"]["node.koordinator.sh/reservation"])
    count = str((written.get("resources") or {}).get("cpu", "0"))
    return "reservedCPUs" in written or float(count) > len(given["topology"])


def _negative(given: Any, wanted: Any, found: Any) -> bool:
    return any(amount.nano < 0 for amount in wanted[1].values())


def _enabled_below_the_cluster(given: Any, wanted: Any, found: Any) -> bool:
    return given["config"].get("enable") is not True and wanted is True


def _ratio_beyond_numbers(given: Any, wanted: Any, found: Any) -> bool:
    texts = [text for name, text in _labels(given).items() if name.endswith("-ratio")]
    return any(map(_is_beyond_numbers, texts)) and found == _of_the_strategy(given, found)


def _is_beyond_numbers(text: str) -> bool:
    try:
        return not math.isfinite(float(text)) or float(text) > 1e6
    except ValueError:
        return False


def _annotation_beyond_ranges(given: Any, wanted: Any, found: Any) -> bool:
    return "node.koordinator.sh/colocation-strategy" in _notes(given) and found == _of_the_strategy(given, found)


def _of_the_strategy(given: Any, found: Any) -> Any:
    """What the ConfigMap says, whatever the node carries."""
    strategy = given.get("cfg", given.get("strategy"))
    return {path: slo.colocation_values(strategy).get(path) for path in found}


def _labels(given: Any) -> Any:
    return given["node"]["metadata"].get("labels") or {}


def _notes(given: Any) -> Any:
    return given["node"]["metadata"].get("annotations") or {}


def _bandwidth_inherited(given: Any, wanted: Any, found: Any) -> bool:
    name = ("totalNetworkBandwidth",)
    cluster, *groups = wanted["strategies"]
    if given["kind"] != "system":
        return False
    inherited = [{**group, name: cluster[name]} if not group[name].nano else group for group in groups]
    return bool(found == {**wanted, "strategies": [cluster, *inherited]})


def _lists_replaced(given: Any, wanted: Any, found: Any) -> bool:
    if given["kind"] != "qos":
        return False
    written = slo.layers("resource-qos-config", json.loads(given["data"]["resource-qos-config"]))
    lists = [{path: value for path, value in layer.items() if path[-1] == "blocks"} for layer in written]
    ours = [{**theirs, **mine} for theirs, mine in zip(wanted["strategies"], lists, strict=True)]
    return bool(found == {**wanted, "strategies": ours})


def _zero_never_written(given: Any, wanted: Any, found: Any) -> bool:
    return 0 in given["taskIds"] and found["writesInOrder"] == [tid for tid in wanted["writesInOrder"] if tid != "0"]


def _divides_one_only(given: Any, wanted: Any, found: Any) -> bool:
    return bool(given["schemata"].strip()) and found == {"error": False}


def _offered_by_the_kernel(given: Any, wanted: Any, found: Any) -> bool:
    return wanted == {"supported": False} and found == {"supported": True}


def _group_gone(given: Any, wanted: Any, found: Any) -> bool:
    return given["tasksFile"] is None and found == {"tasks": [], "error": False}


def _empty_mask(given: Any, wanted: Any, found: Any) -> bool:
    """Koordinator's mask is empty; ours is the way in which the range begins, or the last one; none without ways."""
    mask = int(given["cbm"], 16) if isinstance(given["cbm"], str) else given["cbm"]
    if wanted != "0" or not mask:
        return bool(wanted == "0" and found == "")
    first = -(-mask.bit_length() * given.get("start", given.get("startPercent")) // 100)
    return bool(found == f"{1 << min(first, mask.bit_length() - 1):x}")


def _register_writes(given: Any, wanted: Any, found: Any) -> bool:
    """The lines that count writes are missing, and nothing else differs."""
    if given["op"]["op"] != "registers":
        return False
    rest = [line for line in wanted["readback"] if "writes=" not in line]
    return bool({**wanted, "readback": rest} == found)


DEVIATIONS: tuple[Deviation, ...] = (
    Deviation(
        ("migrationFilter",),
        migration_rules.sibling_moves,
        "migration-siblings: pods of all ReplicaSets of a workload count together",
    ),
    Deviation(
        ("memory_evict.config_check",),
        evict_rules.threshold_not_set,
        "evict-memory-default: a memory threshold that is not set is 70 %, the default of the protocol",
    ),
    Deviation(
        ("cgroup_reconcile.calculate",),
        memory_rules.level_low,
        "memory-level-low: a level protects as much as its pods do, min included",
    ),
    Deviation(
        ("evict_util.default_executor",),
        evict_rules.only_by_api,
        "evict-by-api: pods go through the Eviction API, their containers are never merely stopped",
    ),
    Deviation(
        ("cpu_evict.be_sort",),
        evict_rules.no_priority,
        "evict-total-order: a pod without a priority has priority 0, and equals go by name",
    ),
    Deviation(
        (
            "cpu_evict.be_sort",
            "memory_evict.reconcile",
            "cpu_evict.allocatable_release",
            "memory_evict.allocatable_release",
        ),
        evict_rules.finished,
        "evict-finished: pods that have ended are neither counted nor evicted",
    ),
    Deviation(
        ("cpu_evict.allocatable_release", "memory_evict.allocatable_release"),
        evict_rules.without_promise,
        "evict-promised-only: only requests of batch and mid resources count and are released",
    ),
    Deviation(
        ("memory_evict.reconcile",),
        evict_rules.nothing_to_release,
        "evict-contribution: a pod that releases nothing of what is missing stays",
    ),
    Deviation(
        ("memory_evict.reconcile",),
        evict_rules.counted_in_bytes,
        "evict-bytes: a victim counts with the bytes it uses",
    ),
    Deviation(
        (
            "GetReservedCPUs",
            "GetNodeReservationFromAnnotation",
            "getNodeReserved",
            "reservedCPUs",
            "reservedResources",
        ),
        _refused,
        "reservation-refused: an annotation that cannot be read is an error, never 'nothing reserved'",
    ),
    Deviation(
        ("getNodeReserved",),
        _negative,
        "reservation-negative: a negative amount counts as 0",
    ),
    Deviation(
        ("getNodeReserved",),
        _asks_for_what_is_not_there,
        "reservation-beyond-machine: what the machine lacks is dropped, and the rest is reserved",
    ),
    Deviation(
        ("UpdateColocationStrategyForNode", "GetNodeColocationStrategy"),
        _ratio_beyond_numbers,
        "config-ratio-labels: a label that is no finite ratio is ignored and told",
    ),
    Deviation(
        ("UpdateColocationStrategyForNode", "GetNodeColocationStrategy"),
        _annotation_beyond_ranges,
        "config-node-annotation: a strategy on the node with a value out of range is ignored and told",
    ),
    Deviation(
        ("mergeSLOCfg",),
        _bandwidth_inherited,
        "config-bandwidth-inherited: a group that does not name the bandwidth has the cluster's",
    ),
    Deviation(
        ("mergeSLOCfg",),
        _lists_replaced,
        "config-lists: a list takes the place of the cluster's, element by element nothing is inherited",
    ),
    Deviation(
        ("getContainerCPUSet", "SetContainerCPUSet", "SetHostAppCPUSet"),
        topology_rules.emptied_set,
        "pools-emptied: a pool without CPUs is no pool, and sets are joined as sets",
    ),
    Deviation(
        ("reportNodeTopology", "removeSystemQOSCPUs"),
        topology_rules.emptied_pools,
        "pools-emptied: a pool without CPUs is no pool, and sets are joined as sets",
    ),
    Deviation(
        ("reportNodeTopology",),
        topology_rules.finished_pod,
        "finished-pod-cpus: the CPUs of a pod that has finished are shared again",
    ),
    Deviation(
        ("reportNodeTopology",),
        topology_rules.pinned_reservation,
        "reservation-pinned: a reservation by quantity avoids CPUs that pods own",
    ),
    Deviation(
        ("reportNodeTopology",),
        topology_rules.reserved_beyond,
        "reservation-beyond-machine: what the machine lacks is dropped, and the rest is reserved",
    ),
    Deviation(
        ("reportNodeTopology",),
        topology_rules.system_qos_unread,
        "system-qos-refused: an annotation that cannot be read leaves the last good value, and the report goes on",
    ),
    Deviation(
        ("nodeTopologyStatus.isChanged",),
        topology_rules.foreign_gpu,
        "zone-foreign-resource: what others put into a zone does not make us write",
    ),
    Deviation(
        ("nodeTopologyStatus.isChanged",),
        topology_rules.other_capacity,
        "zone-capacity: a zone's capacity counts, not only what may be handed out",
    ),
    Deviation(
        ("isColocationCfgDisabled",),
        _enabled_below_the_cluster,
        "colocation-enable: a group of nodes or a node may switch on what the cluster has off",
    ),
    Deviation(
        ("BatchResource.Calculate",),
        resource_rules.application_without_priority,
        "host-application-priority: a host application without a priority is counted",
    ),
    Deviation(
        ("BatchResource.Calculate",),
        resource_rules.sample_missing,
        "pod-without-sample: a pod without a sample counts with its request under every policy",
    ),
    Deviation(
        ("BatchResource.Calculate",),
        resource_rules.zones_by_place,
        "zone-identity: a zone is known by its name, never by its place in the list",
    ),
    Deviation(
        ("GetPodNUMARequestAndUsage",),
        resource_rules.node_repeated,
        "zone-repeated: a NUMA node that a pod's promise names twice bears its part once",
    ),
    Deviation(
        ("UpdateNRTZoneListIfNeeded", "updateNRT zones"),
        resource_rules.zones_given_back,
        "zone-reset: a zone that is offered nothing gives back what it was offered",
    ),
    Deviation(
        ("cpu_suppress.adjust_by_cpuset",),
        suppress_rules.least_change,
        "suppress-least-change: of all sets spread alike, the one with most CPUs of the present set",
    ),
    Deviation(
        ("cpu_suppress.adjust_by_cpuset",),
        suppress_rules.small_pool,
        "suppress-small-pool: where fewer CPUs are allowed than wanted, those are used, and no others",
    ),
    Deviation(
        ("cpu_suppress.adjust_by_cpuset",),
        suppress_rules.small_share,
        "suppress-small-pool: where fewer CPUs are allowed than wanted, those are used, and no others",
    ),
    Deviation(
        ("cpu_suppress.calculate",),
        suppress_rules.labelled_outside,
        "suppress-by-cgroup: a pod outside the besteffort group is protected, whatever its label says",
    ),
    Deviation(
        ("cpu_suppress.reconcile",),
        suppress_rules.limit_kept,
        "be-cpu-manager: best effort stays limited, and containers keep to what was promised",
    ),
    Deviation(
        ("resctrl operation",),
        _register_writes,
        "resctrl-register-writes: how often the driver wrote a register is not counted",
    ),
    Deviation(
        ("koord_cat_l3_mask", "resctrl.l3_mask"),
        _empty_mask,
        "cache-mask-empty: a range that rounds to no way gets the smallest legal mask",
    ),
    Deviation(
        ("resctrl.write_tasks",),
        _zero_never_written,
        "resctrl-thread-zero: thread id 0 is never written, since it means the writer itself",
    ),
    Deviation(
        ("resctrl.schemata_valid",),
        _divides_one_only,
        "resctrl-partial: a machine that divides only cache or only bandwidth is used for what it has",
    ),
    Deviation(
        ("resctrl.vendor_supported",),
        _offered_by_the_kernel,
        "resctrl-detection: what the kernel offers is used, whoever made the CPU",
    ),
    Deviation(
        ("resctrl.read_tasks",),
        _group_gone,
        "resctrl-group-gone: a group that went between two looks has no threads, and is no error",
    ),
    Deviation(
        (
            "parse.memory_stat_v1",
            "parse.memory_stat_v2",
            "reader.ReadMemoryStat",
        ),
        machine_rules.memory_lines,
        "memory-stat-lines: only the lines that make up the use without page cache are read",
    ),
    Deviation(
        ("parse.cpu_stat_v2_full",),
        machine_rules.stat_lines,
        "cpu-stat-lines: user and system time are not told apart",
    ),
    Deviation(
        ("parse.cpu_max_quota_v2",),
        machine_rules.period_unread,
        "cpu-max-period: a cpu.max whose period is no number is refused",
    ),
    Deviation(
        (
            "parse.memory_numa_stat_v2",
            "reader.ReadMemoryNumaStat",
        ),
        machine_rules.numa_bytes,
        "numa-memory-bytes: bytes are added as they are, and node ids may have gaps",
    ),
    Deviation(
        ("reader.ReadColdPageUsage",),
        machine_rules.cold_pages,
        "cold-pages: kidled is not read",
    ),
    Deviation(
        ("validate.net_cls_classid",),
        machine_rules.network_class,
        "network-class: net_cls is not written",
    ),
    Deviation(
        ("nodemetric.spec_merge",),
        machine_rules.metric_durations,
        "metric-durations: percentiles over 5, 10 and 30 minutes are not kept",
    ),
    Deviation(
        ("executor.update",),
        machine_rules.written_outright,
        "executor-cache: there is no cache that has to be started first",
    ),
    Deviation(
        ("executor.update",),
        machine_rules.kubelet_field,
        "executor-kubelet-fields: a container's memory limit is kubelet's alone",
    ),
    Deviation(
        ("executor.update",),
        machine_rules.gone_told,
        "executor-gone: a file that is not there was not updated",
    ),
    Deviation(
        ("metric.system_usage",),
        machine_rules.one_instant,
        "metric-one-instant: all parts are of one sample, and what has none counts as nothing",
    ),
    Deviation(
        ("metric.system_numa_usage",),
        machine_rules.system_as_a_whole,
        "metric-system-numa: use of the system is one number, not one for each NUMA node",
    ),
    Deviation(
        ("cpuinfo.lscpu_parse",),
        machine_rules.without_cache,
        "cpu-without-cache: a CPU without a known L3 is a CPU, and its L3 is not number 0",
    ),
    Deviation(
        ("metric.be_real_limit_milli",),
        machine_rules.group_limit,
        "evict-be-limit: the set and the quota of the besteffort group count, not the smallest container",
    ),
    Deviation(
        ("filter", "koordEvictorFilter"),
        descheduler_guard_rules.never_evicted,
        "guard-mirror: a mirror or static pod, or one that goes already, is never evicted",
    ),
    Deviation(
        ("decode",),
        descheduler_guard_rules.arguments_missing,
        "policy-arguments: a plugin that is enabled without arguments it needs is refused when the file is read",
    ),
    Deviation(
        ("run RemovePodsViolatingNodeAffinity",),
        plugin_rules.unknown_affinity_type,
        "affinity-type: an unknown type of node affinity is refused when the policy is read",
    ),
    Deviation(
        ("run RemovePodsViolatingNodeAffinity",),
        plugin_rules.better_node_is_full,
        "affinity-better-fits: a pod leaves for a better node only if it fits on one",
    ),
    Deviation(
        ("run RemovePodsViolatingInterPodAntiAffinity",),
        plugin_rules.told_apart_by_uid,
        "anti-affinity-uid: pods are told apart by uid, not by name",
    ),
    Deviation(
        ("run RemovePodsViolatingInterPodAntiAffinity",),
        plugin_rules.namespace_selector,
        "anti-affinity-namespaces: a term's namespaceSelector counts",
    ),
    Deviation(
        ("run RemoveDuplicates",),
        plugin_rules.cordoned_targets,
        "duplicates-cordoned: cordoned nodes take no share of the replicas",
    ),
    Deviation(
        ("run RemovePodsViolatingTopologySpreadConstraint",),
        plugin_rules.spread_is_asked,
        "fit-spread: nodeFit asks for topology spread too",
    ),
    Deviation(
        ("run RemovePodsViolatingTopologySpreadConstraint",),
        plugin_rules.stuck_pods_stay,
        "spread-stuck: a pod that cannot move is not counted as moved",
    ),
    Deviation(
        ("run RemovePodsViolatingTopologySpreadConstraint",),
        plugin_rules.least_important_first,
        "spread-priority: the least important pod goes first",
    ),
    Deviation(
        ("run RemovePodsViolatingTopologySpreadConstraint",),
        plugin_rules.guarded_pods_count,
        "spread-guarded: pods that may not be evicted count where they are",
    ),
    Deviation(
        ("run RemovePodsViolatingTopologySpreadConstraint",),
        plugin_rules.moved_once,
        "spread-once: a pod that goes for one constraint has gone for the others",
    ),
    Deviation(
        ("run RemovePodsViolatingTopologySpreadConstraint",),
        plugin_rules.excluded_nodes,
        "spread-excluded: pods of nodes that a constraint leaves out are not counted",
    ),
    Deviation(
        ("ValidateLowNodeUtilizationArgs", "ValidateHighNodeUtilizationArgs"),
        utilization_rules.included_namespaces,
        "utilization-include: evictableNamespaces takes include as well",
    ),
    Deviation(
        ("ValidateLowNodeUtilizationArgs",),
        utilization_rules.query_of_one_resource,
        "utilization-query: a query with other resources than its own is refused when the policy is read",
    ),
    Deviation(
        ("run LowNodeUtilization", "run HighNodeUtilization"),
        utilization_rules.tolerations_by_match,
        "utilization-taints: a pod may leave when one node's taints are all tolerated, however many there are",
    ),
    Deviation(
        ("anomalyDetector",),
        utilization_rules.counted_from_the_first,
        "load-anomaly: N sightings in a row are N, not one more",
    ),
    Deviation(
        ("defaults",),
        utilization_rules.condition_completed,
        "load-anomaly-defaults: what an anomalyCondition leaves out has its usual value",
    ),
    Deviation(
        ("run LowNodeLoad",),
        utilization_rules.high_without_low,
        "load-high-alone: a high threshold without a low one counts",
    ),
    Deviation(
        ("run LowNodeLoad",),
        utilization_rules.room_booked_when_it_goes,
        "load-booking: room is booked for a pod when it goes, not when it is looked at",
    ),
    Deviation(
        ("nodeFit",),
        utilization_rules.same_named_rival,
        "anti-affinity-uid: pods are told apart by uid, not by name",
    ),
    Deviation(
        ("nodeFit", "podFitsNodes", "koordNodeFit"),
        utilization_rules.rival_of_the_candidate,
        "fit-anti-affinity: the terms of pods that are there count as well",
    ),
    Deviation(
        ("numa.violation",),
        numa_rules.promise_stands_wrong,
        "numa-promise-wrong: where the promised CPUs stand wrong themselves, writing them again is no cure",
    ),
    Deviation(
        (apiserver_cases.INTERACTION,),
        apiserver_rules.version_label,
        "apiserver-version: /version names the sandbox, with a full version number",
    ),
    Deviation(
        (apiserver_cases.INTERACTION,),
        apiserver_rules.health_details,
        "apiserver-health: ?verbose lists the sandbox's own checks",
    ),
    Deviation(
        (apiserver_cases.INTERACTION,),
        apiserver_rules.streaming,
        "apiserver-streaming: subresources that reach into containers or proxy are not served",
    ),
    Deviation(
        (apiserver_cases.INTERACTION,),
        apiserver_rules.unserved_kinds,
        "apiserver-kinds: discovery lists the kinds that are served, and no others",
    ),
    Deviation(
        (apiserver_cases.INTERACTION,),
        apiserver_rules.protobuf,
        "apiserver-protobuf: a client that accepts nothing but protobuf is refused in JSON",
    ),
)


def rule_for(function: str, given: Any, wanted: Any, found: Any) -> str:
    """The rule that explains why this case differs; empty when none does."""
    candidates = (d for d in DEVIATIONS if function in d.functions)
    return next((d.rule for d in candidates if d.applies(given, wanted, found)), "")
