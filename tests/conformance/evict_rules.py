"""Which differences about evictions and migrations are on purpose."""

from __future__ import annotations

import functools
from typing import Any

from koordlite.formulas.eviction import evict_config
from koordlite.model.slo.settings import Threshold
from tests.conformance import evict_round
from tests.conformance.adapters import evict_util, shapes
from tests.conformance.deviations import deviation

_SINGLE_BITS = 20
"""A number in single precision is exact to 24 bits; a difference of two shares loses some more."""


@deviation(
    "evict-memory-default: a memory threshold that is not set is 70 %, the default of the protocol",
    "memory_evict.config_check",
)
def threshold_not_set(given: Any, wanted: Any, found: Any) -> bool:
    """A memory threshold that is not set has its default; what is wrong besides is told all the same."""
    written = given["thresholdStrategy"]
    unset = written is not None and written.get("memoryEvictThresholdPercent") is None
    by_use = given["feature"] in (evict_config.BE_MEMORY, evict_config.USED_MEMORY)
    lower, priority = ((written or {}).get(n) for n in ("memoryEvictLowerPercent", "evictEnabledPriorityThreshold"))
    ours = Threshold(memory_evict_lower_percent=lower, evict_enabled_priority_threshold=priority)
    mistake = evict_config.mistake(given["feature"], ours) or None
    return bool(unset and by_use and found == {"valid": mistake is None, "message": mistake})


@deviation(
    "evict-by-api: pods go through the Eviction API, their containers are never merely stopped",
    "evict_util.default_executor",
)
def only_by_api(given: Any, wanted: Any, found: Any) -> bool:
    """Containers are never stopped behind the cluster's back."""
    return bool(not given["onlyEvictByAPI"] and found == {"result": given["evictionAPISucceeds"]})


@deviation("evict-total-order: a pod without a priority has priority 0, and equals go by name", "cpu_evict.be_sort")
def no_priority(given: Any, wanted: Any, found: Any) -> bool:
    """Pods without a priority have priority 0, so that the order is total; those that have ended are not in it."""
    pods = {p["metadata"]["name"]: shapes.pod_of(p) for p in given["pods"]}
    lacking = any(pod.priority is None for pod in pods.values())
    ranks = [pods[name].priority or 0 for name in found]
    return bool(lacking and ranks == sorted(ranks) and set(found) == {name for name in wanted if pods[name].active})


@deviation(
    "evict-finished: pods that have ended are neither counted nor evicted",
    "cpu_evict.be_sort",
    "cpu_evict.reconcile",
    "memory_evict.reconcile",
    "cpu_evict.allocatable_release",
    "memory_evict.allocatable_release",
)
def finished(given: Any, wanted: Any, found: Any) -> bool:
    """Pods that have ended are neither counted nor evicted."""
    ended = {p["metadata"]["name"] for p in given["pods"] or () if not shapes.pod_of(p).active}
    if isinstance(found, list):
        return bool(ended) and [name for name in wanted if name not in ended] == found
    if isinstance(found, tuple):
        return _explains(evict_round.FINISHED, given, wanted, found)
    told = {name for name, amounts in found["podContribution"].items() if amounts}
    return bool(ended) and not ended & told and _is_released(given, found)


@deviation(
    "evict-promised-only: only requests of batch and mid resources count and are released",
    "cpu_evict.allocatable_release",
    "memory_evict.allocatable_release",
)
def without_promise(given: Any, wanted: Any, found: Any) -> bool:
    """Requests of classes behind no batch or mid resource count for nothing; the others are released alike."""
    return bool({"cpu", "memory"} & wanted["release"].keys()) and _is_released(given, found)


@deviation(
    "evict-in-doubles: shares of memory are worked out in doubles, not in single precision",
    "memory_evict.allocatable_release",
)
def in_doubles(given: Any, wanted: Any, found: Any) -> bool:
    """The amounts differ by no more than what single precision loses."""
    node = shapes.node_of(given["node"]).allocatable
    loss = {name: node[name].value >> _SINGLE_BITS if name in node else 0 for name in wanted["release"]}
    near = all(abs(found["release"].get(name, 0) - wanted["release"][name]) <= loss[name] for name in loss)
    return near and found["release"].keys() == loss.keys() and _is_released(given, found)


def _explains(rule: str, given: Any, wanted: Any, found: Any) -> bool:
    """Ours is what a round with all our rules comes to, and this rule is one that matters to it.

    A case that tells only who must go has the pods that ours leaves out: `(set of those, nothing)`.
    """

    def told(rules: evict_round.Rules) -> set[str]:
        gone = evict_round.evicted(given, rules)
        return gone if "nodeMemoryUsedBytes" in given else theirs - gone

    theirs = evict_round.evicted(given, frozenset())
    ours = told(evict_round.ALL)
    matters = told(evict_round.ALL - {rule}) != ours or told(frozenset((rule,))) != told(frozenset())
    return matters and (found[0] == ours if "nodeMemoryUsedBytes" in given else found[0] <= ours)


