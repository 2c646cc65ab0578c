"""Words and values of Koordinator's NUMA rules: what was allocated, hints, refusals, and sums of amounts.

Source: Koordinator v1.9, pkg/scheduler/plugins/nodenumaresource and frameworkext/topologymanager.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import msgspec

from koordlite.model.cpuset import EMPTY, CPUSet
from koordlite.model.quantity import Quantity

Amounts = Mapping[str, Quantity]
Zones = Mapping[int, Amounts]
"""Amounts by NUMA node."""

FULL_PCPUS, SPREAD_BY_PCPUS, DEFAULT_BIND = "FullPCPUs", "SpreadByPCPUs", "Default"
PCPU_LEVEL, NUMA_NODE_LEVEL = "PCPULevel", "NUMANodeLevel"
MOST_ALLOCATED, LEAST_ALLOCATED = "MostAllocated", "LeastAllocated"
BEST_EFFORT, RESTRICTED, SINGLE_NUMA_NODE = "BestEffort", "Restricted", "SingleNUMANode"
EXCLUSIVE_REQUIRED = "Required"
IDLE, SINGLE, SHARED = "idle", "single", "shared"

POLICY_MISMATCH = "node(s) NUMA Topology policy not match"
CPUS_NOT_WHOLE = "the requested CPUs must be integer"
NO_CPU_TOPOLOGY = "node(s) invalid CPU Topology"
NOT_WHOLE_CORES = "node(s) requested cpus not multiple cpus per core"
BIND_CONFLICT = "node(s) cpu bind policy conflicts with pod's required cpu bind policy"
BAD_AMPLIFICATION = "node(s) invalid CPU amplification ratio"
TOO_FEW_AMPLIFIED = "Insufficient amplified cpu"
NOT_ENOUGH_CPUS = "not enough cpus available to satisfy request"
NO_ZONES = "node(s) missing NUMA resources"

UNSCHEDULABLE, NEVER, ERROR = "Unschedulable", "UnschedulableAndUnresolvable", "Error"


class Refusal(msgspec.Struct, frozen=True):
    """Reasons why not. `code` is the scheduler's: with `NEVER` no eviction on the node would help."""

    reasons: tuple[str, ...]
    code: str = UNSCHEDULABLE

    def __str__(self) -> str:
        return ", ".join(self.reasons)


def refuse(*reasons: str, code: str = UNSCHEDULABLE) -> Refusal:
    """A refusal with these reasons."""
    return Refusal(reasons, code)


class TakenCPU(msgspec.Struct, frozen=True):
    """A CPU that pods hold: where it is, how many hold it, and the exclusive policy of the last of them."""

    node: int
    core: int
    holders: int = 1
    exclusive: str = ""


class Allocation(msgspec.Struct, frozen=True, kw_only=True):
    """Holding of one pod on a node: CPUs of its own, and amounts by NUMA node."""

    uid: str
    cpus: CPUSet = EMPTY
    exclusive: str = ""
    zones: Zones = msgspec.field(default_factory=dict)


class Hint(msgspec.Struct, frozen=True):
    """NUMA nodes that would do, as the bits of `mask`; None is no preference."""

    mask: int | None
    preferred: bool = False
    score: int = 0
    unsatisfied: bool = False


def mask_text(mask: int) -> str:
    """A mask as reasons print it: binary, NUMA node 0 last, in pairs of digits where Koordinator pads them."""
    width = next((shift + 2 for shift in range(62, 0, -2) if mask > 1 << shift), 2)
    return format(mask, f"0{width}b")


ZERO = Quantity(0)
Ratios = Mapping[str, float]
"""How many times a node sells a resource, by name."""


def plus(a: Quantity, b: Quantity) -> Quantity:
    """a + b."""
    return Quantity(a.nano + b.nano, a.format if a.nano else b.format)


def minus(a: Quantity, b: Quantity) -> Quantity:
    """a - b."""
    return Quantity(a.nano - b.nano, a.format if a.nano else b.format)


def added(a: Amounts, b: Amounts) -> dict[str, Quantity]:
    """a + b, name by name."""
    return {**a, **{name: plus(a[name], amount) if name in a else amount for name, amount in b.items()}}


def left(a: Amounts, b: Amounts) -> dict[str, Quantity]:
    """max(a - b, 0), name by name; names that only `b` has are 0. Source: quota `SubtractWithNonNegativeResult`."""
    rest = {name: minus(amount, b[name]) if name in b else amount for name, amount in a.items()}
    return {**dict.fromkeys(b, ZERO), **{name: amount if amount.nano > 0 else ZERO for name, amount in rest.items()}}


def zones_added(parts: Iterable[Zones]) -> dict[int, Amounts]:
    """The sum of amounts by NUMA node."""
    found: dict[int, Amounts] = {}
    for part in parts:
        for zone, amounts in part.items():
            found[zone] = added(found.get(zone, {}), amounts)
    return found


def total(zones: Zones, chosen: Iterable[int]) -> dict[str, Quantity]:
    """The sum over the chosen NUMA nodes."""
    found: dict[str, Quantity] = {}
    for zone in chosen:
        found = added(found, zones.get(zone, {}))
    return found


def amplify(amount: int, ratio: float) -> int:
    """⌈amount × ratio⌉ where the ratio is above 1. Source: Koordinator `Amplify`."""
    return math.ceil(amount * ratio) if ratio > 1 else amount


def amplified(amounts: Amounts, ratios: Ratios) -> dict[str, Quantity]:
    """Amounts times their ratios: cpu in thousandths, everything else in whole units."""
    return {name: _amplified(name, amount, ratios.get(name, 1.0)) for name, amount in amounts.items()}


def _amplified(name: str, amount: Quantity, ratio: float) -> Quantity:
    if ratio <= 1 or not amount.nano:
        return amount
    if name == "cpu":
        return Quantity.of_milli(amplify(amount.milli, ratio))
    binary = name in ("memory", "ephemeral-storage")
    return Quantity.of(amplify(amount.value, ratio), "BinarySI" if binary else "DecimalSI")
