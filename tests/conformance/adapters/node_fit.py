"""Whether a pod fits on a node or on any of several; order of pods, tolerations and preferences."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from descheduler.fit.search import FitSearch
from descheduler.framework import PodView, View
from descheduler.picture import node_index
from descheduler.picture.pods import least_important_first
from koordlite.model.wire import objects
from tests.conformance.adapters import adapter
from tests.conformance.descheduler_view import picture

CANDIDATE = "the candidate"
_TAINTS = "pod does not tolerate taints on the node"
"""What upstream says where we name the taint."""


@adapter("nodeFit")
def node_fit(given: Any, expect: Any) -> tuple[Any, Any]:
    view = _picture([given["node"]], given.get("podsOnNode") or [], given["pod"])
    refusal = FitSearch(view).refusal(_candidate(view), next(iter(view.nodes)))
    text = _TAINTS if refusal.startswith("pod does not tolerate") else refusal or None
    return {"error": text, "fits": not refusal}, {"error": expect.get("error"), "fits": expect["fits"]}


@adapter("podFitsNodes", "koordNodeFit")
def pod_fits_nodes(given: Any, expect: Any) -> tuple[Any, Any]:
    """`excludeCurrentNode`, or a function of that name: the pod's own node is not asked."""
    view = _picture(given.get("nodes") or [], given.get("podsOnNodes") or [], given["pod"])
    pod = _candidate(view)
    elsewhere = given.get("excludeCurrentNode", given.get("fn") == "PodFitsAnyOtherNode")
    names = [name for name in view.nodes if not (elsewhere and name == pod.node)]
    return {"fits": FitSearch(view).fits_on(pod, names)}, expect


def _picture(nodes: list[Any], pods: list[Any], candidate: Any) -> View:
    """The candidate once: among the pods of the nodes when it is one of them, else where it says it is. Another pod of
    its name gets a name of its own, since a cluster has each name once."""
    meta = {**(candidate.get("metadata") or {}), "uid": CANDIDATE}
    others = [_renamed(pod) if _namesake(pod, candidate) else pod for pod in pods if pod != candidate]
    return picture({"nodes": list(map(_ready, nodes)), "pods": [*others, {**candidate, "metadata": meta}]})


def _ready(node: Any) -> Any:
    """Who asks has chosen the nodes, and does not choose others than ready ones."""
    return {**node, "status": {**(node.get("status") or {}), "conditions": []}}


def _namesake(pod: Any, candidate: Any) -> bool:
    one, other = pod.get("metadata") or {}, candidate.get("metadata") or {}
    return (one.get("namespace"), one.get("name")) == (other.get("namespace"), other.get("name"))


def _renamed(pod: Any) -> Any:
    return {**pod, "metadata": {**pod["metadata"], "name": f"another {pod['metadata'].get('name')}"}}


def _candidate(view: View) -> PodView:
    bound = (pod for node in view.nodes.values() for pod in node.all_pods)
    return next(pod for pod in (*bound, *view.unbound) if pod.uid == CANDIDATE)


@adapter("sortPodsLowToHigh")
def ordered(given: Any, expect: Any) -> tuple[Any, Any]:
    view = picture({"nodes": [{"metadata": {"name": "n"}}], "pods": [_pod(pod) for pod in given["pods"]]})
    by_name = {pod.pod.name: pod for pod in view.pods()}
    listed = [by_name[_name(pod)] for pod in given["pods"]]
    found = sorted(listed, key=least_important_first)
    wanted = [by_name[name] for name in expect["order"] if name in by_name]
    # Equal pods may stand in any order: what is compared is how important each place is.
    return [least_important_first(p) for p in found], [least_important_first(p) for p in wanted]


@adapter("preferredNodeAffinityWeight")
def weighed(given: Any, expect: Any) -> tuple[Any, Any]:
    view = picture({"nodes": [{"metadata": {"name": "n", "labels": given.get("nodeLabels") or {}}}]})
    affinity = msgspec.json.decode(json.dumps(given.get("affinity") or {}), type=objects.Affinity).node_affinity
    preferred = (affinity.preferred if affinity else None) or ()
    return node_index.weight(preferred, view.nodes["n"]), expect["weight"]


@adapter("tolerationsEqual")
def alike(given: Any, expect: Any) -> tuple[Any, Any]:
    """Equal lists let a pod on the same nodes; every toleration of either list has nodes here that ask for it, and
    nodes that ask for its key with another value, and for another key."""
    listed = [*(given.get("left") or ()), *(given.get("right") or ())]
    asked = [{"key": "another", "value": ""}]
    for toleration in listed:
        key = toleration.get("key") or "another"
        asked += [{"key": key, "value": toleration.get("value") or ""}, {"key": key, "value": "another"}]
    taints = [{**taint, "effect": effect} for taint in asked for effect in ("NoSchedule", "NoExecute")]
    nodes = [{"metadata": {"name": f"n{i}"}, "spec": {"taints": [taint]}} for i, taint in enumerate(taints)]
    index = node_index.NodeIndex(picture({"nodes": nodes}).nodes.values())
    written = (json.dumps(given.get(side) or []) for side in ("left", "right"))
    sides = (msgspec.json.decode(text, type=tuple[objects.Toleration, ...]) for text in written)
    left, right = (set(index.allowed_by_taints(side)) for side in sides)
    return left == right, expect["equal"]


def _name(given: Any) -> str:
    return given["name"] or "nameless"


def _pod(given: Any) -> Any:
    notes = {"descheduler.alpha.kubernetes.io/prefer-no-eviction": ""} if given.get("preferNoEviction") else {}
    meta = {"namespace": "default", "name": _name(given), "uid": _name(given), "annotations": notes}
    spec = {"nodeName": "n", "priority": given.get("priority")}
    return {"metadata": meta, "spec": spec, "status": {"phase": "Running", "qosClass": given.get("qosClass") or ""}}
