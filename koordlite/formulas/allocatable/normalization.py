"""The worth of a CPU of this machine, and the factor by which a node may promise more than it has.

A ratio is a factor of 1 or more. Source: Koordinator noderesource plugins cpunormalization and resourceamplification.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from koordlite.model.nrt import CPUBasicInfo
from koordlite.model.reading.go_words import parse_bool
from koordlite.model.slo.settings import CPUNormalization, ResourceAmplification

SMALLEST, LARGEST = 1.0, 5.0
"""A ratio outside is taken for a mistake."""
STEP = 0.01
"""A difference up to this is not worth a write."""


def is_enabled(config: CPUNormalization, label: str | None) -> bool:
    """The node's label decides, else the configuration. ValueError for a label that is neither true nor false."""
    return config.enable if label is None else parse_bool(label)


def node_ratio(config: CPUNormalization, *, label: str | None, machine: CPUBasicInfo | None) -> float:
    """`cpu_ratio` where normalization is on, else 1. ValueError when the machine is not known either."""
    if not is_enabled(config, label):
        return 1.0
    if machine is None:
        raise ValueError("the model of the CPUs is not known")
    return cpu_ratio(config, machine)


def cpu_ratio(config: CPUNormalization, machine: CPUBasicInfo) -> float:
    """The ratio of the machine's CPU model as its hyperthreads and turbo are set, else the default ratio.

    ValueError when neither is configured, or when it is not within 1 to 5.
    """
    model, ratio = config.ratio_model.get(machine.model), None
    if model and machine.hyper_threads:
        ratio = model.hyper_thread_turbo_enabled_ratio if machine.turbo else model.hyper_thread_enabled_ratio
    elif model:
        ratio = model.turbo_enabled_ratio if machine.turbo else model.base_ratio
    ratio = config.default_ratio if ratio is None else ratio
    if ratio is None:
        threads, turbo = ("on" if each else "off" for each in (machine.hyper_threads, machine.turbo))
        state = f"hyperthreads {threads}, turbo {turbo}"
        raise ValueError(f"no ratio for CPU model {machine.model!r} ({state}), and no defaultRatio")
    if not SMALLEST <= ratio <= LARGEST:
        raise ValueError(f"the ratio {ratio:g} is not within {SMALLEST:g} to {LARGEST:g}")
    return ratio


def differs(current: float | None, target: float | None) -> bool:
    """|current − target| > 0.01, or only one of them is there: worth a write. `target` counts as it would be printed.
    Source: Koordinator `NeedSyncMeta`."""
    if current is None or target is None:
        return current is not target
    printed = float(encode_ratio(target))
    # Both sums in doubles, so that 1.20 and 1.21 are one step apart and no more.
    return current > printed + STEP or current < printed - STEP


def amplification(config: ResourceAmplification, *, cpu_normalization: float | None) -> dict[str, float]:
    """configured ratios, that of cpu × the normalization ratio; cpu only where that is above 1 or configured.

    `cpu_normalization` is the node's ratio, None when it has none. ValueError for a ratio below 1: this is no way to
    promise less than there is.
    """
    ratios = dict(config.resource_amplification_ratio) if config.enable else {}
    configured = ratios.get("cpu", 0.0)
    cpu = configured if configured > 0 else 1.0
    if cpu_normalization is not None and cpu_normalization > 0:
        cpu *= cpu_normalization
    if cpu > 1:
        ratios["cpu"] = cpu
    for resource, ratio in sorted(ratios.items()):
        if ratio < 1:
            raise ValueError(f"the ratio of {resource} comes to {ratio:g}, which is below 1")
    return ratios


def encode_ratio(ratio: float) -> str:
    """Two decimals, as Koordinator prints ratios."""
    return f"{ratio:.2f}"


def encode_ratios(ratios: Mapping[str, float]) -> str:
    """`{"cpu":1.22}`, resources in alphabetical order."""
    members = (f"{msgspec.json.encode(name).decode()}:{encode_ratio(ratio)}" for name, ratio in sorted(ratios.items()))
    return "{" + ",".join(members) + "}"
