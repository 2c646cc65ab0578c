"""Rules by which the plugins that even out nodes, and the fit, answer differently on purpose."""

from __future__ import annotations

from typing import Any


def included_namespaces(given: Any, wanted: Any, found: Any) -> bool:
    """Accepted where it is the only namespaces argument."""
    chosen = given["args"].get("evictableNamespaces") or {}
    return bool(chosen.get("include")) and not chosen.get("exclude") and found is True


def query_of_one_resource(given: Any, wanted: Any, found: Any) -> bool:
    args = given["args"]
    by_query = (args.get("metricsUtilization") or {}).get("source") == "Prometheus"
    return by_query and set(args["thresholds"]) != {"MetricResource"} and found is False


def tolerations_by_match(given: Any, wanted: Any, found: Any) -> bool:
    """Where taints or tolerations are in play, as many or more go: all that some node lets in."""
    tainted = any(node.get("spec", {}).get("taints") for node in given["nodes"])
    return tainted and _count(found) >= _count(wanted)


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


def condition_completed(given: Any, wanted: Any, found: Any) -> bool:
    """A condition that was given in part has the usual rest, and nothing else differs."""
    usual = {"timeout": "1m0s", "consecutiveAbnormalities": 5, "consecutiveNormalities": 3}
    own = given["args"].get("anomalyCondition") or {}
    expected = {**wanted["args"], "anomalyCondition": {**usual, **{k: v for k, v in own.items() if v not in (0, "0s")}}}
    return bool(found["args"] == expected)


def room_booked_when_it_goes(given: Any, wanted: Any, found: Any) -> bool:
    """Room is booked for pods that go, so as many or more go."""
    return given["args"].get("nodeFit") is not False and _count(found) >= _count(wanted)


def high_without_low(given: Any, wanted: Any, found: Any) -> bool:
    """Some pool has a high threshold without a low one, which counts here."""
    pools = given["args"].get("nodePools") or ()
    return isinstance(found, dict) and any(
        set(pool.get("highThresholds") or ()) - set(pool.get("lowThresholds") or ()) for pool in pools
    )


def same_named_rival(given: Any, wanted: Any, found: Any) -> bool:
    """A pod of the candidate's name is another pod, and its labels are what counts."""
    pod = given["pod"]["metadata"]
    names = [(p["metadata"].get("namespace"), p["metadata"].get("name")) for p in given["podsOnNode"]]
    refused = "anti-affinity" in (found["error"] or "")
    return refused and names.count((pod.get("namespace"), pod.get("name"))) > 0


def rival_of_the_candidate(given: Any, wanted: Any, found: Any) -> bool:
    """A pod that is there has a term against the candidate."""
    pods = given.get("podsOnNode") or given.get("podsOnNodes") or ()
    terms = [pod for pod in pods if ((pod["spec"].get("affinity") or {}).get("podAntiAffinity"))]
    return bool(terms) and not found["fits"] and bool(wanted["fits"])


def _count(result: Any) -> int:
    """How many go; none when the arguments are refused."""
    if not isinstance(result, dict):
        return -1
    return int(result.get("evicted_count", len(result.get("evicted", ()))))