def _walks(rule: str, given: Any, found: Any) -> bool:
    """The same of a walk through tasks that are given."""
    tasks = [
        evict_round.Task(row["releaseTarget"], row["toRelease"] or {}, tuple(row["sortedPods"]), released)
        for row in given["tasks"] or ()
        if row
        for released in [evict_util.contributions(given, row)]
    ]

    def told(rules: evict_round.Rules) -> Any:
        walk = evict_round.walk(tasks, given.get("alreadyEvicted") or (), rules)
        return {"newlyEvicted": bool(walk.evicted), "evicted": sorted(walk.evicted), "released": walk.released}

    ours = told(evict_round.ALL)
    matters = told(evict_round.ALL - {rule}) != ours or told(frozenset((rule,))) != told(frozenset())
    return bool(matters and found == ours)


_CONTRIBUTION = "evict-contribution: a pod that releases nothing of what is missing stays"
_ROUNDS = ("cpu_evict.reconcile", "memory_evict.reconcile")
_WALK = "evict_util.kill_and_evict"
for _rule, _text, _functions in (
    (evict_round.CONTRIBUTION, _CONTRIBUTION, _ROUNDS),
    # Not a thousand times as much: more of them are needed.
    (evict_round.BYTES, "evict-bytes: a victim counts with the bytes it uses", _ROUNDS[1:]),
    (
        evict_round.PROMISED,
        "evict-promised-only: only requests of batch and mid resources count and are released",
        _ROUNDS,
    ),
    # Pods without requests in the besteffort cgroup go first when what they use is the cause.
    (
        evict_round.BY_USE,
        "evict-by-use: labels and annotations of its own protect no pod that uses more than it requests",
        _ROUNDS,
    ),
):
    deviation(_text, *_functions)(functools.partial(_explains, _rule))
deviation(_CONTRIBUTION, _WALK)(functools.partial(_walks, evict_round.CONTRIBUTION))
deviation("evict-leaving: what is on its way out counts before a victim is looked for", _WALK)(
    functools.partial(_walks, evict_round.LEAVING)
)


def _is_released(given: Any, found: Any) -> bool:
    """Ours is the amount worked out exactly, give or take the last digit."""
    resource = "cpu" if "cpuAllocatableEvictThresholdPercent" in given["thresholdStrategy"] else "memory"
    exact = evict_round.release(given, resource, evict_round.ALL)
    release = found["release"]
    return exact.keys() == release.keys() and all(abs(exact[name] - release[name]) <= 1 for name in exact)


@deviation("migration-siblings: pods of all ReplicaSets of a workload count together", "migrationFilter")
def sibling_moves(given: Any, wanted: Any, found: Any) -> bool:
    """A pod of the same workload, but of another controller below it, is on the move; it counts with us."""
    if given.get("filter") != "filterMaxMigratingOrUnavailablePerWorkload" or found["result"] or not wanted["result"]:
        return False
    own = _controller(given["pod"])
    moving = {job["spec"]["podRef"]["uid"] for job in given["jobs"]}
    siblings = [pod for pod in given["workload"]["pods"] if pod["metadata"]["uid"] in moving]
    return any(_controller(pod) != own for pod in siblings)


@deviation("migration-own-job: a job that names its pod without a uid is the pod's own", "migrationFilter")
def own_job(given: Any, wanted: Any, found: Any) -> bool:
    """Koordinator counts it as another pod's of the workload."""
    if given["filter"] != "filterMaxMigratingOrUnavailablePerWorkload" or wanted["result"] or not found["result"]:
        return False
    pod = given["pod"]["metadata"]
    refs = [job["spec"]["podRef"] for job in given["jobs"]]
    return any(
        not ref.get("uid") and (ref["namespace"], ref["name"]) == (pod["namespace"], pod["name"]) for ref in refs
    )


@deviation("migration-check-off: a check that is skipped asks for no workload", "migrationFilter")
def check_is_off(given: Any, wanted: Any, found: Any) -> bool:
    """Koordinator keeps the pod whose workload it cannot read."""
    skipped = given["filter"] == "filterExpectedReplicas" and given["args"].get("skipCheckExpectedReplicas")
    return bool(skipped and not given.get("workload") and not wanted["result"] and found["result"])


def _controller(pod: Any) -> Any:
    owners = pod["metadata"].get("ownerReferences") or ()
    return next((owner["uid"] for owner in owners if owner.get("controller")), None)
