"""Rules that several plugins share: order of pods, tolerations, weights of preferences, and Koordinator's node fit."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from descheduler.fit.search import FitSearch
from descheduler.picture import node_index
from descheduler.picture.pods import least_important_first
from koordlite.model.wire import objects
from tests.conformance.adapters import adapter
from tests.conformance.descheduler_view import picture


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


@adapter("koordNodeFit")
def fitting(given: Any, expect: Any) -> tuple[Any, Any]:
    meta = {"name": "nameless", **given["pod"]["metadata"]}
    others = [p for p in given.get("podsOnNodes") or () if p != given["pod"]]
    view = picture({**given, "pods": [{**given["pod"], "metadata": meta}, *others]})
    pod = next(p for p in (*view.unbound, *view.pods()) if p.pod.name == meta["name"])
    if given["fn"] == "PodFitsAnyOtherNode":
        return FitSearch(view).fits(pod), expect["fits"]
    return FitSearch(view).fits_on(pod, set(view.nodes)), expect["fits"]


def _name(given: Any) -> str:
    return given["name"] or "nameless"


def _pod(given: Any) -> Any:
    notes = {"descheduler.alpha.kubernetes.io/prefer-no-eviction": ""} if given.get("preferNoEviction") else {}
    meta = {"namespace": "default", "name": _name(given), "uid": _name(given), "annotations": notes}
    spec = {"nodeName": "n", "priority": given.get("priority")}
    return {"metadata": meta, "spec": spec, "status": {"phase": "Running", "qosClass": given.get("qosClass") or ""}}
