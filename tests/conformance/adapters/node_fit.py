"""Would a pod fit on a node, or on any of several."""

from __future__ import annotations

from typing import Any

from descheduler.fit.search import FitSearch
from descheduler.framework import PodView, View
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
