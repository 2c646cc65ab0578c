"""Reasons why the thresholds of an eviction feature cannot be used: empty when they can.

The sentences are Koordinator's own (`isSatisfactionConfigValid`, `isUsedThresholdConfigValid`,
`isAllocatableThresholdConfigValid`, `generateConfigCheck`), so that one search finds both agents.
"""

from __future__ import annotations

from koordlite.model.slo.settings import Threshold

BE_CPU, ALLOCATABLE_CPU, USED_CPU = "BECPUEvict", "CPUAllocatableEvict", "CPUEvict"
BE_MEMORY, ALLOCATABLE_MEMORY, USED_MEMORY = "BEMemoryEvict", "MemoryAllocatableEvict", "MemoryEvict"
NUMA_MEMORY = "NUMAMemoryEvict"
"""Ours; the task of one NUMA node has its id behind it: `NUMAMemoryEvict-1`."""
HIGHEST_PRIORITY = 7999
"""Priority up to which rules about requests may evict: prod begins above."""
DEFAULT_GAP_PERCENT = 2
"""A lower end that is not set is so much below its threshold."""


def mistake(feature: str, threshold: Threshold | None) -> str:
    """Mistake in what `feature` needs of `threshold`; None stands for a strategy that was never given."""
    if threshold is not None and feature.startswith(NUMA_MEMORY):
        return _numa_memory(threshold)
    if feature not in (BE_CPU, USED_CPU, ALLOCATABLE_CPU, BE_MEMORY, USED_MEMORY, ALLOCATABLE_MEMORY):
        return f"unknown feature: {feature}"
    if threshold is None:
        return f"{'r' if feature in (BE_MEMORY, USED_MEMORY) else 'R'}esourceThresholdStrategy not config"
    if feature in (ALLOCATABLE_CPU, ALLOCATABLE_MEMORY):
        return _allocatable("CPU" if feature == ALLOCATABLE_CPU else "Memory", threshold)
    if feature in (BE_MEMORY, USED_MEMORY):
        return _used_memory(feature, threshold)
    return _satisfaction(threshold) if feature == BE_CPU else _used_cpu(threshold)


def lower_end(threshold_percent: int, lower_percent: int | None) -> int:
    """The lower end, threshold − 2 when it is not set."""
    return threshold_percent - DEFAULT_GAP_PERCENT if lower_percent is None else lower_percent


def _satisfaction(given: Threshold) -> str:
    lower, upper = given.cpu_evict_be_satisfaction_lower_percent, given.cpu_evict_be_satisfaction_upper_percent
    if lower is None or upper is None:
        return "CPUEvictBESatisfactionLowerPercent or CPUEvictBESatisfactionUpperPercent not config"
    if not 0 < lower <= 60:
        return f"CPUEvictBESatisfactionLowerPercent({lower}) is not valid! must (0,60]"
    if not 0 < upper < 100:
        return f"CPUEvictBESatisfactionUpperPercent({upper}) is not valid,must (0,100)"
    if upper < lower:
        return f"CPUEvictBESatisfactionUpperPercent({upper}) < CPUEvictBESatisfactionLowerPercent({lower})"
    return ""


def _used_cpu(given: Threshold) -> str:
    upper = given.cpu_evict_threshold_percent
    if upper is None:
        return "CPUEvictThresholdPercent not config"
    if upper < 0:
        return f"threshold percent({upper}) should greater than 0"
    return _order(lower_end(upper, given.cpu_evict_lower_percent), upper) or _priority(given)


def _used_memory(feature: str, given: Threshold) -> str:
    upper = given.memory_evict_threshold_percent
    if upper < 0:
        return f"threshold percent({upper}) should equal or greater than 0"
    wrong = _order(lower_end(upper, given.memory_evict_lower_percent), upper)
    return wrong or (_priority(given) if feature == USED_MEMORY else "")


def _numa_memory(given: Threshold) -> str:
    upper = given.numa_memory_evict_threshold_percent
    if upper is None:
        return "numaMemoryEvictThresholdPercent is not set"
    return _order(lower_end(upper, given.numa_memory_evict_lower_percent), upper)


def _allocatable(kind: str, given: Threshold) -> str:
    cpu = kind == "CPU"
    upper = given.cpu_allocatable_evict_threshold_percent if cpu else given.memory_allocatable_evict_threshold_percent
    lower = given.cpu_allocatable_evict_lower_percent if cpu else given.memory_allocatable_evict_lower_percent
    if upper is None:
        return f"{kind}AllocatableEvictThresholdPercent not config"
    if upper < 0:
        return f"threshold percent({upper}) should {'equal or ' if cpu else ''}greater than 0"
    if lower is None:
        return f"{kind}AllocatableEvictLowerPercent not config"
    return _order(lower, upper) or _allocatable_priority(given.allocatable_evict_priority_threshold)


def _allocatable_priority(threshold: int | None) -> str:
    if threshold is None:
        return "AllocatableEvictPriorityThreshold not config"
    if threshold > HIGHEST_PRIORITY:
        return (
            f"priorityThresholdPercent({threshold}) should less than {HIGHEST_PRIORITY}, "
            "koor-prod pods should not be killed"
        )
    return ""


def _priority(given: Threshold) -> str:
    return "EvictEnabledPriorityThreshold not config" if given.evict_enabled_priority_threshold is None else ""


def _order(lower: int, upper: int) -> str:
    return "" if lower < upper else f"lower percent({lower}) should less than threshold percent({upper})"
