"""CPU normalization and resource amplification."""

from __future__ import annotations

import json
from typing import Any

from koordlite.formulas import normalization
from koordlite.model import keys, node_notes, nrt, slo_config
from koordlite.model.errors import InputError
from koordlite.model.node import Node
from koordlite.model.slo import SLO
from tests.conformance.adapters import adapter, shapes

RATIO, AMPLIFICATION = "cpu-normalization-ratio", "resource-amplification-ratio"


@adapter("CPUNormalization.Calculate")
def ratio(given: Any, expect: Any) -> tuple[Any, Any]:
    node = shapes.node_of(given["node"])
    try:
        found = normalization.node_ratio(
            _effective("cpu-normalization-config", given["config"], node).cpu_normalization,
            label=node.labels.get(keys.CPU_NORMALIZATION_ENABLED),
            machine=nrt.decode_cpu_basic_info(given["cpuBasicInfo"], "nrt") if "cpuBasicInfo" in given else None,
        )
    except (ValueError, InputError):
        return {"error": True}, expect
    return {RATIO: normalization.encode_ratio(found)}, expect


@adapter("ResourceAmplification.Calculate")
def amplification(given: Any, expect: Any) -> tuple[Any, Any]:
    node = shapes.node_of(given["node"])
    try:
        ratios = normalization.amplification(
            _effective("resource-amplification-config", given["config"], node).resource_amplification,
            cpu_normalization=node_notes.parse_normalization(
                node.annotations.get(keys.CPU_NORMALIZATION_RATIO, ""), "node"
            ),
        )
    except (ValueError, InputError):
        return {"error": True}, expect
    return {AMPLIFICATION: normalization.encode_ratios(ratios)} if ratios else {}, expect


def _effective(key: str, config: Any, node: Node) -> SLO:
    return slo_config.effective({key: json.dumps(config)}, labels=node.labels, annotations=node.annotations)
