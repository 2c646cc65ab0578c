"""Where the descheduler answers differently on purpose."""

from __future__ import annotations

from tests.conformance import descheduler_guard_rules, numa_rules, plugin_rules, utilization_rules
from tests.conformance.deviation import Deviation

DEVIATIONS = (
    Deviation(
        ("filter", "koordEvictorFilter"),
        descheduler_guard_rules.never_evicted,
        "guard-mirror: a mirror or static pod, or one that goes already, is never evicted",
    ),
    Deviation(
        plugin_rules.RUNS,
        descheduler_guard_rules.never_evicted_in_a_run,
        "guard-mirror: a mirror or static pod, or one that goes already, is never evicted",
    ),
    Deviation(
        ("ValidateDeschedulerConfiguration",),
        descheduler_guard_rules.nobody_s_plugin,
        "policy-unknown-plugin: arguments for a plugin that there is not are refused when the file is read",
    ),
    Deviation(
        ("ValidateDefaultEvictorArgs",),
        descheduler_guard_rules.unusable_guard,
        "policy-arguments: a selector or a threshold that cannot be used is refused when the file is read",
    ),
    Deviation(
        ("decode",),
        descheduler_guard_rules.arguments_missing,
        "policy-arguments: a plugin that is enabled without arguments it needs is refused when the file is read",
    ),
    Deviation(
        ("run RemovePodsViolatingNodeAffinity", "ValidateRemovePodsViolatingNodeAffinityArgs"),
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
        plugin_rules.RUNS,
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
        ("defaults",),
        utilization_rules.refused_by_validation,
        "policy-arguments: what no validation would let pass is refused when the file is read",
    ),
    Deviation(
        ("run LowNodeLoad",),
        utilization_rules.pool_without_selector,
        "load-pools: a pool without a selector is for the nodes that are in no pool before",
    ),
    Deviation(
        ("ValidateFragmentationAwareArgs",),
        plugin_rules.defaults_come_first,
        "policy-defaults: arguments are checked with their defaults: none, or no resources, is no mistake",
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
        ("nodeFit", "podFitsNodes"),
        utilization_rules.same_named_rival,
        "anti-affinity-uid: pods are told apart by uid, not by name",
    ),
    Deviation(
        ("nodeFit", "podFitsNodes", "koordNodeFit"),
        utilization_rules.rival_of_the_candidate,
        "fit-anti-affinity: the terms of pods that are there count as well",
    ),
    Deviation(
        plugin_rules.RUNS,
        plugin_rules.rivals_are_asked,
        "fit-anti-affinity: everybody's terms count, over the whole domain",
    ),
    Deviation(
        ("nodeFit", "podFitsNodes", "koordNodeFit", "preEvictionFilter"),
        utilization_rules.spread_of_the_candidate,
        "fit-spread: nodeFit asks for topology spread too",
    ),
    Deviation(
        ("nodeFit", "podFitsNodes", "koordNodeFit", "preEvictionFilter"),
        utilization_rules.ports_or_volumes,
        "fit-more: nodeFit asks for host ports and volumes too",
    ),
    Deviation(
        ("numa.violation",),
        numa_rules.promise_stands_wrong,
        "numa-promise-wrong: where the promised CPUs stand wrong themselves, writing them again is no cure",
    ),
)
