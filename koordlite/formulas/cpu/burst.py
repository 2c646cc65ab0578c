"""Bursts of a container beyond its CPU limit: kernel burst, raised quotas, and the tokens for them."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

UNLIMITED = -1
PERIOD_US = 100_000
MIN_QUOTA_US = 1_000
MAX_BURST_US = 100_000_000
UP, DOWN = 1.2, 0.8
COOLING = 0.9
IDLE_PERCENT, FULL_PERCENT = 60, 100
"""Below the first part of its limit a container earns tokens, above the second it spends them."""

State = Literal["idle", "cooling", "overload", "unknown"]
Move = Literal["up", "down", "reset", "remain"]


def node_state(*, used_milli: int, total_milli: int, threshold_percent: int) -> State:
    """used / total of the CPUs that pods share: overload from the threshold on, cooling from 90 % of it.

    Without any shared CPU it is overload. Source: Koordinator `getNodeStateForBurst`.

    >>> node_state(used_milli=3600, total_milli=8000, threshold_percent=50)
    'cooling'
    """
    part = used_milli / total_milli if total_milli > 0 else 1.0
    if part >= threshold_percent / 100:
        return "overload"
    return "cooling" if part >= threshold_percent / 100 * COOLING else "idle"


def base_quota(*, limit_milli: int, period_us: int = PERIOD_US, ratio: float = 1.0) -> int:
    """⌈limit × period / ratio⌉, at least 1 ms: the quota that a container's limit stands for; -1 without a limit.

    `ratio` is what a CPU of this node is worth (docs/formulas.md, "CPU normalization"). Source: Koordinator
    `adjustContainerCFSQuota`; kubelet's `MilliCPUToQuota`.

    >>> base_quota(limit_milli=2000, ratio=1.25)
    160000
    """
    if limit_milli <= 0:
        return UNLIMITED
    quota = max(limit_milli * period_us // 1000, MIN_QUOTA_US)
    return max(math.ceil(quota / ratio), MIN_QUOTA_US) if ratio > 1 else quota


def kernel_burst(
    *,
    limit_milli: int,
    percent: int,
    quota_us: int,
    beyond_quota: bool,
    period_us: int = PERIOD_US,
    ratio: float = 1.0,
) -> int:
    """min(limit × percent × period / ratio, quota, 100 s): µs a container may save up; 0 without a limit.

    Worked out in doubles, in this order, as there. Linux refuses a burst above the quota (`tg_set_cfs_bandwidth`);
    Anolis takes it (`beyond_quota`). Source: Koordinator `calcStaticCPUBurstVal`.

    >>> kernel_burst(limit_milli=2000, percent=1000, quota_us=240_000, beyond_quota=False)
    240000
    """
    if limit_milli <= 0:
        return 0
    burst = min(int(limit_milli / 1000 * percent / 100 * period_us / max(ratio, 1.0)), MAX_BURST_US)
    return burst if beyond_quota or quota_us == UNLIMITED else min(burst, quota_us)


def move(*, scaling: bool, allowed: bool, throttled: float | None, state: State) -> Move:
    """Decide what is done to a quota: up while the container is throttled and may, down when it may not or the node is
    full.

    `throttled` None is unknown. Source: Koordinator `genOperationByContainer`, `changeOperationByNode`.
    """
    if not scaling:
        return "reset"
    target: Move = "down" if not allowed else "up" if throttled else "remain"
    if state == "overload":
        return "down"
    return "remain" if state != "idle" and target == "up" else target


def quota_target(step: Move, *, current_us: int, base_us: int, percent: int) -> int:
    """current × 1.2, × 0.8, base or current, within base and base × percent: the next quota of a container in µs.

    Source: Koordinator `applyContainerCFSQuota`.

    >>> quota_target("up", current_us=580_000, base_us=200_000, percent=300)
    600000
    """
    top = base_us * percent // 100 if percent > 100 else base_us
    scaled = {"up": int(current_us * UP), "down": int(current_us * DOWN), "reset": base_us, "remain": current_us}
    return min(max(scaled[step], base_us), top)


def pod_quota(containers: Iterable[int]) -> int:
    """Σ quotas of the containers, unlimited if one of them is: never a sum of changes, which drifts.

    >>> pod_quota([240_000, 360_000]), pod_quota([240_000, -1])
    (600000, -1)
    """
    quotas = tuple(containers)
    return UNLIMITED if UNLIMITED in quotas else sum(quotas)


class Tokens(msgspec.Struct, frozen=True):
    """Rest of a container's allowance to hold a raised quota, in percent of its limit times seconds."""

    left: int
    capacity: int
    period_seconds: int
    time: float
    """Time up to which whole seconds are counted."""

    @property
    def allowed(self) -> bool:
        """Tell whether a raised quota may stay or grow."""
        return self.left > 0


def capacity(*, period_seconds: int, percent: int) -> int:
    """period × (percent - 100): tokens a container can hold.

    >>> capacity(period_seconds=300, percent=200)
    30000
    """
    return period_seconds * (percent - 100)


def first_tokens(container: str, *, period_seconds: int, percent: int, time: float) -> Tokens:
    """A part of the capacity below one half, by the container's name: restarts of many do not burst as one.

    Source: Koordinator `newBurstLimiter`, which draws lots.
    """
    most = capacity(period_seconds=period_seconds, percent=percent)
    return Tokens(int(most * (zlib.crc32(container.encode()) / 2**33)), most, period_seconds, time)


def spend(tokens: Tokens, *, usage_percent: int, now: float) -> Tokens:
    """Above 100 % of the limit (use - 100) × seconds are spent, below 60 % (100 - use) × seconds earned; in ± capacity.

    Source: Koordinator `burstLimiter.Allow`. Parts of a second are kept for the next time.
    """
    seconds = max(int(now - tokens.time), 0)
    spent = usage_percent - FULL_PERCENT if not IDLE_PERCENT <= usage_percent < FULL_PERCENT else 0
    remaining = min(max(tokens.left - spent * seconds, -tokens.capacity), tokens.capacity)
    return msgspec.structs.replace(tokens, left=remaining, time=tokens.time + seconds)


def expired(tokens: Tokens, now: float) -> bool:
    """Tell whether nothing was counted for more than two periods: the container is gone. Source: Koordinator
    `Recycle`."""
    return now - tokens.time > 2 * tokens.period_seconds


class Ledger:
    """The tokens of all containers in one tick, by group."""

    def __init__(self, tokens: Mapping[str, Tokens], now: float) -> None:
        self._now = now
        self.tokens = {group: each for group, each in tokens.items() if not expired(each, now)}

    def allows(self, group: str, *, period_seconds: int, percent: int, usage_percent: int) -> bool:
        """Tell whether the container may have a raised quota at this moment; counts the time since it was asked last.

        A period below 0 has no end, a percentage below 100 no beginning. Other settings than last time start over.
        """
        if percent < FULL_PERCENT or period_seconds < 0:
            return percent >= FULL_PERCENT
        tokens = self.tokens.get(group)
        if tokens is None or tokens.capacity != capacity(period_seconds=period_seconds, percent=percent):
            tokens = first_tokens(group, period_seconds=period_seconds, percent=percent, time=self._now)
        self.tokens[group] = spend(tokens, usage_percent=usage_percent, now=self._now)
        return self.tokens[group].allowed
