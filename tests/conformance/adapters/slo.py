"""ConfigMap and node metadata → what holds on a node."""

from __future__ import annotations

import json
from typing import Any

from koordlite.model import slo_config, slo_tables
from koordlite.model.slo import SLO, Colocation
from tests.conformance.adapters import NotCovered, adapter, shapes


def colocation(strategy: Any, node: Any = None) -> Colocation:
    """The strategy in force when the ConfigMap says `strategy`."""
    return _effective({"colocation-config": json.dumps(strategy or {})}, node).colocation


@adapter("GetNodeColocationStrategy", "UpdateColocationStrategyForNode")
def for_node(given: Any, expect: Any) -> tuple[Any, Any]:
    if given.get("node") is None or "strategy" not in expect:
        raise NotCovered
    found = colocation(given.get("cfg", given.get("strategy")), given["node"])
    return _same_names(found, expect["strategy"], slo_tables.COLOCATION)


@adapter("IsColocationStrategyValid")
def valid(given: Any, expect: Any) -> tuple[Any, Any]:
    if given.get("strategy") is None:
        raise NotCovered
    ours = {name: value for name, value in given["strategy"].items() if name in slo_tables.COLOCATION}
    if not expect and ours != given["strategy"]:
        # What makes it invalid may be a setting that we do not read.
        raise NotCovered
    return not _effective({"colocation-config": json.dumps(ours)}).problems, expect


@adapter("isColocationCfgDisabled")
def disabled(given: Any, expect: Any) -> tuple[Any, Any]:
    if given.get("config") is None:
        raise NotCovered
    return not colocation(given["config"], given.get("node")).enable, expect


@adapter("syncColocationCfg")
def synced(given: Any, expect: Any) -> tuple[Any, Any]:
    data = (given.get("configMap") or {}).get("data")
    old = {k: v for k, v in (given["old"].get("colocationCfg") or {}).items() if k != "nodeConfigs"}
    previous = _effective({"colocation-config": json.dumps(old)}) if old else None
    wanted = (expect["cache"].get("colocationCfg") or {}).copy()
    wanted.pop("nodeConfigs", None)
    found = _effective(data, previous=previous)
    return _same_names(found.colocation, wanted, slo_tables.COLOCATION)


@adapter("pickNodeStrategy")
def picked(given: Any, expect: Any) -> tuple[Any, Any]:
    if given["kind"] != "threshold" or "strategy" not in expect:
        raise NotCovered
    data = {"resource-threshold-config": json.dumps(given["cfg"])}
    return _same_names(_effective(data, given.get("node")).threshold, expect["strategy"], slo_tables.THRESHOLD)


@adapter("mergeSLOCfg")
def merged(given: Any, expect: Any) -> tuple[Any, Any]:
    if given["kind"] != "threshold":
        raise NotCovered
    key = "resource-threshold-config"
    previous = _effective({key: json.dumps(given["old"])}) if given.get("old") else None
    found, wanted = [], []
    strategies = [expect["cfg"].get("clusterStrategy") or {}, *(expect["cfg"].get("nodeStrategies") or [])]
    for strategy in strategies:
        node = {"metadata": {"labels": strategy.get("nodeSelector", {}).get("matchLabels", {})}}
        read = _effective(given.get("data"), node, previous)
        got, want = _same_names(read.threshold, strategy, slo_tables.THRESHOLD)
        found.append(got)
        wanted.append(want)
    return found, wanted


@adapter("getHostApplicationConfig", "calculateHostAppConfigMerged")
def host_applications(given: Any, expect: Any) -> tuple[Any, Any]:
    key = "host-application-config"
    if "cfg" in given:
        read = _effective({key: json.dumps(given["cfg"])}, given.get("node"))
        wanted = expect["result"]
    else:
        previous = _effective({key: json.dumps(given["oldCfg"])})
        read = _effective(given["configMap"]["data"], None, previous)
        wanted = expect["result"].get("applications", [])
    found = [(a.name, a.qos.value) for a in read.host_applications]
    return found, [(a["name"], a.get("qos", "")) for a in wanted or []]


def _effective(data: Any, node: Any = None, previous: SLO | None = None) -> SLO:
    read = shapes.node_of(node)
    return slo_config.effective(data, labels=read.labels, annotations=read.annotations, previous=previous)


def _same_names(found: Any, wanted: dict[str, Any], table: slo_tables.Table) -> tuple[Any, Any]:
    """Both sides, cut to the settings that the vector names and we read."""
    names = [name for name in wanted if name in table]
    return {name: getattr(found, table[name].attribute) for name in names}, {name: wanted[name] for name in names}
