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
_BY_USE, _BY_REQUESTS = (USED_CPU, BE_MEMORY, USED_MEMORY), (ALLOCATABLE_CPU, ALLOCATABLE_MEMORY)
HIGHEST_PRIORITY = 7999
"""Priority up to which rules about requests may evict: prod begins above."""
DEFAULT_GAP_PERCENT = 2
"""A lower end that is not set is so much below its threshold."""


def mistake(feature: str, config: Threshold | None) -> str:
    """Mistake in what `feature` needs of `config`; None stands for a strategy that was never given."""
    kind = NUMA_MEMORY if config is not None and feature.startswith(NUMA_MEMORY) else feature
    if kind not in (*_BY_USE, *_BY_REQUESTS, BE_CPU, *([NUMA_MEMORY] if config else [])):
        return f"unknown feature: {feature}"
    if config is None:
        return f"{'r' if feature in (BE_MEMORY, USED_MEMORY) else 'R'}esourceThresholdStrategy not config"
    return _satisfaction(config) if kind == BE_CPU else _ends(kind, config) or _priority(kind, config)


def lower_end(threshold_percent: int, lower_percent: int | None) -> int:
    """The lower end, threshold − 2 when it is not set."""
    return threshold_percent - DEFAULT_GAP_PERCENT if lower_percent is None else lower_percent


def _satisfaction(config: Threshold) -> str:
    lower, upper = config.cpu_evict_be_satisfaction_lower_percent, config.cpu_evict_be_satisfaction_upper_percent
    if lower is None or upper is None:
        return "CPUEvictBESatisfactionLowerPercent or CPUEvictBESatisfactionUpperPercent not config"
    if not 0 < lower <= 60:
        return f"CPUEvictBESatisfactionLowerPercent({lower}) is not valid! must (0,60]"
    if not 0 < upper < 100:
        return f"CPUEvictBESatisfactionUpperPercent({upper}) is not valid,must (0,100)"
    if upper < lower:
        return f"CPUEvictBESatisfactionUpperPercent({upper}) < CPUEvictBESatisfactionLowerPercent({lower})"
    return ""


def _ends(kind: str, config: Threshold) -> str:
    of_memory = config.memory_evict_threshold_percent, config.memory_evict_lower_percent
    upper, lower = {
        USED_CPU: (config.cpu_evict_threshold_percent, config.cpu_evict_lower_percent),
        BE_MEMORY: of_memory,
        USED_MEMORY: of_memory,
        NUMA_MEMORY: (config.numa_memory_evict_threshold_percent, config.numa_memory_evict_lower_percent),
        ALLOCATABLE_CPU: (
            config.cpu_allocatable_evict_threshold_percent,
            config.cpu_allocatable_evict_lower_percent,
        ),
        ALLOCATABLE_MEMORY: (
            config.memory_allocatable_evict_threshold_percent,
            config.memory_allocatable_evict_lower_percent,
        ),
    }[kind]
    if upper is None:
        is_ours = kind == NUMA_MEMORY
        return "numaMemoryEvictThresholdPercent is not set" if is_ours else f"{kind}ThresholdPercent not config"
    if upper < 0 and kind != NUMA_MEMORY:
        least = "greater" if kind in (USED_CPU, ALLOCATABLE_MEMORY) else "equal or greater"
        return f"threshold percent({upper}) should {least} than 0"
    if lower is None and kind in _BY_REQUESTS:
        return f"{kind}LowerPercent not config"
    lower = lower_end(upper, lower)
    return "" if lower < upper else f"lower percent({lower}) should less than threshold percent({upper})"


def _priority(kind: str, config: Threshold) -> str:
    most = config.allocatable_evict_priority_threshold
    if kind in (USED_CPU, USED_MEMORY) and config.evict_enabled_priority_threshold is None:
        return "EvictEnabledPriorityThreshold not config"
    if kind in _BY_REQUESTS and most is None:
        return "AllocatableEvictPriorityThreshold not config"
    if kind in _BY_REQUESTS and most is not None and most > HIGHEST_PRIORITY:
        only = "koor-prod pods should not be killed"
        return f"priorityThresholdPercent({most}) should less than {HIGHEST_PRIORITY}, {only}"
    return ""
