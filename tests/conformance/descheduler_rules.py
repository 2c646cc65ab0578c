"""Where guards, policies and plugins of the descheduler differ on purpose (docs/compatibility.md has the reasons)."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import cyaml

from descheduler import plugins
from descheduler.arguments.evictor import SYSTEM_CRITICAL, Args
from descheduler.policy.upstream import EVICTOR, MIGRATION, missing_args
from koordlite.model import duration
from koordlite.model.reading import strict
from tests.conformance.descheduler_view import picture, written
from tests.conformance.deviations import deviation
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
_EVICT = "descheduler.alpha.kubernetes.io/evict"
_MIRROR = "kubernetes.io/config.mirror"
_SOURCE = "kubernetes.io/config.source"


@deviation(
    "guard-mirror: a mirror or static pod, or one that goes already, is never evicted", "filter", "koordEvictorFilter"
)
def never_evicted(given: Any, wanted: Any, found: Any) -> bool:
    """The annotation overrules no fact: mirror and static pods, and those that go already, cannot be evicted."""
    return _is_overruled(given["pod"]) and wanted is True and found is False


@deviation("guard-mirror: a mirror or static pod, or one that goes already, is never evicted", *RUNS)
def never_evicted_in_a_run(given: Any, wanted: Any, found: Any) -> bool:
    """As `never_evicted`, of some pod of a run; a case may also let every pod go. Others may go instead."""
    anything = given.get("evictorFilter") == "always_true"
    return found != "refused" and any(_is_fact(pod) and (anything or _is_overruled(pod)) for pod in given["pods"])


@deviation(
    "guard-source: an annotation that any running pod may carry makes no static pod", "filter", "koordEvictorFilter"
)
def source_is_no_proof(given: Any, wanted: Any, found: Any) -> bool:
    """Nothing else than the annotation may speak against the pod: then it goes here."""
    return wanted is False and found is True and _has_source(given["pod"])


@deviation("guard-source: an annotation that any running pod may carry makes no static pod", *RUNS)
def source_is_no_proof_in_a_run(given: Any, wanted: Any, found: Any) -> bool:
    return found != "refused" and any(map(_has_source, given["pods"])) and not fewer(found, wanted)


@deviation(
    "policy-arguments: a plugin that is enabled without arguments it needs is refused when the file is read", "decode"
)
def arguments_missing(given: Any, wanted: Any, found: Any) -> bool:
    """A plugin that is enabled and cannot work without arguments is a mistake of the file."""
    profiles = (cyaml.safe_load(given["policy"]) or {}).get("profiles") or ()
    return found == "refused" and any(name for profile in profiles for name in _without_arguments(profile))


@deviation("policy-null: null is no switch, number or word", "decode")
def null_for_a_value(given: Any, wanted: Any, found: Any) -> bool:
    return found == "refused" and bool(re.search(r":\s*(null|~)\s*($|[,}])", given["policy"], re.MULTILINE))


@deviation("policy-kind: a policy says which of the two kinds it is", "decode")
def without_a_kind(given: Any, wanted: Any, found: Any) -> bool:
    return found == "refused" and not (cyaml.safe_load(given["policy"]) or {}).get("kind")


@deviation(
    "policy-arguments: a selector or a threshold that cannot be used is refused when the file is read",
    "ValidateDefaultEvictorArgs",
)
def unusable_guard(given: Any, wanted: Any, found: Any) -> bool:
    """A selector, or a threshold beyond system-cluster-critical, that upstream's validation does not look at."""
    args = given.get("args") or {}
    selectors = any(args.get(name) for name in ("labelSelector", "namespaceLabelSelector", "nodeSelector"))
    beyond = ((args.get("priorityThreshold") or {}).get("value") or 0) > SYSTEM_CRITICAL
    return wanted is True and found is False and (selectors or beyond)


@deviation(
    "policy-unknown-plugin: arguments for a plugin that there is not are refused when the file is read",
    "ValidateDeschedulerConfiguration",
)
def nobody_s_plugin(given: Any, wanted: Any, found: Any) -> bool:
    """Arguments stand in the file for a plugin that there is not."""
    known = {*plugins.discover(), EVICTOR, MIGRATION}
    named = {e["name"] for profile in given["args"].get("profiles") or () for e in profile.get("pluginConfig") or ()}
    return wanted is True and found is False and bool(named - known)


def _is_overruled(pod: Any) -> bool:
    return _EVICT in (pod["metadata"].get("annotations") or {}) and _is_fact(pod)


