"""Cases of one descheduler plugin: the whole cycle runs with it alone, on the picture that the product's reader makes.

Evictions are counted on the picture as it is (`fit: snapshot`), as upstream counts them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from descheduler import plugins
from descheduler.arguments.evictor import Args
from descheduler.cycle import planner
from descheduler.filters.limits import Limits
from descheduler.framework import Conversation, Finding, Handle, Judge, Plugin, Verdict, View
from descheduler.plan import EvictionPlan, Profile, Setup
from koordlite.model.errors import ConfigError
from koordlite.model.reading import strict
from koordlite.model.wire import objects
from tests.conformance.descheduler_view import picture, written

EVERYTHING_GOES = {
    "podProtections": {
        "defaultDisabled": ["PodsWithLocalStorage", "DaemonSetPods", "SystemCriticalPods", "FailedBarePods"]
    }
}
NOTHING_PASSES_LATE = {"namespaceLabelSelector": {"matchLabels": {"conformance/nowhere": ""}}}
"""A PreEvictionFilter that always refuses."""
T = TypeVar("T")
_EVICT = "descheduler.alpha.kubernetes.io/evict"
_PASSED = "conformance/passed"
_LIMIT_WORDS = {
    "LimitTotal": "maximum number of evicted pods per a descheduling cycle reached",
    "LimitPerNode": "maximum number of evicted pods per node reached",
    "LimitPerNamespace": "maximum number of evicted pods per namespace reached",
}


def run(
    given: Any, expect: Any, defaults: Mapping[str, Any] | None = None, view: View | None = None
) -> tuple[Any, Any]:
    """(what our plan does, what is expected), in the words of the case. `defaults` are arguments that the plugin would
    set by itself: those of a case are complete. "refused" when the arguments are."""
    plugin = plugins.discover()[given["plugin"]]
    granted = list[str]()
    try:
        plan = planned(given, defaults, view, msgspec.structs.replace(plugin, judge=_noting(plugin.judge, granted)))
    except ConfigError:
        return "refused", expect
    evicted = granted if plugin.name == "RemoveDuplicates" else [outcome.pod.key for outcome in plan.evict]
    return _told(plan, evicted, expect), _wanted(expect)


def _noting(judge: Judge, granted: list[str]) -> Judge:
    """Keeps a note of each pod that the plugin names and that goes, also where it goes already.

    Upstream's RemoveDuplicates asks for a pod once per owner, and each time is counted. Here it goes once.
    """

    def noted(view: View, config: Any, handle: Handle) -> Conversation:
        conversation = judge(view, config, handle)
        verdict: Verdict | None = None
        while True:
            try:
                message = conversation.send(verdict)
            except StopIteration:
                return
            verdict = yield message
            if isinstance(message, Finding) and verdict and (verdict.evicted or verdict.reason == "GoesAlready"):
                granted.append(view.by_uid[message.pod].key)

    return noted


def planned(
    given: Any, defaults: Mapping[str, Any] | None = None, view: View | None = None, plugin: Plugin | None = None
) -> EvictionPlan:
    """The plan for the objects of a case, with the measurements that `view` has."""
    plugin = plugin or plugins.discover()[given["plugin"]]
    config = arguments({**(defaults or {}), **written(given.get("args"))}, plugin.config)
    anything = given.get("evictorFilter") == "always_true"
    evictor = EVERYTHING_GOES if anything else written(given.get("defaultEvictorArgs"))
    if given.get("preEvictionFilter", given.get("evictorPreEvictionFilter", True)) in (False, "always_false"):
        evictor = {**evictor, **NOTHING_PASSES_LATE}
    profile = Profile("test", ((plugin, config),), arguments(evictor, Args))
    bounds = given.get("evictor") or {}
    setup = Setup(
        profiles=(profile,),
        limits=Limits(
            total=bounds.get("maxPodsToEvictTotal"),
            per_node=bounds.get("maxPodsToEvictPerNode"),
            per_namespace=bounds.get("maxPodsToEvictPerNamespace"),
        ),
        node_selector=objects.LabelSelector(match_labels={_PASSED: ""}) if "passedNodes" in given else None,
        fit="snapshot",
    )
    seen = picture(_marked(given, anything))
    return planner.plan(msgspec.structs.replace(seen, usage=view.usage) if view else seen, setup)


def validated(name: str, given: Any, expect: Any) -> tuple[Any, Any]:
    """Does the strict reader accept the arguments of plugin `name`, as upstream's validation does?"""
    try:
        arguments(written(given.get("args")), plugins.discover()[name].config)
    except ConfigError:
        return False, expect["valid"]
    return True, expect["valid"]


def arguments(values: Any, shape: type[T]) -> T:
    """What the strict reader makes of the arguments; ConfigError when it refuses them."""
    return strict.load(json.dumps(values), shape, "args")


def _marked(given: Any, anything: bool) -> Any:
    passed = given.get("passedNodes")
    nodes, pods = given.get("nodes") or [], given.get("pods") or []
    if not (given.get("defaultEvictorArgs") or {}).get("nodeFit"):
        nodes = [_ready(node) for node in nodes]
    nodes = nodes if passed is None else [_labelled(node, passed) for node in nodes]
    pods = [_annotated(pod) for pod in pods] if anything else pods
    return {**given, "nodes": nodes, "pods": pods}


def _ready(node: Any) -> Any:
    """A plugin gets the nodes it is passed, ready or not; only the evictor's `nodeFit` picks ready ones."""
    return {**node, "status": {**(node.get("status") or {}), "conditions": []}}


def _labelled(node: Any, passed: list[str]) -> Any:
    meta = node["metadata"]
    if meta["name"] not in passed:
        return node
    return {**node, "metadata": {**meta, "labels": {**(meta.get("labels") or {}), _PASSED: ""}}}


def _annotated(pod: Any) -> Any:
    meta = pod["metadata"]
    return {**pod, "metadata": {**meta, "annotations": {**(meta.get("annotations") or {}), _EVICT: ""}}}


def _told(plan: EvictionPlan, evicted: list[str], expect: Any) -> dict[str, Any]:
    refusals = {outcome.reasons[0].reason for outcome in plan.kept}
    told = {
        "evicted_count": len(evicted),
        "evicted": sorted(evicted),
        "order": evicted,
        "eviction_errors": sorted(_LIMIT_WORDS[reason] for reason in refusals if reason in _LIMIT_WORDS),
        "not expected": sorted(set(evicted) - set(expect.get("evicted_subset_of", evicted))),
        "missing": sorted(set(expect.get("evicted_always", ())) - set(evicted)),
    }
    return {key: value for key, value in told.items() if key in expect or key in ("not expected", "missing")}


def _wanted(expect: Any) -> dict[str, Any]:
    wanted = {key: expect[key] for key in ("evicted_count", "evicted", "order") if key in expect}
    errors = {"eviction_errors": sorted(set(expect["eviction_errors"]))} if "eviction_errors" in expect else {}
    return {**wanted, **errors, "not expected": [], "missing": []}
