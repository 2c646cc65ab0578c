"""Where we answer differently on purpose: which cases, and the rule (docs/compatibility.md has the reasons)."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True)
class Deviation:
    """Cases of these functions that differ by one rule of ours."""

    functions: tuple[str, ...]
    applies: Callable[[Any, Any, Any], bool]
    """Whether the rule explains a difference: (input, expected, found)."""
    rule: str


def _refused(given: Any, wanted: Any, found: Any) -> bool:
    return bool(found == "refused")


def _asks_for_what_is_not_there(given: Any, wanted: Any, found: Any) -> bool:
    written = json.loads(given["annotations"]["node.koordinator.sh/reservation"])
    count = str((written.get("resources") or {}).get("cpu", "0"))
    return "reservedCPUs" in written or float(count) > len(given["topology"])


def _negative(given: Any, wanted: Any, found: Any) -> bool:
    return any(amount.nano < 0 for amount in wanted[1].values())


def _enabled_below_the_cluster(given: Any, wanted: Any, found: Any) -> bool:
    return given["config"].get("enable") is not True and wanted is True


def _application_without_priority(given: Any, wanted: Any, found: Any) -> bool:
    status = given["resourceMetrics"]["nodeMetric"]["status"]
    return any("priority" not in app for app in status.get("hostApplicationMetric") or [])


def _finished_batch_pod(given: Any, wanted: Any, found: Any) -> bool:
    phases = {item["status"].get("phase") for item in given["podList"]["items"]}
    return bool(phases & {"Succeeded", "Failed"}) and int(found["batch-cpu"]) > int(wanted["batch-cpu"])


def _sample_missing(given: Any, wanted: Any, found: Any) -> bool:
    policies = (given["strategy"].get("cpuCalculatePolicy"), given["strategy"].get("memoryCalculatePolicy"))
    return "maxUsageRequest" in policies and int(found["batch-cpu"]) <= int(wanted["batch-cpu"])


def _empty_mask(given: Any, wanted: Any, found: Any) -> bool:
    return bool(wanted == "0")


DEVIATIONS: tuple[Deviation, ...] = (
    Deviation(
        ("GetReservedCPUs", "GetNodeReservationFromAnnotation", "getNodeReserved"),
        _refused,
        "reservation-refused: an annotation that cannot be read is an error, never 'nothing reserved'",
    ),
    Deviation(
        ("getNodeReserved",),
        _negative,
        "reservation-negative: a negative amount counts as 0",
    ),
    Deviation(
        ("getNodeReserved",),
        _asks_for_what_is_not_there,
        "reservation-beyond-machine: what the machine lacks is dropped, and the rest is reserved",
    ),
    Deviation(
        ("isColocationCfgDisabled",),
        _enabled_below_the_cluster,
        "colocation-enable: a group of nodes or a node may switch on what the cluster has off",
    ),
    Deviation(
        ("BatchResource.Calculate",),
        _application_without_priority,
        "host-application-priority: a host application without a priority is counted",
    ),
    Deviation(
        ("BatchResource.Calculate",),
        _finished_batch_pod,
        "finished-batch-pod: what a finished batch pod last used is not charged to high-priority work",
    ),
    Deviation(
        ("BatchResource.Calculate",),
        _sample_missing,
        "pod-without-sample: a pod without a sample counts with its request under every policy",
    ),
    Deviation(
        ("koord_cat_l3_mask", "resctrl.l3_mask"),
        _empty_mask,
        "cache-mask-empty: a range that rounds to no way gets the smallest legal mask",
    ),
)


def rule_for(function: str, given: Any, wanted: Any, found: Any) -> str:
    """The rule that explains why this case differs; empty when none does."""
    candidates = (d for d in DEVIATIONS if function in d.functions)
    return next((d.rule for d in candidates if d.applies(given, wanted, found)), "")
