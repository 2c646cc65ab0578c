"""Batch resources of BE pods: shares, quota and memory limit of the pod and its containers."""

from __future__ import annotations

import json
from typing import Any

from koordlite.formulas import batch_resource as formula
from koordlite.model import keys
from koordlite.model.cgroup_fields import weight_of_shares
from koordlite.model.errors import InputError
from koordlite.model.picture import node_notes
from koordlite.model.picture.groups import Cgroup, MemoryCharge, PodGroups
from koordlite.model.picture.node_notes import NodeNotes
from koordlite.model.slo import config as slo_config
from koordlite.model.slo.settings import SLO, Threshold
from koordlite.strategies import batch_resource as strategy
from tests.conformance.adapters import adapter, shapes

BE = "kubepods/besteffort"
POD = f"{BE}/pod"
_NAMES = {"cpu.quota": "cfsQuota", "memory.limit": "memoryLimit"}
_NOTHING_LIKE_IT = Cgroup(quota_us=7, values={"cpu.shares": 1, "memory.limit": 7})
"""Whatever is decided has to be written."""
_QUOTA_OFF = Threshold(enable=True, cpu_suppress_policy="cfsQuota")
_UNRECORDED = -1


@adapter("MilliCPUToShares")
def shares(given: Any, expect: Any) -> tuple[Any, Any]:
    found = formula.shares(given["milliCPU"])
    return {"cpuShares": found, "cpuWeightV2": weight_of_shares(found)}, expect


@adapter("BatchResource")
def values(given: Any, expect: Any) -> tuple[Any, Any]:
    """What the strategy writes, by container; a name that the pod does not have gets nothing."""
    spec = given["pod"]["spec"]
    names = [each["name"] for each in (*spec.get("initContainers", ()), *spec["containers"])]
    groups = {name: f"{POD}/{name}" for name in names}
    pod = shapes.pod_of({**given["pod"], "status": {"phase": "Running"}})
    seen = shapes.snapshot(
        slo=SLO(threshold=_QUOTA_OFF) if given.get("cfsQuotaEnabled") is False else SLO(),
        pods=(pod,),
        places={pod.uid: PodGroups(POD, groups)},
        cgroups=dict.fromkeys((POD, *groups.values()), _NOTHING_LIKE_IT),
        memory_held={group: MemoryCharge(0, 0) for group in (POD, *groups.values())},
        notes=NodeNotes(cpu_normalization=given.get("cpuNormalizationRatio")),
        page_bytes=1,
    )
    found: dict[str, dict[str, int]] = {}
    for change in (c for d in strategy.decide(seen, strategy.Config()) for c in d.changes):
        found.setdefault(change.group, {}).update(_written(change.field, change.value))
    containers = {name: found.get(group, {}) for name, group in groups.items()}
    return {"pod": found.get(POD, {}), "containers": containers}, expect


def _written(field: str, value: Any) -> dict[str, int]:
    if field == "cpu.shares":
        return {"cpuShares": value, "cpuWeightV2": weight_of_shares(value)}
    return {_NAMES[field]: value}


@adapter("parseRuleForNodeSLO")
def quota_enabled(given: Any, expect: Any) -> tuple[Any, Any]:
    """Whether pods get a quota; ratio and updates are Koordinator's own bookkeeping."""
    section = given["nodeSLOSpec"].get("resourceUsedThresholdWithBE")
    text = json.dumps({"clusterStrategy": section or {}})
    slo = slo_config.effective({"resource-threshold-config": text}, labels={}, annotations={})
    return {"cfsQuotaEnabled": not strategy.quota_off(slo)}, {"cfsQuotaEnabled": expect["cfsQuotaEnabled"]}


@adapter("parseRuleForNodeMeta")
def ratios(given: Any, expect: Any) -> tuple[Any, Any]:
    """The ratio after each text; a text that cannot be read keeps the last one. -1 is none."""
    notes, steps, read = NodeNotes(), [], False
    for text in given["sequence"]:
        before, error = notes, False
        try:
            node_notes.parse_normalization(text, "node")
        except InputError:
            error = True
        notes = node_notes.parse({keys.CPU_NORMALIZATION_RATIO: text}, "node", last=notes, problems=[])
        ratio = notes.cpu_normalization
        # Koordinator takes the first ratio that it can read for an update, also that of a Node without one.
        updated = notes != before or not (error or read)
        read = read or not error
        step = {"ratio": _UNRECORDED if ratio is None else ratio, "updated": updated}
        steps.append({"error": True, **step} if error else step)
    return _two_places(steps), _two_places(expect["steps"])


def _two_places(steps: Any) -> Any:
    """Ratios as the protocol writes them; recordings round some of them."""
    return [{**step, "ratio": round(step["ratio"], 2)} for step in steps]
