"""Rules by which the plugins that even out nodes, and the fit, answer differently on purpose."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from koordlite.model import duration


def included_namespaces(given: Any, wanted: Any, found: Any) -> bool:
    """Accepted where it is the only namespaces argument."""
    chosen = (given["args"] or {}).get("evictableNamespaces") or {}
    return bool(chosen.get("include")) and not chosen.get("exclude") and found is True


def query_of_one_resource(given: Any, wanted: Any, found: Any) -> bool:
    args = given["args"]
    by_query = (args.get("metricsUtilization") or {}).get("source") == "Prometheus"
    return by_query and set(args.get("thresholds") or ()) != {"MetricResource"} and found is False


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


_DURATIONS = ("timeout", "detectorCacheTimeout")


def compact(value: Any, name: str = "") -> Any:
    """Without what is zero, which Go may leave out; durations in seconds."""
    if name in _DURATIONS and isinstance(value, str):
        return duration.seconds(value)
    if isinstance(value, Mapping):
        inner = {key: compact(one, key) for key, one in value.items()}
        return {key: one for key, one in inner.items() if one or (one is False and key == "nodeFit")}
    return [compact(one) for one in value] if isinstance(value, list) else value


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


def refused_by_validation(given: Any, wanted: Any, found: Any) -> bool:
    """Arguments that Koordinator's validation refuses as well, after it has filled in the defaults."""
    args = given["args"]

    def above(lower: str, upper: str) -> bool:
        least, most = args.get(lower) or {}, args.get(upper) or {}
        return any(least[name] > most[name] for name in least.keys() & most.keys())

    crossed = above("lowThresholds", "highThresholds") or above("prodHighThresholds", "highThresholds")
    crossed = crossed or above("prodLowThresholds", "prodHighThresholds")
    return found == "refused" and (crossed or args.get("nodeMetricExpirationSeconds") == 0)


def pool_without_selector(given: Any, wanted: Any, found: Any) -> bool:
    """A pool behind others has no selector: here it is for the nodes that are in none of them."""
    later = (given["args"].get("nodePools") or ())[1:]
    return any(not pool.get("nodeSelector") for pool in later)


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
    """A pod of the candidate's name, in whatever namespace, is another pod, and its labels are what counts."""
    pods = given.get("podsOnNode") or given.get("podsOnNodes") or ()
    names = [pod["metadata"].get("name") for pod in pods if pod != given["pod"]]
    refused = "anti-affinity" in (found.get("error") or "anti-affinity") and not found["fits"]
    return _has_terms(given["pod"]) and refused and given["pod"]["metadata"].get("name") in names


def rival_of_the_candidate(given: Any, wanted: Any, found: Any) -> bool:
    """A pod that is there has a term against the candidate, or one in the domain, on another node, is in its way."""
    pods = given.get("podsOnNode") or given.get("podsOnNodes") or ()
    domain = "nodes" in given and _has_terms(given["pod"])
    return (domain or any(map(_has_terms, pods))) and not found["fits"] and bool(wanted["fits"])


def spread_of_the_candidate(given: Any, wanted: Any, found: Any) -> bool:
    """The candidate has to be spread, and would lie no better there."""
    return _refused_only_here(wanted, found) and bool(_spec(given["pod"]).get("topologySpreadConstraints"))


def ports_or_volumes(given: Any, wanted: Any, found: Any) -> bool:
    """The candidate has host ports, volumes or a required pod affinity."""
    spec = _spec(given["pod"])
    ports = [port for one in spec.get("containers") or () for port in one.get("ports") or () if port.get("hostPort")]
    company = (spec.get("affinity") or {}).get("podAffinity")
    return _refused_only_here(wanted, found) and bool(ports or spec.get("volumes") or company)


def _refused_only_here(wanted: Any, found: Any) -> bool:
    """It fits for upstream and not for us, in a case of the fit or of the evictor's last filter."""
    theirs, ours = (side["fits"] if isinstance(side, dict) else side for side in (wanted, found))
    return theirs is True and ours is False


def _spec(pod: Any) -> Any:
    return pod.get("spec") or {}


def _has_terms(pod: Any) -> bool:
    return bool((_spec(pod).get("affinity") or {}).get("podAntiAffinity"))


def _count(result: Any) -> int:
    """How many go; none when the arguments are refused."""
    if not isinstance(result, dict):
        return -1
    return int(result.get("evicted_count", len(result.get("evicted", ()))))