def _is_fact(pod: Any) -> bool:
    meta = pod["metadata"]
    notes = meta.get("annotations") or {}
    return bool(_MIRROR in notes or notes.get(_SOURCE, "api") != "api" or meta.get("deletionTimestamp"))


def _has_source(pod: Any) -> bool:
    return (pod["metadata"].get("annotations") or {}).get(_SOURCE, "api") != "api"


def _without_arguments(profile: Any) -> Iterator[str]:
    """Plugins of the profile that are enabled and need arguments, and have none."""
    given = {entry["name"] for entry in profile.get("pluginConfig") or () if entry.get("args")}
    points = profile.get("plugins") or {}
    for point in ("deschedule", "balance"):
        for name in (points.get(point) or {}).get("enabled") or ():
            plugin = plugins.discover().get(name)
            if plugin and name not in given and missing_args(plugin.config):
                yield name


AFFINITY_TYPES = {"requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"}


@deviation(
    "affinity-type: an unknown type of node affinity is refused when the policy is read",
    "run RemovePodsViolatingNodeAffinity",
    "ValidateRemovePodsViolatingNodeAffinityArgs",
)
def unknown_affinity_type(given: Any, wanted: Any, found: Any) -> bool:
    return found in ("refused", False) and bool(set(_affinity_types(given)) - AFFINITY_TYPES)


@deviation(
    "policy-defaults: arguments are checked with their defaults: none, or no resources, is no mistake",
    "ValidateFragmentationAwareArgs",
)
def defaults_come_first(given: Any, wanted: Any, found: Any) -> bool:
    """A validator that is asked by itself refuses what a policy would have filled in before."""
    return found is True and not (given["args"] or {}).get("resources")


@deviation(
    "affinity-better-fits: a pod leaves for a better node only if it fits on one", "run RemovePodsViolatingNodeAffinity"
)
def better_node_is_full(given: Any, wanted: Any, found: Any) -> bool:
    preferred = any("preferred" in kind for kind in _affinity_types(given))
    return preferred and fewer(found, wanted)


@deviation("anti-affinity-uid: pods are told apart by uid, not by name", "run RemovePodsViolatingInterPodAntiAffinity")
def told_apart_by_uid(given: Any, wanted: Any, found: Any) -> bool:
    names = [pod["metadata"]["name"] for pod in given["pods"]]
    return len(set(names)) < len(names) and fewer(wanted, found)


@deviation("anti-affinity-namespaces: a term's namespaceSelector counts", "run RemovePodsViolatingInterPodAntiAffinity")
def namespace_selector(given: Any, wanted: Any, found: Any) -> bool:
    return "namespaceSelector" in json.dumps(given["pods"]) and (fewer(wanted, found) or fewer(found, wanted))


@deviation("duplicates-cordoned: cordoned nodes take no share of the replicas", "run RemoveDuplicates")
def cordoned_targets(given: Any, wanted: Any, found: Any) -> bool:
    return any((node.get("spec") or {}).get("unschedulable") for node in given["nodes"])


@deviation(
    "spread-stuck: a pod that cannot move is not counted as moved", "run RemovePodsViolatingTopologySpreadConstraint"
)
def stuck_pods_stay(given: Any, wanted: Any, found: Any) -> bool:
    """Pods that fit nowhere or are guarded are not counted as moved, so that others go in their place."""
    stuck = (given.get("args") or {}).get("topologyBalanceNodeFit") is not False or bool(list(_guarded(given)))
    return stuck and fewer(wanted, found)


@deviation(
    "spread-guarded: pods that may not be evicted count where they are",
    "run RemovePodsViolatingTopologySpreadConstraint",
)
def guarded_pods_count(given: Any, wanted: Any, found: Any) -> bool:
    return bool(list(_guarded(given))) and not bool(set(found.get("evicted", ())) & set(_guarded(given)))


@deviation("spread-priority: the least important pod goes first", "run RemovePodsViolatingTopologySpreadConstraint")
def least_important_first(given: Any, wanted: Any, found: Any) -> bool:
    priorities = {pod["spec"].get("priority") for pod in given["pods"]}
    return len(priorities) > 1 and _count(found) == _count(wanted)


@deviation(
    "spread-once: a pod that goes for one constraint has gone for the others",
    "run RemovePodsViolatingTopologySpreadConstraint",
)
def moved_once(given: Any, wanted: Any, found: Any) -> bool:
    kinds = {json.dumps(one, sort_keys=True) for pod in given["pods"] for one in _constraints(pod)}
    return len(kinds) > 1 and fewer(found, wanted)


