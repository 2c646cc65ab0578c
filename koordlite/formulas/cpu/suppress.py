"""How much CPU best-effort work may use right now, and how to get there. Fast down, slow up."""

from __future__ import annotations

import math

PERIOD_US = 100_000
MIN_QUOTA_US = 2_000
MIN_CPUS = 2
GROWTH = 0.1
DEAD_BAND = 0.01
UNLIMITED = -1


def system_use(*, node_milli: int, pods_milli: int, host_apps_milli: int, reserved_milli: int) -> int:
    """max(node − pods − host applications, 0, reserved): millicores of everything that is neither.

    Source: Koordinator `CalculateFilterPodsUsed`.
    """
    return max(node_milli - pods_milli - host_apps_milli, 0, reserved_milli)


def be_cpu_budget(
    *,
    capacity_milli: int,
    threshold_percent: int,
    prod_milli: int,
    host_milli: int,
    system_milli: int,
    min_percent: int | None = None,
) -> int:
    """capacity × threshold − prod − host applications − system, at least capacity × min_percent: millicores for BE.

    `prod_milli` and `host_milli` are the use of pods and host applications that are not best-effort. Negative when
    the others use more than the threshold and no `min_percent` holds. Source: Koordinator `calculateBESuppressCPU`.
    """
    budget = capacity_milli * threshold_percent // 100 - prod_milli - host_milli - system_milli
    return budget if min_percent is None else max(budget, capacity_milli * min_percent // 100)


def quota_target(*, budget_milli: int, current_us: int, capacity_milli: int) -> int | None:
    """max(budget × 100 ms, 2 ms), growing by at most 10 % of the node: the next quota in µs; None to hold.

    It holds within 1 % of the node of `current_us`, except at the minimum. `current_us` -1 is unlimited, which no
    band or step applies to: the limit takes effect at once. Source: Koordinator `adjustByCfsQuota`.
    """
    wanted = max(budget_milli * PERIOD_US // 1000, MIN_QUOTA_US)
    if current_us == UNLIMITED:
        return wanted
    node_us = math.ceil(capacity_milli / 1000) * PERIOD_US
    step = node_us * GROWTH
    within_band = abs(wanted - current_us) < node_us * DEAD_BAND and wanted != MIN_QUOTA_US
    if within_band or wanted == current_us:
        return None
    return current_us + int(step) if wanted - current_us > step else wanted


def cpu_target(*, budget_milli: int, present: int, cpus: int) -> int:
    """min(max(⌈budget / 1000⌉, 2), present + ⌈cpus × 0.1⌉): how many CPUs best-effort work gets next.

    `present` is how many it has, `cpus` how many the machine has. Source: Koordinator `adjustByCPUSet`; its product
    is in doubles, so a machine of 70 CPUs grows by 8.
    """
    wanted = max(-(-budget_milli // 1000), MIN_CPUS)
    return min(wanted, present + math.ceil(cpus * GROWTH))


def followed_budget(*, budget_milli: int, before_milli: int | None, band_milli: int, held_down: bool = False) -> int:
    """before while |budget − before| ≤ band, else budget; never more than before while held down: millicores to follow.

    `before_milli` is the budget that is followed so far, None at first. A budget that moves within a span no wider than
    the band is followed by one value for good. `held_down`: a spike has taken CPU away of late, so nothing grows. The
    rule is ours; Koordinator follows every sample under the cpuset policy.
    """
    if before_milli is None:
        return budget_milli
    if abs(budget_milli - before_milli) <= band_milli or (held_down and budget_milli > before_milli):
        return before_milli
    return budget_milli
