"""Common parts of strategies: their configuration sections, and their memory from one round to the next."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import msgspec

from koordlite.model import duration

Mode = Literal["off", "observe", "enforce"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StrategySettings:
    """Base of every strategy's `Config`."""

    mode: Mode = "observe"
    """off: not judged at all. observe: judged and reported, nothing is written. enforce: judged, reported, written."""


class Memory(msgspec.Struct, frozen=True):
    """Memory of one strategy; each that keeps something has a kind of its own. Everything in it has a default: what the
    strategy knows at first."""


def bounded(default: Any, *, ge: float | None = None, le: float | None = None) -> Any:
    """A field with a default and the smallest and largest value that is accepted."""
    return dataclasses.field(default=default, metadata={"ge": ge, "le": le})


def duration_text(default: str) -> Any:
    """A field that holds a duration as text, such as `90s`, checked when the file is read."""
    return dataclasses.field(default=default, metadata={"check": duration.seconds})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EvictionSettings(StrategySettings):
    """Common part of the strategies that evict pods."""

    max_evictions_per_round: int = bounded(5, ge=1, le=1000)
    """Maximum number of pods evicted in one round; the rest waits for the next, when use has been measured again.
    Koordinator has no bound."""
    evict_partly: bool = False
    """Evict pods even if a pod far above its request may not be evicted, and all candidates together cannot release
    enough. Koordinator does so: innocent pods go, and the node stays full."""
    zero_allocatable_seconds: float = bounded(300.0, ge=0, le=86_400)
    """Time for which batch or mid allocatable has to be missing or 0 before pods are evicted for it: under pressure it
    drops to 0 for a while in the normal course of things."""
    usage_age_seconds: float = bounded(2.0, ge=0.1, le=60)
    """No pod is evicted while the last sample of the node's use is older. Koordinator goes back two samples."""
    input_age_seconds: float = bounded(60.0, ge=1, le=3600)
    """No pod is evicted while the Node, the pods or the configuration have not been confirmed for so long."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSettings:
    """Section `metrics`: what shows how work disturbs other work, and costs more than the usual metrics."""

    container_psi: bool = False
    """koordlet_container_psi, and of containers and pods the means over 60 and 300 s besides that over 10 s
    (koordlet's gate PSICollector). Three files are read for each container, all within 15 s."""
    numa_system_usage: bool = False
    """koordlet_node_metric_numa_system_usage, and CPU in koordlet_node_metric_numa_node_usage, also where no NodeMetric
    is published. With one they are always there."""
    container_cpi: bool = False
    """koordlet_container_cpi: cycles and instructions of each container, by hardware counters (koordlet's gate
    CPICollector). It takes the capability PERFMON and a machine that has counters; status says what is missing."""
    cpi_interval_seconds: float = bounded(60.0, ge=1, le=3600)
    """Time from one window to the next (koordlet's --cpi-collector-interval)."""
    cpi_window_seconds: float = bounded(10.0, ge=0.1, le=600)
    """Length of a window (koordlet's --collect-cpi-timewindow). The next one begins after it."""