@deviation(
    "spread-excluded: pods of nodes that a constraint leaves out are not counted",
    "run RemovePodsViolatingTopologySpreadConstraint",
)
def excluded_nodes(given: Any, wanted: Any, found: Any) -> bool:
    """Pods on nodes that a constraint leaves out are not counted: some pods with constraints have to choose nodes."""
    choosy = [p for p in given["pods"] if p["spec"].get("nodeSelector") or p["spec"].get("affinity")]
    tainted = [node for node in given["nodes"] if (node.get("spec") or {}).get("taints")]
    return bool(choosy or tainted) and (fewer(found, wanted) or fewer(wanted, found))


@deviation("fit-spread: nodeFit asks for topology spread too", *RUNS)
def spread_is_asked(given: Any, wanted: Any, found: Any) -> bool:
    """`nodeFit` of the evictor, or the plugin's own, sees that the pod would lie no better anywhere."""
    return _fit_is_asked(given) and any(map(_constraints, given["pods"])) and fewer(found, wanted)


@deviation("fit-anti-affinity: everybody's terms count, over the whole domain", *RUNS)
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


def _affinity_types(given: Any) -> Any:
    return (given.get("args") or {}).get("nodeAffinityType") or ()


def _constraints(pod: Any) -> Any:
    return pod["spec"].get("topologySpreadConstraints") or []


def _guarded(given: Any) -> Iterator[str]:
    args = strict.load(json.dumps(written(given.get("defaultEvictorArgs"))), Args, "defaultEvictorArgs")
    view = picture(given)
    asked = handle(view, args)
    return (pod.key for pod in view.pods() if not asked.evictable(pod))


@deviation(
    "utilization-include: evictableNamespaces takes include as well",
    "ValidateLowNodeUtilizationArgs",
    "ValidateHighNodeUtilizationArgs",
)
def included_namespaces(given: Any, wanted: Any, found: Any) -> bool:
    """Accepted where it is the only namespaces argument."""
    chosen = (given["args"] or {}).get("evictableNamespaces") or {}
    return bool(chosen.get("include")) and not chosen.get("exclude") and found is True


@deviation(
    "utilization-query: a query with other resources than its own is refused when the policy is read",
    "ValidateLowNodeUtilizationArgs",
)
def query_of_one_resource(given: Any, wanted: Any, found: Any) -> bool:
    args = given["args"]
    by_query = (args.get("metricsUtilization") or {}).get("source") == "Prometheus"
    return by_query and set(args.get("thresholds") or ()) != {"MetricResource"} and found is False


@deviation(
    "utilization-taints: a pod may leave when one node's taints are all tolerated, however many there are",
    "run LowNodeUtilization",
    "run HighNodeUtilization",
)
def tolerations_by_match(given: Any, wanted: Any, found: Any) -> bool:
    """Where taints or tolerations are in play, as many or more go: all that some node lets in."""
    tainted = any(node.get("spec", {}).get("taints") for node in given["nodes"])
    return tainted and _count(found) >= _count(wanted)


@deviation("load-anomaly: N sightings in a row are N, not one more", "anomalyDetector")
def counted_from_the_first(given: Any, wanted: Any, found: Any) -> bool:
    """Exactly N sightings in a row make a node abnormal, not N + 1."""
    marks = given["extraDetectionsOnAll"] + 1
    before = given["preMarkedAbnormal"]
    enough = [
        node
        for node in given["sourceNodes"]
        if marks + before["times"] * (node in (before["nodes"] or ())) >= given["consecutiveAbnormalities"]
    ]
    return bool(found["abnormalOnNextCall"] == enough)


_DURATIONS = ("timeout", "detectorCacheTimeout")


def compact(value: Any, name: str = "") -> Any:
    """Without what is zero, which Go may leave out; durations in seconds."""
    if name in _DURATIONS and isinstance(value, str):
        return duration.seconds(value)
    if isinstance(value, Mapping):
        inner = {key: compact(one, key) for key, one in value.items()}
        return {key: one for key, one in inner.items() if one or (one is False and key == "nodeFit")}
    return [compact(one) for one in value] if isinstance(value, list) else value


