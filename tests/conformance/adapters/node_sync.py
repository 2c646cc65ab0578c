"""When a Node is written, and what it shows then."""

from __future__ import annotations

from typing import Any

from koordlite.formulas.allocatable import node_sync, normalization
from koordlite.model import keys
from koordlite.model.node import Node
from koordlite.model.picture import node_notes
from koordlite.model.quantity import Quantity
from koordlite.model.slo.settings import Colocation
from koordlite.strategies import discover
from tests.conformance.adapters import adapter, allocatable, mid, node_metric, prepared, shapes, slo

TEST_LABEL = "expect-to-change-label"
"""The one label that the tests' own plugin manages."""

OFFER = next(rule for rule in discover() if rule.module == "be_allocatable")


@adapter("isNodeResourceSyncNeeded")
def sync_needed(given: Any, expect: Any) -> tuple[Any, Any]:
    if given.get("newNode") is None:
        seen = node_metric.picture(node=None, colocation=Colocation(), used=None)
        written = [change for d in OFFER.answer(seen, OFFER.config()) for change in d.changes]
        return dict.fromkeys(("syncStatus", "syncMeta"), bool(written)), expect
    old, new = shapes.node_of(given["oldNode"]), shapes.node_of(given["newNode"])
    labels = {TEST_LABEL: new.labels.get(TEST_LABEL)}
    notes = {keys.AMPLIFICATION_RATIO: new.annotations.get(keys.AMPLIFICATION_RATIO)}
    changes = {
        **node_sync.metadata_changes(held=old.labels, wanted=labels),
        **node_sync.metadata_changes(held=old.annotations, wanted=notes),
    }
    found = {
        "syncStatus": bool(_why(given, slo.colocation(given["strategy"]), _amounts(old), _amounts(new))),
        "syncMeta": bool(changes) or normalization.differs(*map(_ratio, (old, new))),
    }
    return found, expect


@adapter("IsResourceDiff")
def resource_diff(given: Any, expect: Any) -> tuple[Any, Any]:
    old, new = (shapes.quantities(given[side]).get(given["resourceName"]) for side in ("old", "new"))
    found = node_sync.differs(
        old=None if old is None else old.milli,
        new=None if new is None else new.milli,
        threshold=given["diffThreshold"],
    )
    return found, expect


@adapter("updateNodeResource")
def update_node(given: Any, expect: Any) -> tuple[Any, Any]:
    if not given.get("existing") or not expect.get("node"):
        return {"error": not given.get("existing")}, {"error": bool(expect.get("error"))}
    node, items = given["oldNode"], given["nr"]
    worked_out = {
        "resources": {item["name"]: item["quantity"] for item in items if "quantity" in item and not item.get("reset")},
        "annotations": _joined(items, "annotations"),
    }
    result = prepared.prepare(node, worked_out, keys.PROMISED_RESOURCES)
    colocation = slo.colocation(given["config"], node)
    due = _why(given, colocation, _amounts(shapes.node_of(node)), result.left)
    labels = dict(node["metadata"].get("labels") or {})
    labels |= node_sync.metadata_changes(held=labels, wanted=_joined(items, "labels"))
    found = {"status": result.status if due else prepared.status(node), "labels": labels}
    shown = expect["node"]
    return found, {"status": prepared.status(shown), "labels": shown["metadata"].get("labels") or {}}


@adapter("calculateNodeResource")
def calculate(given: Any, expect: Any) -> tuple[Any, Any]:
    metrics = {"nodeMetric": given.get("nodeMetric")}
    case = node_metric.case({**given, "strategy": given["config"], "metrics": metrics}, "metrics")
    found = {**allocatable.batch(case, given.get("nrtZones")), **mid.mid_resources(case)}
    return {name: found[name] for name in expect}, node_metric.wanted(expect, *expect)


def _ratio(node: Node) -> float | None:
    return node_notes.parse_normalization(node.annotations.get(keys.CPU_NORMALIZATION_RATIO, ""), "node")


def _why(given: Any, colocation: Colocation, old: dict[str, int | None], new: dict[str, int | None]) -> str:
    return node_sync.must_sync(
        old=old,
        new=new,
        threshold=colocation.resource_diff_threshold,
        since_last_seconds=-given["lastSync"] if "lastSync" in given else None,
        update_seconds=colocation.update_time_threshold_seconds,
    )


def _amounts(node: Node) -> dict[str, int | None]:
    """What the Node promises; amounts in thousandths where they are not whole would differ by nothing that counts."""
    held: dict[str, Quantity | None] = {name: node.allocatable.get(name) for name in keys.PROMISED_RESOURCES}
    return {name: None if amount is None else amount.value for name, amount in held.items()}


def _joined(items: list[Any], name: str) -> dict[str, str]:
    return {key: text for item in items for key, text in (item.get(name) or {}).items()}
