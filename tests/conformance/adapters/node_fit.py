"""Would a pod fit on a node, or on any of several."""

from __future__ import annotations

from typing import Any

from descheduler.fit import Rooms
from descheduler.framework import PodView, View
from tests.conformance.adapters import adapter
from tests.conformance.descheduler_view import picture

CANDIDATE = "the candidate"


@adapter("nodeFit")
def node_fit(given: Any, expect: Any) -> tuple[Any, Any]:
    view = _picture([given["node"]], given["podsOnNode"], given["pod"])
    refusal = Rooms(view).refusal(_candidate(view), given["node"]["metadata"]["name"])
    return {"error": refusal or None, "fits": not refusal}, expect


@adapter("podFitsNodes", "koordNodeFit")
def pod_fits_nodes(given: Any, expect: Any) -> tuple[Any, Any]:
    """`excludeCurrentNode`, or a function of that name: the pod's own node is not asked."""
    view = _picture(given["nodes"], given["podsOnNodes"], given["pod"])
    pod = _candidate(view)
    elsewhere = given.get("excludeCurrentNode", given.get("fn") == "PodFitsAnyOtherNode")
    names = [name for name in view.nodes if not (elsewhere and name == pod.node)]
    return {"fits": Rooms(view).fits_on(pod, names)}, expect


def _picture(nodes: list[Any], pods: list[Any], candidate: Any) -> View:
    """The candidate once: among the pods of the nodes when it is one of them, else where it says it is. Another pod of
    its name gets a name of its own, since a cluster has each name once."""
    meta = {**(candidate.get("metadata") or {}), "uid": CANDIDATE}
    others = [_renamed(pod) if _namesake(pod, candidate) else pod for pod in pods if pod != candidate]
    return picture({"nodes": nodes, "pods": [*others, {**candidate, "metadata": meta}]})


def _namesake(pod: Any, candidate: Any) -> bool:
    one, other = pod.get("metadata") or {}, candidate.get("metadata") or {}
    return (one.get("namespace"), one.get("name")) == (other.get("namespace"), other.get("name"))


def _renamed(pod: Any) -> Any:
    return {**pod, "metadata": {**pod["metadata"], "name": f"another {pod['metadata'].get('name')}"}}


def _candidate(view: View) -> PodView:
    return next(pod for pod in (*view.pods(), *view.unbound) if pod.uid == CANDIDATE)
