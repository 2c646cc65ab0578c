"""LowNodeLoad: whole runs, arguments that are refused, defaults, the order of pods, how long a node is watched."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from descheduler import plugins
from descheduler.framework import View
from descheduler.metrics_sources import gather
from descheduler.picture import pods
from descheduler.utilization import levels
from descheduler.utilization.load import overuse_text
from descheduler.utilization.load_args import NEW, AnomalyCondition, Config, Debounce, Pool, mark
from koordlite.model import times
from koordlite.model.errors import ConfigError
from koordlite.model.reading import strict
from koordlite.model.wire import metrics
from tests.conformance import descheduler_cases, descheduler_rules
from tests.conformance.adapters import NotCovered, adapter, shapes
from tests.conformance.descheduler_view import NOW, picture, written

_COMPLETE: dict[str, Any] = {"resourceWeights": {}, "anomalyCondition": {"consecutiveAbnormalities": 1}}
ANY_AGE = {"nodeMetricExpirationSeconds": None}


@adapter("run LowNodeLoad")
def run(given: Any, expect: Any) -> tuple[Any, Any]:
    """The arguments are complete: a pool that names no weights has none, and one without a condition does not wait."""
    pools = [{**_COMPLETE, **written(pool)} for pool in given["args"].get("nodePools") or ()]
    given = {**given, "args": {**given["args"], "nodePools": pools}}
    return descheduler_cases.run(given, expect, ANY_AGE, view=measured(given))


def measured(given: Any) -> View:
    """The picture with the NodeMetrics of the case."""
    now = times.parse(given.get("now") or NOW)
    objects = [msgspec.convert(obj, metrics.NodeMetricObject, strict=False) for obj in given.get("nodeMetrics") or ()]
    return msgspec.structs.replace(picture(given), usage={gather.NODE_METRIC: gather.of_node_metrics(objects, now, [])})


@adapter("ValidateLowLoadUtilizationArgs")
def validate(given: Any, expect: Any) -> tuple[Any, Any]:
    return descheduler_cases.validated("LowNodeLoad", given, expect)


@adapter("defaults")
def defaults(given: Any, expect: Any) -> tuple[Any, Any]:
    if given["type"] != "LowNodeLoadArgs":
        raise NotCovered
    args = _without_zero_counts(written(given.get("args")))
    try:
        config = strict.load(json.dumps(args), plugins.discover()["LowNodeLoad"].config, "args")
    except ConfigError:
        return "refused", expect
    assert isinstance(config, Config)
    own = {name: value for name, value in args.items() if name not in ("nodePools", "anomalyCondition")}
    listed = zip(config.node_pools, args.get("nodePools") or (), strict=True)
    top = config.whole
    found = {
        **own,
        "nodeMetricExpirationSeconds": config.node_metric_expiration_seconds,
        "nodeFit": config.node_fit,
        "resourceWeights": top.resource_weights,
        "anomalyCondition": _condition(top.anomaly_condition),
        "detectorCacheTimeout": config.detector_cache_timeout,
        "nodePools": [{**_pool(config.complete(pool)), **_kept(text)} for pool, text in listed],
    }
    return {"args": descheduler_rules.compact(found)}, {"args": descheduler_rules.compact(expect["args"])}


def _without_zero_counts(args: Any) -> Any:
    """A count of 0 is one that was not given."""
    holders = [args, *(args.get("nodePools") or ())]
    for holder in holders:
        condition = holder.get("anomalyCondition")
        if condition is not None:
            holder["anomalyCondition"] = {k: v for k, v in condition.items() if v != 0}
    return args


def _kept(text: Any) -> dict[str, Any]:
    """What a pool says of itself, as it is written."""
    return {name: text[name] for name in ("name", "nodeSelector", "useDeviationThresholds") if name in text}


def _pool(pool: Pool) -> dict[str, Any]:
    names = ("high_thresholds", "low_thresholds", "prod_high_thresholds", "prod_low_thresholds", "resource_weights")
    own = {strict.camel(name): dict(getattr(pool, name)) for name in names}
    return {**own, "anomalyCondition": _condition(pool.anomaly_condition)}


def _condition(condition: AnomalyCondition) -> dict[str, Any]:
    return {
        "timeout": condition.timeout,
        "consecutiveAbnormalities": condition.consecutive_abnormalities,
        "consecutiveNormalities": condition.consecutive_normalities,
    }


@adapter("sortPodsByUsage")
def sorted_by_usage(given: Any, expect: Any) -> tuple[Any, Any]:
    excess = pods.units(shapes.quantities(given["resourcesThatExceedThresholds"]))
    used = {
        key: pods.units(shapes.quantities(metric["resources"]))
        for key, metric in (given["podMetrics"] or {}).items()
        if metric and metric.get("resources") is not None
    }

    def score(pod: Any) -> float | None:
        return levels.relief(used[pod.key], excess, given["weights"]) if pod.key in used else None

    by_key = {pod.key: pod for pod in picture({"nodes": [], "pods": given["pods"]}).unbound}
    key = levels.sort_key(score)
    wanted = list(expect["order"])
    if set(wanted) == set(by_key) and wanted == sorted(wanted, key=lambda name: key(by_key[name])[:-1]):
        # Their sort is not stable: pods that no key tells apart come in any order.
        wanted.sort(key=lambda name: key(by_key[name]))
    return {"order": sorted(by_key, key=lambda name: key(by_key[name]))}, {"order": wanted}


@adapter("anomalyDetector")
def watched(given: Any, expect: Any) -> tuple[Any, Any]:
    """Each node is sighted as often as the case says, then once more: which of them count as too full?"""
    before = given["preMarkedAbnormal"]
    debounce = Debounce.of(
        AnomalyCondition(
            consecutive_abnormalities=given["consecutiveAbnormalities"],
            consecutive_normalities=given["consecutiveNormalities"],
        )
    )
    found = []
    for node in given["sourceNodes"]:
        times_before = before["times"] * (node in (before["nodes"] or ())) + given["extraDetectionsOnAll"]
        watch = NEW
        for _ in range(times_before + 1):
            watch = mark(watch, normal=False, now=0.0, debounce=debounce)
        found.append((node, watch.anomalous))
    return {
        "abnormalOnNextCall": [node for node, anomalous in found if anomalous or debounce.abnormalities == 1]
    }, expect


@adapter("evictionReason")
def reason(given: Any, expect: Any) -> tuple[Any, Any]:
    held = pods.units(shapes.quantities(given["allocatable"]))
    used = pods.units(shapes.quantities(given["usage"]))
    limit = {name: int(percent * 0.01 * held.get(name, 0)) for name, percent in given["highThresholds"].items()}
    return {"reason": overuse_text(used, limit, held, prod=given["prod"])}, expect
