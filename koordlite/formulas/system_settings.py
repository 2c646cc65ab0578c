"""Settings of the whole kernel on this node, and whether the kernel can be given them."""

from __future__ import annotations

from collections.abc import Mapping

from koordlite.model.slo.settings import System

MIN_FREE = "vm.min_free_kbytes"
WATERMARK_SCALE = "vm.watermark_scale_factor"
REAP_BACKGROUND = "memcg_reaper.reap_background"
GROUP_IDENTITY = "kernel.sched_group_identity_enabled"
IDLE_SAVER = "kernel.sched_idle_saver_wmark"
PAGE_CACHE_LIMIT = "pagecache_limit.enabled"
FEATURES = "sched_features"

PATHS: Mapping[str, tuple[str, ...]] = {
    MIN_FREE: ("/proc/sys/vm/min_free_kbytes",),
    WATERMARK_SCALE: ("/proc/sys/vm/watermark_scale_factor",),
    GROUP_IDENTITY: ("/proc/sys/kernel/sched_group_identity_enabled",),
    IDLE_SAVER: ("/proc/sys/kernel/sched_idle_saver_wmark",),
    REAP_BACKGROUND: ("/sys/kernel/mm/memcg_reaper/reap_background",),
    PAGE_CACHE_LIMIT: ("/sys/kernel/mm/pagecache_limit/enabled",),
    FEATURES: ("/sys/kernel/debug/sched/features", "/sys/kernel/debug/sched_features"),
}
"""Name → where it may be; the scheduler's features moved in Linux 5.13."""
_MAX_INT64 = 2**63 - 1
RANGES: Mapping[str, tuple[int, int]] = {
    MIN_FREE: (10 * 1024, 10 * 1024**2),
    WATERMARK_SCALE: (10, 400),
    REAP_BACKGROUND: (0, 1),
    GROUP_IDENTITY: (0, 1),
    IDLE_SAVER: (0, _MAX_INT64),
    PAGE_CACHE_LIMIT: (0, 1),
}
"""Least and greatest value that is written. Source: Koordinator's validators of system resources."""


def min_free_kbytes(*, capacity_bytes: int, factor: int) -> int:
    """capacity in KiB × factor / 10000. Source: Koordinator `calculateMinFreeKbytes`.

    >>> min_free_kbytes(capacity_bytes=512 * 2**30, factor=88)
    4724464
    """
    return capacity_bytes // 1024 * factor // 10_000


def targets(settings: System, *, capacity_bytes: int) -> dict[str, int]:
    """The value of each setting that is given, by name."""
    factor = settings.min_free_kbytes_factor
    values = {
        MIN_FREE: None if factor is None else min_free_kbytes(capacity_bytes=capacity_bytes, factor=factor),
        WATERMARK_SCALE: settings.watermark_scale_factor,
        REAP_BACKGROUND: settings.memcg_reap_back_ground,
        GROUP_IDENTITY: settings.sched_group_identity_enabled,
        IDLE_SAVER: settings.sched_idle_saver_wmark,
        PAGE_CACHE_LIMIT: settings.page_cache_limit_enabled,
    }
    return {name: value for name, value in values.items() if value is not None}


def in_range(name: str, value: int) -> bool:
    """Tell whether the setting may have this value."""
    low, high = RANGES[name]
    return low <= value <= high


def features(text: str) -> dict[str, bool]:
    """The scheduler's features as the kernel lists them: `NAME` is on, `NO_NAME` off.

    >>> features("START_DEBIT NO_NEXT_BUDDY")
    {'START_DEBIT': True, 'NEXT_BUDDY': False}
    """
    return {word.removeprefix("NO_"): not word.startswith("NO_") for word in text.split()}


def feature_word(name: str, on: bool) -> str:
    """Word to write that switches a feature.

    >>> feature_word("NEXT_BUDDY", False)
    'NO_NEXT_BUDDY'
    """
    return name if on else f"NO_{name}"
