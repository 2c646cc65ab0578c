"""Settings that a node itself carries: annotations and labels that lie over the ConfigMap's strategies.

Source: Koordinator `UpdateColocationStrategyForNode`, `GetCPUNormalizationEnabled` and `getSystemConfigSpec`; the
annotation of the suppression policy is ours. A bad one counts for nothing and is reported, so that no value escapes its
range.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from koordlite.model import keys
from koordlite.model.errors import Problem
from koordlite.model.quantity import Quantity
from koordlite.model.reading import given
from koordlite.model.reading.declared import settings
from koordlite.model.reading.go_words import parse_bool
from koordlite.model.reading.lenient_json import JSONDocument
from koordlite.model.slo.layers import Layer
from koordlite.model.slo.settings import CPU_SUPPRESS_POLICIES, Colocation

_RATIO = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?\Z", re.ASCII)
_HEX_RATIO = re.compile(r"[+-]?0[xX]([0-9a-fA-F]+(\.[0-9a-fA-F]*)?|\.[0-9a-fA-F]+)[pP][+-]?[0-9]{1,4}\Z", re.ASCII)
_RATIOS = {
    keys.CPU_RECLAIM_RATIO: "cpuReclaimThresholdPercent",
    keys.MEMORY_RECLAIM_RATIO: "memoryReclaimThresholdPercent",
    keys.MID_STATIC_CPU_RATIO: "midStaticCPUReservedPercent",
    keys.MID_STATIC_MEMORY_RATIO: "midStaticMemoryReservedPercent",
}
_LARGEST_RATIO = 1e6
_IGNORED = "the annotation is ignored"


class NodeLayers:
    """The layers of one node, by section; `problems` fills up as they are read."""

    def __init__(self, owner: str, labels: Mapping[str, str], annotations: Mapping[str, str]) -> None:
        self._owner, self._labels, self._annotations = owner, labels, annotations
        self.problems: list[Problem] = []

    def of(self, key: str) -> list[Layer]:
        """Layer of the node over the settings of ConfigMap key `key`, the last layer on top."""
        if key == "colocation-config":
            return [*self._strategy(), *self._ratios()]
        if key == "cpu-normalization-config":
            return self._normalization()
        if key == "resource-threshold-config":
            return self._suppression()
        return self._bandwidth() if key == "system-config" else []

    def _strategy(self) -> list[Layer]:
        text = self._annotations.get(keys.COLOCATION_STRATEGY)
        if not text:
            return []
        document = JSONDocument(self._owner, keys.COLOCATION_STRATEGY, _IGNORED)
        document.problems = self.problems
        members = document.object(document.decode(text), "", settings(Colocation))
        values, in_range = given.read(document, Colocation, members, "", _IGNORED)
        return [] if document.broken or not in_range else [Layer(f"annotation {keys.COLOCATION_STRATEGY}", values)]

    def _ratios(self) -> list[Layer]:
        layers = []
        for label, name in _RATIOS.items():
            text = self._labels.get(label, "")
            percent = _percent(text)
            if percent is not None:
                layers.append(Layer(f"label {label}", {(name,): percent}))
            elif text:
                self._refuse(label, text, "not a ratio of 0 or more", "write a ratio like 0.65; the label is ignored")
        return layers

    def _bandwidth(self) -> list[Layer]:
        text = self._annotations.get(keys.NETWORK_BANDWIDTH, "")
        try:
            amount = Quantity.parse(text) if text else None
        except ValueError as error:
            self._refuse(
                keys.NETWORK_BANDWIDTH, text, str(error), "write a quantity like 10G; the annotation is ignored"
            )
            return []
        origin = f"annotation {keys.NETWORK_BANDWIDTH}"
        return [] if amount is None else [Layer(origin, {("totalNetworkBandwidth",): amount})]

    def _suppression(self) -> list[Layer]:
        text = self._annotations.get(keys.CPU_SUPPRESS_POLICY)
        if text is None:
            return []
        if text not in CPU_SUPPRESS_POLICIES:
            do = f"write {', '.join(CPU_SUPPRESS_POLICIES)}; the ConfigMap's policy holds"
            self._refuse(keys.CPU_SUPPRESS_POLICY, text, "no such policy", do)
            return []
        return [Layer(f"annotation {keys.CPU_SUPPRESS_POLICY}", {("cpuSuppressPolicy",): text})]

    def _normalization(self) -> list[Layer]:
        text = self._labels.get(keys.CPU_NORMALIZATION_ENABLED)
        if text is None:
            return []
        try:
            enable = parse_bool(text)
        except ValueError:
            do = "write true or false; the node's ratio stays as it is"
            self._refuse(keys.CPU_NORMALIZATION_ENABLED, text, "neither true nor false", do)
            return []
        return [Layer(f"label {keys.CPU_NORMALIZATION_ENABLED}", {("enable",): enable})]

    def _refuse(self, field: str, text: str, why: str, do: str) -> None:
        self.problems.append(Problem(self._owner, field, text, why, do))


def _percent(text: str) -> int | None:
    """trunc(ratio × 100) in doubles, as Koordinator computes it: 0.29 is 28 %."""
    ratio = _double(text)
    return int(ratio * 100) if 0 <= ratio <= _LARGEST_RATIO else None


def _double(text: str) -> float:
    """The finite number `text` writes, as Go's `ParseFloat` takes it; not a number for any other text."""
    if _HEX_RATIO.match(text):
        try:
            return float.fromhex(text)
        except OverflowError:
            return math.nan
    return float(text) if _RATIO.match(text) else math.nan
