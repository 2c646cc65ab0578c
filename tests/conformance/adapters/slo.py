"""ConfigMap and node metadata → what holds on a node."""

from __future__ import annotations

import json
from typing import Any

from koordlite.model.reading import declared
from koordlite.model.reading import declared as documents
from koordlite.model.reading.declared import JSONDocument, Values
from koordlite.model.slo import config, settings
from koordlite.model.slo.config import Reading, Section
from koordlite.model.slo.settings import SLO, Colocation, GoodDocument
from tests.conformance.adapters import NotCovered, adapter, shapes

SECTIONS = {section.key: section for section in config.SECTIONS}
COLOCATION, HOST = "colocation-config", "host-application-config"
KINDS = {
    "threshold": "resource-threshold-config",
    "qos": "resource-qos-config",
    "burst": "cpu-burst-config",
    "system": "system-config",
}


def colocation(strategy: Any, node: Any = None) -> Colocation:
    """The strategy in force when the ConfigMap says `strategy`."""
    return _effective({COLOCATION: json.dumps(strategy or {})}, node).colocation


def colocation_values(strategy: Any, node: Any = None) -> Values:
    """That strategy as settings, defaults included."""
    return _written(SECTIONS[COLOCATION], declared.plain(colocation(strategy, node)))


def layers(key: str, document: Any) -> list[Values]:
    """The settings that a document of `key` writes: the cluster's, then each group's."""
    return _layers(SECTIONS[key], document)


@adapter("GetNodeColocationStrategy", "UpdateColocationStrategyForNode")
def for_node(given: Any, expect: Any) -> tuple[Any, Any]:
    found = colocation(given.get("cfg", given.get("strategy")), given.get("node"))
    return _named(found, _written(SECTIONS[COLOCATION], expect.get("strategy")))


@adapter("IsColocationStrategyValid")
def valid(given: Any, expect: Any) -> tuple[Any, Any]:
    # No strategy at all cannot be written in a document.
    strategy = given.get("strategy")
    return strategy is not None and COLOCATION not in _effective({COLOCATION: json.dumps(strategy)}).kept, expect


@adapter("isColocationCfgDisabled")
def disabled(given: Any, expect: Any) -> tuple[Any, Any]:
    data = {COLOCATION: json.dumps(given["config"])} if given.get("config") is not None else None
    return not _effective(data, given.get("node")).colocation.enable, expect


@adapter("getNodeMetricCollectPolicy")
def metric_policy(given: Any, expect: Any) -> tuple[Any, Any]:
    strategy = colocation(given.get("config"))
    if not strategy.enable:
        return {"error": True}, expect
    found = settings.collect_policy(strategy)
    policy = {
        "aggregateDurationSeconds": found.metric_aggregate_duration_seconds,
        "reportIntervalSeconds": found.metric_report_interval_seconds,
        "nodeMemoryCollectPolicy": found.metric_memory_collect_policy,
    }
    return {"policy": policy}, expect


@adapter("syncColocationCfg")
def synced(given: Any, expect: Any) -> tuple[Any, Any]:
    section, old = SECTIONS[COLOCATION], (given.get("old") or {}).get("colocationCfg")
    data = (given.get("configMap") or {"data": None}).get("data")
    wanted = expect["cache"].get("colocationCfg") or {}
    present = _strategies(section, data, wanted, old)
    changed = not old or any(
        _strategies(section, {COLOCATION: json.dumps(old)}, like) != _strategies(section, data, like)
        for like in (wanted, old)
    )
    found = {
        "strategies": _same_names(present["strategies"], _layers(section, wanted)),
        "errorStatus": present["error"] or data is None,
        "changed": not present["error"] and changed,
    }
    status = {"errorStatus": expect["cache"].get("errorStatus", False), "changed": expect["changed"]}
    return found, {"strategies": _layers(section, wanted), **status}


@adapter("pickNodeStrategy")
def picked(given: Any, expect: Any) -> tuple[Any, Any]:
    section = _of_kind(given["kind"])
    node = shapes.node_of(given.get("node"))
    held = _effective({section.key: json.dumps(given["cfg"])}, given.get("node"))
    found = getattr(held, section.attribute)
    if given["kind"] == "qos":
        # The controller hands on what was written; parts that are off are reset on the node.
        found = declared.build(section.base, _merged(section, {section.key: json.dumps(given["cfg"])}, node.labels)[0])
    ours, theirs = _named(found, _written(section, expect.get("strategy")))
    refused = any(problem.object == "node" for problem in held.problems)
    return {"strategy": ours, "error": refused}, {"strategy": theirs, "error": expect.get("error", False)}


