"""Words and values of Koordinator's NUMA rules: the CPUs of a node, what was allocated, hints, refusals.

Source: Koordinator v1.9, pkg/scheduler/plugins/nodenumaresource and frameworkext/topologymanager.
"""

from __future__ import annotations

from collections.abc import Mapping

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
