"""Eviction of pods (Kubernetes EvictionREST)."""

from __future__ import annotations

from collections.abc import Mapping

from apiserver import budgets, deletions, negotiation, pods, selectors, status
from apiserver.cluster import BUDGETS, Cluster, name_of
from apiserver.requests import Request, Target
from apiserver.resources import Resource
from apiserver.store import Object

_STALE_SECONDS = 10
_EVICTION = Resource("policy", ("v1", "v1beta1"), "evictions", "Eviction")
_UNGUARDED = frozenset({"Pending", "Succeeded", "Failed"})


def evict(cluster: Cluster, resource: Resource, at: Target, request: Request) -> Object:
    """Delete a pod if its disruption budget lets it go."""
    sent = _sent(request)
    if sent["metadata"].get("name") != at.name:
        raise status.bad_request("name in URL does not match name in Eviction object")
    # Of the query only dryRun counts here; whatever else a deletion may be asked stands in the body.
    how = deletions.options(sent.get("deleteOptions") or {}, {"dryRun": request.query.get("dryRun", "")})
    pod = cluster.require(resource, (at.namespace, at.name))
    if not _is_free(pod):
        budget = _budget(cluster, pod)
        if budget is not None and not _may_go_unready(pod, budget):
            _spend(cluster, budget, pod, dry=how.dry)
    deletions.delete(cluster, resource, name_of(pod), how)
    return status.created()


def _sent(request: Request) -> Object:
    sent = negotiation.decoded(request, _EVICTION)
    version = str(sent.get("apiVersion") or "policy/v1").removeprefix("policy/")
    known = version if version in _EVICTION.versions else "v1"
    return negotiation.checked_kind(sent, _EVICTION, known)


def _is_free(pod: Object) -> bool:
    """A pod that does no work, or is going anyway, costs no budget."""
    return bool(pod["metadata"].get("deletionTimestamp")) or pod["status"].get("phase") in _UNGUARDED


def _budget(cluster: Cluster, pod: Object) -> Object | None:
    """The budget of a pod; Refused 500 for two. One with an empty selector is not looked at."""
    labels: Mapping[str, str] = pod["metadata"].get("labels") or {}
    found = [
        each
        for each in cluster.store.listed(BUDGETS)
        if each["metadata"]["namespace"] == pod["metadata"]["namespace"]
        and labels
        and each["spec"].get("selector")
        and selectors.selects(each["spec"]["selector"], labels)
    ]
    if len(found) > 1:
        raise status.internal(
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        )
    return found[0] if found else None


def _may_go_unready(pod: Object, budget: Object) -> bool:
    """A pod that is not ready may go while enough others are."""
    counts = budget["status"]
    return not pods.is_ready(pod) and counts["currentHealthy"] >= counts["desiredHealthy"] > 0


def _spend(cluster: Cluster, budget: Object, pod: Object, *, dry: bool) -> None:
    name, counts = budget["metadata"]["name"], budget["status"]
    if counts.get("observedGeneration", 0) < budget["metadata"].get("generation", 1):
        message = f"The disruption budget {name} is still being processed by the server."
        raise status.too_many(message, _STALE_SECONDS)
    if counts["disruptionsAllowed"] <= 0:
        raise status.too_many(
            f"The disruption budget {name} needs {counts['desiredHealthy']} healthy pods "
            f"and has {counts['currentHealthy']} currently"
        )
    if dry:
        return
    allowed = counts["disruptionsAllowed"] - 1
    going = {**counts.get("disruptedPods", {}), pod["metadata"]["name"]: cluster.now()}
    spent = counts | {"disruptionsAllowed": allowed, "disruptedPods": going}
    spent["conditions"] = budgets.conditions(budget, allowed, cluster.now())
    cluster.store.write(BUDGETS, name_of(budget), budget | {"status": spent})