@adapter("mergeSLOCfg")
def merged(given: Any, expect: Any) -> tuple[Any, Any]:
    section = _of_kind(given["kind"])
    found = _strategies(section, given.get("data"), expect["cfg"], given.get("old"))
    return found, {"strategies": _layers(section, expect["cfg"]), "error": expect["error"]}


@adapter("getHostApplicationConfig")
def host_applications(given: Any, expect: Any) -> tuple[Any, Any]:
    held = _effective({HOST: json.dumps(given.get("cfg") or {})}, given.get("node"))
    wanted = {"applications": expect.get("result")}
    return {"error": HOST in held.kept, "found": [held.host_applications]}, {
        "error": expect.get("error", False),
        "found": [layer[("applications",)] for layer in _layers(SECTIONS[HOST], wanted)],
    }


@adapter("calculateHostAppConfigMerged")
def merged_host_applications(given: Any, expect: Any) -> tuple[Any, Any]:
    wanted = expect.get("result") or {}
    # Without an old document a broken one leaves no applications at all.
    old = given.get("oldCfg") or {"applications": []}
    found = _strategies(SECTIONS[HOST], (given.get("configMap") or {}).get("data"), wanted, old)
    return found, {"strategies": _layers(SECTIONS[HOST], wanted), "error": expect.get("error", False)}


def _of_kind(kind: str) -> Section:
    if kind not in KINDS:
        raise NotCovered
    return SECTIONS[KINDS[kind]]


def _effective(data: Any, node: Any = None) -> SLO:
    read = shapes.node_of(node)
    return config.effective(data, labels=read.labels, annotations=read.annotations)


def _strategies(section: Section, data: Any, like: Any, old: Any = None) -> dict[str, Any]:
    """What the cluster, and the nodes of each group of `like`, get of one key; `old` is the last good document."""
    previous = SLO(good={section.key: GoodDocument(json.dumps(old))}) if old else None
    found = [_merged(section, data, labels, previous) for labels in _groups(section, like)]
    # Defaults are written out, but not over a last good document, nor for classes, which have theirs on the node.
    base = {} if section.key == KINDS["qos"] else _written(section, declared.plain(section.base))
    strategies = [values if bad else {**base, **values} for values, bad in found]
    return {"strategies": strategies, "error": any(bad for _, bad in found)}


def _merged(section: Section, data: Any, labels: Any, previous: SLO | None = None) -> tuple[Values, bool]:
    reading = Reading(data or {}, labels, previous, "")
    layers = reading.layers(section)
    return {path: value for layer in layers for path, value in layer.values.items()}, section.key in reading.retained


def _groups(section: Section, document: Any) -> list[dict[str, str]]:
    """Labels of a node that is in no group, and of one in each."""
    entries = document.get(section.entries) or []
    return [{}, *(_chosen(entry.get("nodeSelector") or {}) for entry in entries)]


def _chosen(selector: Any) -> dict[str, str]:
    """Labels that a selector chooses."""
    asked = [e for e in selector.get("matchExpressions") or [] if e["operator"] in ("In", "Exists")]
    return {**(selector.get("matchLabels") or {}), **{e["key"]: (e.get("values") or [""])[0] for e in asked}}


def _layers(section: Section, document: Any) -> list[Values]:
    cluster = document.get(section.cluster) if section.cluster else document
    return [_written(section, each) for each in (cluster, *(document.get(section.entries) or []))]


def _written(section: Section, strategy: Any) -> Values:
    """The settings of a strategy in the vector's JSON."""
    document = JSONDocument("", "", "")
    members = document.object(strategy, "", section.names)
    return section.settings(document, members, "", "")[0]


def _named(found: Any, wanted: Values) -> tuple[Values, Values]:
    """Both sides, cut to the settings that the vector names."""
    ours, _ = documents.read(JSONDocument("", "", ""), type(found), declared.plain(found), "", "")
    return {path: ours.get(path) for path in wanted}, wanted


def _same_names(found: list[Values], wanted: list[Values]) -> list[Values]:
    return [{path: ours.get(path) for path in theirs} for ours, theirs in zip(found, wanted, strict=True)]
