"""CPU that best-effort work may use right now: its budget, which one is followed, and what the limit owes."""

from __future__ import annotations

DEAD_BAND = 0.01
"""Part of the node below which a difference counts as none."""
REPAY_SECONDS = 10
"""Time over which debts to best effort are paid back."""


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


def owed_milli_seconds(
    *, before: int, entitled_milli: int, allowed_milli: int, seconds: float, capacity_milli: int
) -> int:
    """before + (entitled − allowed) × time, at most the node's capacity × 1 s to either side: CPU time that the limit
    owes to best effort, in millicore seconds; below zero it has had that much too much.

    `entitled_milli` is what the budget would have allowed, `allowed_milli` what the limit did allow on average. A
    difference of less than 1 % of the node counts as none: the limit does not follow it either. The rule is ours:
    Koordinator's limit falls behind a load that comes and goes.
    """
    short = entitled_milli - allowed_milli
    if abs(short) < capacity_milli * DEAD_BAND:
        return before
    return max(-capacity_milli, min(capacity_milli, before + round(short * seconds)))


def repayment_milli(*, owed_milli_seconds: int, unit_milli: int = 1) -> int:
    """owed ÷ 10 s, cut to whole units: millicores by which the limit exceeds the budget until the debt is paid. At most
    10 % of the node, since no more than its capacity × 1 s is ever owed. A set of CPUs has a unit of 1000: half a CPU
    more would be a whole one more, and back a second later."""
    return int(owed_milli_seconds / REPAY_SECONDS / unit_milli) * unit_milli


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