@deviation("load-anomaly-defaults: what an anomalyCondition leaves out has its usual value", "defaults")
def condition_completed(given: Any, wanted: Any, found: Any) -> bool:
    """Of a condition that was given in part both counts have their usual value, and nothing else differs."""
    expected = {**wanted["args"]}
    top = {"consecutiveAbnormalities": 5, "consecutiveNormalities": 3, **expected["anomalyCondition"]}
    expected["anomalyCondition"] = top
    if "nodePools" in expected:
        pools = expected["nodePools"]
        expected["nodePools"] = [{**p, "anomalyCondition": {**_counts(top), **p["anomalyCondition"]}} for p in pools]
    return bool(found["args"] == expected)


def _counts(condition: Any) -> dict[str, Any]:
    return {name: value for name, value in condition.items() if name not in _DURATIONS}


@deviation("policy-arguments: what no validation would let pass is refused when the file is read", "defaults")
def refused_by_validation(given: Any, wanted: Any, found: Any) -> bool:
    """Arguments that Koordinator's validation refuses as well, after it has filled in the defaults."""
    args = given["args"]

    def above(level: Any, lower: str, upper: str) -> bool:
        least, most = level.get(lower) or {}, level.get(upper) or {}
        return any(least[name] > most[name] for name in least.keys() & most.keys())

    crossed = any(
        above(level, lower, upper)
        for level in (args, *(args.get("nodePools") or ()))
        for lower, upper in (
            ("lowThresholds", "highThresholds"),
            ("prodHighThresholds", "highThresholds"),
            ("prodLowThresholds", "prodHighThresholds"),
        )
    )
    return found == "refused" and (crossed or args.get("nodeMetricExpirationSeconds") == 0)


@deviation("load-pools: a pool without a selector is for the nodes that are in no pool before", "run LowNodeLoad")
def pool_without_selector(given: Any, wanted: Any, found: Any) -> bool:
    """A pool behind others has no selector: here it is for the nodes that are in none of them."""
    later = (given["args"].get("nodePools") or ())[1:]
    return any(not pool.get("nodeSelector") for pool in later)


@deviation("load-prod-low: without prod thresholds only nodes below the low thresholds take pods in", "run LowNodeLoad")
def no_prod_thresholds(given: Any, wanted: Any, found: Any) -> bool:
    """Of a pool without prod thresholds Koordinator counts more nodes as underutilized than numberOfNodes: more go."""
    pools = given["args"].get("nodePools") or ()
    without = any(not (pool.get("prodLowThresholds") or pool.get("prodHighThresholds")) for pool in pools)
    return without and bool(given["args"].get("numberOfNodes")) and _count(found) == 0 < _count(wanted)


@deviation(
    "utilization-order: the node furthest above its target is relieved first, the emptiest emptied first",
    "run LowNodeUtilization",
    "run HighNodeUtilization",
)
def relieved_in_another_order(given: Any, wanted: Any, found: Any) -> bool:
    """Several nodes lose pods, or would, and the room that others have does not last for all of them."""
    if found == "refused" or len(given["nodes"]) < 3:
        return False
    goes = {*found.get("evicted", ()), *wanted.get("evicted", ())}
    homes = {pod["spec"].get("nodeName") for pod in given["pods"] if _key(pod) in goes}
    return len(homes) > 1 and abs(_count(found) - _count(wanted)) <= 1


@deviation("load-booking: room is booked for a pod when it goes, not when it is looked at", "run LowNodeLoad")
def room_booked_when_it_goes(given: Any, wanted: Any, found: Any) -> bool:
    """Room is booked for pods that go, so as many or more go."""
    return given["args"].get("nodeFit") is not False and _count(found) >= _count(wanted)


@deviation("load-high-alone: a high threshold without a low one counts", "run LowNodeLoad")
def high_without_low(given: Any, wanted: Any, found: Any) -> bool:
    """Some pool has a high threshold without a low one, which counts here."""
    pools = given["args"].get("nodePools") or ()
    return isinstance(found, dict) and any(
        set(pool.get("highThresholds") or ()) - set(pool.get("lowThresholds") or ()) for pool in pools
    )


@deviation("anti-affinity-uid: pods are told apart by uid, not by name", "nodeFit", "podFitsNodes")
def same_named_rival(given: Any, wanted: Any, found: Any) -> bool:
    """A pod of the candidate's name, in whatever namespace, is another pod, and its labels are what counts."""
    pods = given.get("podsOnNode") or given.get("podsOnNodes") or ()
    names = [pod["metadata"].get("name") for pod in pods if pod != given["pod"]]
    refused = "anti-affinity" in (found.get("error") or "anti-affinity") and not found["fits"]
    return _has_terms(given["pod"]) and refused and given["pod"]["metadata"].get("name") in names


