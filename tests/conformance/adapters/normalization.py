"""CPU normalization and resource amplification."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from koordlite.formulas.allocatable import normalization
from koordlite.model import keys, nrt
from koordlite.model.errors import InputError
from koordlite.model.node import Node
from koordlite.model.picture import node_notes
from koordlite.model.slo import config as slo_config
from koordlite.model.slo.settings import SLO
from tests.conformance.adapters import adapter, shapes

RATIO, AMPLIFICATION = "cpu-normalization-ratio", "resource-amplification-ratio"


@adapter("CPUNormalization.Calculate")
def ratio(given: Any, expect: Any) -> tuple[Any, Any]:
    node = shapes.node_of(given["node"])
    config = _effective("cpu-normalization-config", given.get("config"), node).cpu_normalization
    try:
        found = normalization.node_ratio(
            config, label=node.labels.get(keys.CPU_NORMALIZATION_ENABLED), machine=_machine(given)
        )
    except ValueError:
        return {"error": True}, expect
    return {RATIO: normalization.encode_ratio(found)}, expect


@adapter("ResourceAmplification.Calculate")
def amplification(given: Any, expect: Any) -> tuple[Any, Any]:
    node = shapes.node_of(given["node"])
    try:
        ratios = normalization.amplification(
            _effective("resource-amplification-config", given.get("config"), node).resource_amplification,
            cpu_normalization=node_notes.parse_normalization(
                node.annotations.get(keys.CPU_NORMALIZATION_RATIO, ""), "node"
            ),
        )
    except (ValueError, InputError):
        return {"error": True}, expect
    return {AMPLIFICATION: normalization.encode_ratios(ratios)} if ratios else {}, expect


def _machine(given: Any) -> nrt.CPUBasicInfo | None:
    """None for what is not said, and for what cannot be read."""
    try:
        return msgspec.json.decode(given["cpuBasicInfo"], type=nrt.CPUBasicInfo) if given.get("cpuBasicInfo") else None
    except msgspec.DecodeError:
        return None


def _effective(key: str, config: Any, node: Node) -> SLO:
    return slo_config.effective({key: json.dumps(config or {})}, labels=node.labels, annotations=node.annotations)
