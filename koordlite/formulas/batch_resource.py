"""Values that kubelet would have written for batch resources, had they been cpu and memory: shares, quota and memory
limit.

Source: Koordinator hook BatchResource; for the sums of a pod kubelet `ResourceConfigForPod`.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from koordlite.formulas.cpu import burst
from koordlite.model.cgroup_fields import MAX_SHARES, MIN_SHARES
from koordlite.numa.kubelet.requests import peak

UNLIMITED = -1


class Resources(msgspec.Struct, frozen=True, kw_only=True):
    """Millicores and bytes that a container or a pod asks for; 0 is none, which for a limit means unlimited."""

    request_milli: int = 0
    limit_milli: int = 0
    limit_bytes: int = 0


class Values(msgspec.Struct, frozen=True, kw_only=True):
    """Values of its group."""

    shares: int
    quota_us: int
    """Per period; -1 is unlimited."""
    limit_bytes: int
    """-1 is unlimited."""


def shares(milli: int) -> int:
    """request × 1024 / 1000, rounded down, 2 to 262144: cpu.shares as v1 counts them.

    Source: Koordinator and kubelet `MilliCPUToShares`.

    >>> shares(500), shares(0), shares(300_000)
    (512, 2, 262144)
    """
    return min(max(milli * 1024 // 1000, MIN_SHARES), MAX_SHARES)


def values(
    resources: Resources, *, period_us: int = burst.PERIOD_US, ratio: float = 1.0, quota_off: bool = False
) -> Values:
    """Shares of the request, quota and memory limit of the limits.

    `ratio` is what a CPU of this node is worth; above 1 the quota is that much smaller, but at least 1 ms. `quota_off`:
    the besteffort group has a quota of its own, and so its pods have none.

    >>> values(Resources(request_milli=500, limit_milli=1000, limit_bytes=2**31), ratio=1.25)
    Values(shares=512, quota_us=80000, limit_bytes=2147483648)
    """
    limit_milli = 0 if quota_off else resources.limit_milli
    return Values(
        shares=shares(resources.request_milli),
        quota_us=burst.base_quota(limit_milli=limit_milli, period_us=period_us, ratio=ratio),
        limit_bytes=resources.limit_bytes if resources.limit_bytes > 0 else UNLIMITED,
    )


def of_pod(containers: Iterable[tuple[Resources, bool]], overhead: Resources) -> Resources:
    """The sum of the containers, or the largest init container with the sidecars started before it, plus overhead.

    Each container comes, in the order in which they start, with whether it ends before the next one starts. A limit
    that one of them lacks the pod lacks as well.

    >>> main, first = Resources(request_milli=500, limit_milli=1000), Resources(request_milli=4000, limit_milli=4000)
    >>> of_pod([(first, True), (main, False), (main, False)], Resources(request_milli=100, limit_milli=100))
    Resources(request_milli=4100, limit_milli=4100, limit_bytes=0)
    """
    requests = tuple(containers)
    request_milli = peak((each.request_milli, ends) for each, ends in requests) + overhead.request_milli
    limit_milli = _limit(((each.limit_milli, ends) for each, ends in requests), overhead.limit_milli)
    limit_bytes = _limit(((each.limit_bytes, ends) for each, ends in requests), overhead.limit_bytes)
    return Resources(request_milli=request_milli, limit_milli=limit_milli, limit_bytes=limit_bytes)


def _limit(amounts: Iterable[tuple[int, bool]], overhead: int) -> int:
    limits = tuple(amounts)
    return peak(limits) + overhead if all(amount > 0 for amount, _ in limits) else 0
