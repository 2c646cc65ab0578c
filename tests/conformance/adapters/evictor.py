"""DefaultEvictor and Koordinator's EvictorFilter: pods that may go, arguments that are refused; limits, evictions."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from typing import Any

import msgspec

from descheduler.arguments.evictor import Args
from descheduler.arguments.migration import MigrationControllerArgs
from descheduler.evictors import eviction_api
from descheduler.filters import limits
from descheduler.filters.limits import Budget, Limits
from descheduler.framework import Finding, PodView, Refusal, View
from descheduler.plan import EvictionPlan, Outcome, Profile
from descheduler.serve import events
from koordlite.kube.client.answers import Answer, ApiError
from koordlite.kube.publish.events import Event
from koordlite.model.errors import ConfigError
from koordlite.model.reading import strict
from tests.conformance import descheduler_cases
from tests.conformance.adapters import adapter
from tests.conformance.descheduler_view import picture, written
from tests.support.handles import handle


@adapter("filter")
def default_filter(given: Any, expect: Any) -> tuple[Any, Any]:
    view, pod = _asked(given)
    return handle(view, _args(given.get("defaultEvictorArgs"))).evictable(pod), expect["result"]


@adapter("preEvictionFilter")
def default_last_filter(given: Any, expect: Any) -> tuple[Any, Any]:
    view, pod = _asked(given)
    return handle(view, _args(given.get("defaultEvictorArgs"))).movable(pod), expect["result"]


@adapter("koordEvictorFilter")
def koordinator_filter(given: Any, expect: Any) -> tuple[Any, Any]:
    view, pod = _asked(given)
    options = dict(given["opts"])
    if "priority" in options:
        options["priorityThreshold"] = {"value": options.pop("priority")}
    rules = strict.load(json.dumps(options), MigrationControllerArgs, "opts").evictor_args()
    asked = handle(view, rules)
    # Koordinator's filter asks for the node as well, when it is told to.
    return asked.evictable(pod) and (not rules.node_fit or asked.movable(pod)), expect["result"]


@adapter("ValidateDefaultEvictorArgs")
def validated(given: Any, expect: Any) -> tuple[Any, Any]:
    try:
        _args(given.get("args"))
    except ConfigError:
        return False, expect["valid"]
    return True, expect["valid"]


def _args(effective: Any) -> Args:
    return descheduler_cases.arguments(written(effective), Args)


def _asked(given: Any) -> tuple[View, PodView]:
    """The picture, with the pod in question in it."""
    meta = given["pod"]["metadata"]
    name, namespace = meta.get("name", ""), meta.get("namespace", "")
    others = [p for p in given.get("pods") or () if _place(p) != (namespace, name)]
    view = picture({**given, "pods": [*others, given["pod"]]})
    pods = (*view.unbound, *(pod for node in view.nodes.values() for pod in node.all_pods))
    return view, next(pod for pod in pods if (pod.pod.namespace, pod.pod.name) == (namespace, name))


def _place(pod: Any) -> tuple[str, str]:
    return pod["metadata"].get("namespace", ""), pod["metadata"].get("name", "")


_ERRORS = {
    limits.TOTAL: ("TotalLimit", "maximum number of evicted pods per a descheduling cycle reached"),
    limits.PER_NODE: ("NodeLimit", "maximum number of evicted pods per node reached"),
    limits.PER_NAMESPACE: ("NamespaceLimit", "maximum number of evicted pods per namespace reached"),
}


@adapter("limiter")
def limited(given: Any, expect: Any) -> tuple[Any, Any]:
    view = _view(given["sequence"])
    budget = Budget(_limits(given), view)
    allowed, nodes, namespaces = [], Counter[str](), Counter[str]()
    for pod in _in_order(view, given["sequence"]):
        allowed.append(not budget.refusal(pod)[0])
        if allowed[-1]:
            budget.take(pod)
            nodes[pod.node] += 1
            namespaces[pod.pod.namespace] += 1
    by_node, by_namespace = expect.get("nodeCount") or {}, expect.get("namespaceCount") or {}
    counts = ({n: nodes[n] for n in by_node}, {n: namespaces[n] for n in by_namespace})
    wanted = (expect["allowed"], by_node, by_namespace, expect.get("total", sum(expect["allowed"])))
    return (allowed, *counts, sum(allowed)), wanted


@adapter("evictPod")
def evicted(given: Any, expect: Any) -> tuple[Any, Any]:
    view = _view([given["pod"]])
    (pod,) = _in_order(view, [given["pod"]])
    finding = Finding(pod=pod.uid, reason="X", plugin="NotSet")
    outcome = Outcome(pod, (finding,), "evict", Profile("p", (), Args()).name)
    failure_events = bool(given.get("evictionFailureEventNotification"))
    reason, text = Budget(_limits(given), view).refusal(pod)
    if reason:
        kept = msgspec.structs.replace(outcome, verdict="kept", reasons=(Refusal(reason, text),))
        told = events.of_limit(kept, _limits(given)) if failure_events else None
        return _result(_ERRORS[reason], told, 0), _wanted(expect)
    plan = EvictionPlan(view=view, evict=(outcome,), kept=(), notes=(), nodes=())
    server = _Server(given.get("apiError"))
    (attempt,) = (
        eviction_api.prepare(plan) if given.get("dryRun") else eviction_api.evict(plan, server, lambda _seconds: False)
    )
    told = events.of_attempt(outcome, attempt, failure_events=failure_events)
    went = attempt.goes or attempt.result == "WouldEvict"
    error = (None, None) if went else ("API", attempt.text)
    return _result(error, told, int(went)), _wanted(expect)


@dataclasses.dataclass(frozen=True)
class _Server:
    """Answers evictions with this error, or with success."""

    error: str | None

    def request(self, method: str, path: str, *, body: object = None) -> Answer:
        if (method, path) == ("GET", "/api/v1"):  # Which version of Eviction the server speaks.
            return Answer(200, {}, b"{}")
        assert (method, path.rpartition("/")[2], bool(body)) == ("POST", "eviction", True)
        if self.error:
            raise ApiError(500, "InternalError", self.error)
        return Answer(201, {}, b"{}")


def _result(error: Any, told: Event | None, count: int) -> Any:
    listed = [{"type": told.type, "reason": told.reason, "note": told.note}] if told else []
    return {"error": error, "events": listed, "count": (count, count)}


def _wanted(expect: Any) -> Any:
    return {
        "error": (expect.get("errorType"), expect.get("error")),
        "events": expect.get("events") or [],
        "count": (expect["nodeEvictions"], expect["totalEvictions"]),
    }


def _limits(given: Any) -> Limits:
    most = given.get("limits") or {}
    return Limits(
        total=most.get("total"),
        per_node=most.get("node"),
        per_namespace=most.get("namespace"),
        total_first=given["order"][0] == "total",
    )


def _view(pods: Any) -> View:
    nodes = [{"metadata": {"name": name}} for name in {pod.get("nodeName") for pod in pods} if name]
    return picture({"nodes": nodes, "pods": [_pod(pod) for pod in pods]})


def _key(given: Any) -> tuple[str, str]:
    return given.get("namespace") or "default", given.get("name") or "nameless"


def _pod(given: Any) -> Any:
    namespace, name = _key(given)
    meta = {"namespace": namespace, "name": name, "uid": f"uid-{name}"}
    return {"metadata": meta, "spec": {"nodeName": given.get("nodeName") or ""}, "status": {"phase": "Running"}}


def _in_order(view: View, listed: Any) -> list[PodView]:
    by_name = {(pod.pod.namespace, pod.pod.name): pod for pod in (*view.pods(), *view.unbound)}
    return [by_name[_key(pod)] for pod in listed]
