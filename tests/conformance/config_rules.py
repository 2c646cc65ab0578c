"""Rules that explain differences about the ConfigMap and a node's own words: each asserts what ours says instead."""

from __future__ import annotations

import json
import math
from typing import Any

from koordlite.model import keys
from tests.conformance.adapters import slo
from tests.conformance.deviations import deviation

RANGES = {
    "Percent": (0, 100),
    "cpuBurstPercent": (1, 10000),
    "cfsQuotaBurstPercent": (100, math.inf),
    "cfsQuotaBurstPeriodSeconds": (-1, math.inf),
    "cpuEvictTimeWindowSeconds": (1, math.inf),
    "minFreeKbytesFactor": (1, math.inf),
    "watermarkScaleFactor": (1, 400),
    "memcgReapBackGround": (0, 1),
    "pageCacheLimitEnabled": (0, 1),
    "groupIdentity": (-1, 2),
    "schedIdle": (0, 1),
    "wmarkRatio": (0, 100),
    "wmarkScalePermill": (1, 1000),
    "wmarkMinAdj": (-25, 50),
    "priorityEnable": (0, 1),
    "priority": (0, 12),
    "oomKillGroup": (0, 1),
    "allocatableEvictPriorityThreshold": (0, 7999),
}
"""What the webhook takes, by setting; `Percent` stands for all that end so. Source: Koordinator's validator tags."""


@deviation(
    "colocation-enable: a group of nodes or a node may switch on what the cluster has off", "isColocationCfgDisabled"
)
def enabled_below_the_cluster(given: Any, wanted: Any, found: Any) -> bool:
    """A group or the node has on what the cluster has off."""
    return given["config"].get("enable") is not True and wanted is True


@deviation(
    "config-ratio-labels: a label that is no finite ratio is ignored and told",
    "UpdateColocationStrategyForNode",
    "GetNodeColocationStrategy",
)
def ratio_beyond_numbers(given: Any, wanted: Any, found: Any) -> bool:
    """The node without labels that are no finite ratio."""
    labels = given["node"]["metadata"].get("labels") or {}
    good = {name: text for name, text in labels.items() if not (name.endswith("-ratio") and _is_beyond_numbers(text))}
    return good != labels and found == _held(given, found, labels=good)


@deviation(
    "config-node-annotation: a strategy on the node with a value out of range is ignored and told",
    "UpdateColocationStrategyForNode",
    "GetNodeColocationStrategy",
)
def annotation_beyond_ranges(given: Any, wanted: Any, found: Any) -> bool:
    """The node without its colocation strategy."""
    notes = given["node"]["metadata"].get("annotations") or {}
    others = {name: text for name, text in notes.items() if name != keys.COLOCATION_STRATEGY}
    return others != notes and found == _held(given, found, annotations=others)


@deviation("config-bandwidth-inherited: a group that does not name the bandwidth has the cluster's", "mergeSLOCfg")
def bandwidth_inherited(given: Any, wanted: Any, found: Any) -> bool:
    """Groups without a bandwidth have the cluster's, and nothing else differs."""
    name = ("totalNetworkBandwidth",)
    cluster, *groups = wanted["strategies"]
    if given["kind"] != "system":
        return False
    inherited = [{**group, name: cluster[name]} if not group[name].nano else group for group in groups]
    return bool(found == {**wanted, "strategies": [cluster, *inherited]})


@deviation(
    "config-lists: a list takes the place of the cluster's, element by element nothing is inherited", "mergeSLOCfg"
)
def lists_replaced(given: Any, wanted: Any, found: Any) -> bool:
    """Lists are those that were written, and nothing else differs."""
    if given["kind"] != "qos":
        return False
    written = slo.layers("resource-qos-config", json.loads(given["data"]["resource-qos-config"]))
    lists = [{path: value for path, value in layer.items() if path[-1] == "blocks"} for layer in written]
    ours = [{**theirs, **mine} for theirs, mine in zip(wanted["strategies"], lists, strict=True)]
    return bool(found == {**wanted, "strategies": ours})


@deviation(
    "config-ranges: a value out of range refuses the document of the cluster, or the entry of a group", "mergeSLOCfg"
)
def beyond_ranges(given: Any, wanted: Any, found: Any) -> bool:
    """A value out of range refuses the document; in a group, its nodes have the cluster's strategy."""
    cluster, *groups = wanted["strategies"]
    if wanted["error"] or not any(map(_is_beyond_ranges, wanted["strategies"])):
        return False
    if _is_beyond_ranges(cluster):
        return bool(found["error"])
    ours = [cluster if _is_beyond_ranges(group) else group for group in groups]
    return bool(found == {**wanted, "strategies": [cluster, *ours]})


@deviation(
    "config-ranges: an annotation with a value out of range changes nothing",
    "cpu_burst.merge_config",
    "cgroup_reconcile.merged_pod_qos",
)
def pod_annotation_beyond_ranges(given: Any, wanted: Any, found: Any) -> bool:
    """Ours are the settings of the node or of the class."""
    burst = "nodeConfig" in given
    notes = given["podAnnotation"] if burst else given["pod"]["metadata"]["annotations"]
    members = json.loads(notes["koordinator.sh/cpuBurst" if burst else "koordinator.sh/memoryQOS"])
    (ours,) = found.values()
    without = given["nodeConfig"] if burst else given["nodeClassMemoryQOS"]
    held = all(value == without[name] for name, value in ours.items() if without.get(name) is not None)
    return held and _is_beyond_ranges({(name,): value for name, value in members.items()})


def _is_beyond_ranges(strategy: Any) -> bool:
    return any(not low <= value <= high for value, (low, high) in map(_with_range, strategy.items()))


def _with_range(setting: tuple[Any, Any]) -> tuple[Any, tuple[float, float]]:
    (*_, name), value = setting
    usual = RANGES["Percent"] if name.endswith("Percent") and "Allocatable" not in name else (-math.inf, math.inf)
    return (value, RANGES.get(name, usual)) if isinstance(value, int | float) else (0, (-math.inf, math.inf))


def _is_beyond_numbers(text: str) -> bool:
    try:
        return not math.isfinite(float(text)) or float(text) > 1e6
    except ValueError:
        return False


def _held(given: Any, found: Any, **of_the_node: Any) -> Any:
    """What holds on the node when it says this."""
    node = {**given["node"], "metadata": {**given["node"]["metadata"], **of_the_node}}
    held = slo.colocation_values(given.get("cfg", given.get("strategy")), node)
    return {path: held.get(path) for path in found}