@deviation(
    "fit-anti-affinity: the terms of pods that are there count as well",
    "nodeFit",
    "podFitsNodes",
    "koordNodeFit",
    "preEvictionFilter",
    "koordEvictorFilter",
)
def rival_of_the_candidate(given: Any, wanted: Any, found: Any) -> bool:
    """A pod that is there has a term against the candidate, or one in the domain, on another node, is in its way."""
    pods = given.get("podsOnNode") or given.get("podsOnNodes") or given.get("pods") or ()
    domain = "nodes" in given and _has_terms(given["pod"])
    return (domain or any(map(_has_terms, pods))) and _refused_only_here(given, wanted, found)


@deviation(
    "fit-spread: nodeFit asks for topology spread too",
    "nodeFit",
    "podFitsNodes",
    "koordNodeFit",
    "preEvictionFilter",
    "koordEvictorFilter",
)
def spread_of_the_candidate(given: Any, wanted: Any, found: Any) -> bool:
    """The candidate has to be spread, and would lie no better there."""
    return _refused_only_here(given, wanted, found) and bool(_spec(given["pod"]).get("topologySpreadConstraints"))


@deviation(
    "fit-more: nodeFit asks for host ports and volumes too",
    "nodeFit",
    "podFitsNodes",
    "koordNodeFit",
    "preEvictionFilter",
    "koordEvictorFilter",
)
def ports_or_volumes(given: Any, wanted: Any, found: Any) -> bool:
    """The candidate has host ports, volumes or a required pod affinity."""
    spec = _spec(given["pod"])
    ports = [port for one in spec.get("containers") or () for port in one.get("ports") or () if port.get("hostPort")]
    company = (spec.get("affinity") or {}).get("podAffinity")
    return _refused_only_here(given, wanted, found) and bool(ports or spec.get("volumes") or company)


@deviation("fit-own-node: the room that a pod has on its own node is its own", "koordNodeFit")
def fits_where_it_is(given: Any, wanted: Any, found: Any) -> bool:
    """Koordinator asks whether the pod would fit beside itself."""
    if given.get("excludeCurrentNode", given.get("fn") == "PodFitsAnyOtherNode"):
        return False
    own = _spec(given["pod"]).get("nodeName")
    return bool(found["fits"] and not wanted["fits"]) and own in [node["metadata"]["name"] for node in given["nodes"]]


@deviation("fit-evict-annotation: the annotation evict finds no place for a pod", "koordEvictorFilter")
def no_place_for_the_annotated(given: Any, wanted: Any, found: Any) -> bool:
    annotated = _EVICT in (given["pod"]["metadata"].get("annotations") or {})
    return _refused_only_here(given, wanted, found) and annotated


@deviation("fit-more: nodeFit asks for host ports and volumes too", "koordNodeFit", "koordEvictorFilter")
def pods_are_counted(given: Any, wanted: Any, found: Any) -> bool:
    """Each node that limits its pods has as many as it may have, which Koordinator does not count."""
    pods = [pod for pod in (given.get("podsOnNodes") or given.get("pods") or ()) if not _has_ended(pod)]
    counts = Counter(_spec(pod).get("nodeName") for pod in pods)
    allowed = {node["metadata"]["name"]: (node.get("status") or {}).get("allocatable") or {} for node in given["nodes"]}
    full = [counts[name] >= int(amounts["pods"]) for name, amounts in allowed.items() if "pods" in amounts]
    return bool(full) and all(full) and _refused_only_here(given, wanted, found)


def _has_ended(pod: Any) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def _refused_only_here(given: Any, wanted: Any, found: Any) -> bool:
    """It fits for upstream and not for us, in a case of the fit or of the evictor's last filter with `nodeFit`."""
    if not given.get("opts", {"nodeFit": True}).get("nodeFit"):
        return False
    theirs, ours = (side["fits"] if isinstance(side, dict) else side for side in (wanted, found))
    return theirs is True and ours is False


def _key(pod: Any) -> str:
    return f"{pod['metadata'].get('namespace')}/{pod['metadata'].get('name')}"


def _spec(pod: Any) -> Any:
    return pod.get("spec") or {}


def _has_terms(pod: Any) -> bool:
    return bool((_spec(pod).get("affinity") or {}).get("podAntiAffinity"))


def _count(result: Any) -> int:
    """How many go; none when the arguments are refused."""
    if not isinstance(result, dict):
        return -1
    return int(result.get("evicted_count", len(result.get("evicted", ()))))
