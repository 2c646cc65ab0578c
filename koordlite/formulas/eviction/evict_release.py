"""Amount to release before evictions stop: CPU in millicores, memory in bytes, 0 for nothing.

Where a share is worked out in doubles, it is in Koordinator as well: the order of the operations is part of the answer.
"""

from __future__ import annotations

REQUIRED_USE_PERCENT = 90
"""Use of its limit from which best-effort work counts as held back, where the configuration names none."""
SMALL_LIMIT_MILLI = 1000
"""Below one CPU, use says nothing about need."""


def enough_samples(*, samples: int, sample_seconds: float, window_seconds: int) -> bool:
    """samples × interval ≥ ⌊window / 3⌋: whether a mean over the window may be trusted.

    Source: Koordinator `calculateMilliReleaseBySatisfaction`.
    """
    return samples >= 1 and samples * sample_seconds >= window_seconds // 3


def uses_its_limit(*, used_milli: int, limit_milli: int, threshold_percent: int | None) -> bool:
    """used / limit ≥ threshold: whether best-effort work needs what it is denied. Under one CPU it always does.

    Source: Koordinator `isBECPUUsageHighEnough`.
    """
    if limit_milli <= 0:
        return False
    if limit_milli < SMALL_LIMIT_MILLI:
        return True
    percent = REQUIRED_USE_PERCENT if threshold_percent is None else threshold_percent
    return used_milli / limit_milli >= percent / 100


def satisfaction(*, request_milli: int, limit_milli: int, lower_percent: int, upper_percent: int) -> int:
    """request × (upper − limit / request), once limit / request has fallen to the lower end: batch-cpu to release.

    Source: Koordinator `calculateResourceMilliToRelease`.
    """
    if request_milli <= 0:
        return 0
    satisfied = limit_milli / request_milli
    gap = upper_percent / 100 - satisfied
    if satisfied > lower_percent / 100 or gap <= 0:
        return 0
    return int(request_milli * gap)


def promised_limit(allocatable_milli: int | None) -> int:
    """The limit by promise instead of by cgroup: batch-cpu allocatable; -1 when there is none, 1 when it is 0.

    Source: Koordinator `getBECPULimit` for cpuEvictPolicy evictByAllocatable.
    """
    if allocatable_milli is None or allocatable_milli < 0:
        return -1
    return allocatable_milli or 1


def use_percent(*, used: int, capacity: int) -> int:
    """used × 100 / capacity in whole percent."""
    return used * 100 // capacity


def by_use(*, used: int, capacity: int, threshold_percent: int, lower_percent: int) -> int:
    """capacity × (use % − lower %), once use has reached the threshold.

    Source: Koordinator `calculateReleaseByUsedThresholdPercent`.
    """
    percent = use_percent(used=used, capacity=capacity)
    return 0 if percent < threshold_percent else capacity * (percent - lower_percent) // 100


def to_threshold(*, used: int, capacity: int, threshold_percent: int) -> int:
    """Amount to release for the use to fall below the threshold, at least 1."""
    return max(used - capacity * threshold_percent // 100 + 1, 1)


def requested_cpu(requested_milli: int, allocatable_milli: int, *, threshold_percent: int, lower_percent: int) -> int:
    """requested − lower × allocatable, once requested / allocatable exceeds the threshold: millicores.

    With no allocatable at all everything that is requested. Source: Koordinator
    `calculateMilliReleaseByAllocatableThresholdPercent`.
    """
    if allocatable_milli <= 0:
        return requested_milli
    if not requested_milli / allocatable_milli > threshold_percent / 100:
        return 0
    return int(requested_milli - lower_percent / 100 * allocatable_milli)


def requested_memory(requested: int, allocatable: int, *, threshold_percent: int, lower_percent: int) -> int:
    """(requested / allocatable − lower) × allocatable, once requested / allocatable exceeds the threshold: bytes.

    Source: Koordinator `calculateReleaseByAllocatableThresholdPercent`.
    """
    if allocatable <= 0:
        return requested
    share = requested / allocatable
    if not share > threshold_percent / 100:
        return 0
    return int((share - lower_percent / 100) * allocatable)
