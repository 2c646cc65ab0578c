"""How fast pods of one workload, or one namespace, may go: a bucket that fills slowly and gives one token a pod.

Worked out from the evictions of the past each time, which the jobs tell. So it outlives a restart.

Source: Koordinator's object limiters.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from descheduler.arguments.migration import MigrationControllerArgs, ObjectLimiter
from descheduler.framework import PodView
from descheduler.migration import job_requests, pods, shares
from descheduler.migration.filters import Workload
from descheduler.migration.objects import MigrationJob
from koordlite.model import duration

_EPSILON = 1e-9


class Rate(msgspec.Struct, frozen=True):
    """So many tokens a second, and so many at most."""

    tokens_per_second: float
    burst: int = 1

    def left(self, taken: Iterable[float], now: float) -> float:
        """Tokens at time `now`, after one was taken at each of these times; full to begin with.

        >>> Rate(2 / 300).left([0.0], 75.0)
        0.5
        """
        tokens, last = float(self.burst), 0.0
        for moment in sorted(t for t in taken if t <= now):
            tokens = min(self.burst, tokens + (moment - last) * self.tokens_per_second) - 1
            last = moment
        return min(float(self.burst), tokens + (now - last) * self.tokens_per_second)

    def refusal(self, taken: Iterable[float], now: float) -> str:
        """Why no further pod may go; empty when one may."""
        left = self.left(taken, now)
        if left - 1 >= -_EPSILON:
            return ""
        return f"one pod in {duration.brief(1 / self.tokens_per_second)} may go, the last one went too lately"


def refusal(
    args: MigrationControllerArgs,
    jobs: Collection[MigrationJob],
    *,
    pod: PodView,
    workload: Workload | None,
    now: float,
) -> str:
    """Why no pod of this workload, or of this namespace, may go yet; empty when one may. `jobs` are all there are."""
    uid = pods.controller_uid(pod)
    paces = [(of_namespace(args), {"namespace": pod.pod.namespace})]
    if uid and workload is not None:
        paces.append((of_workload(args, workload.replicas), {"controller": uid}))
    refusals = (rate.refusal(job_requests.evicted_at(jobs, **whose), now) for rate, whose in paces if rate is not None)
    return next((text for text in refusals if text), "")


def of_workload(args: MigrationControllerArgs, replicas: int) -> Rate | None:
    """The rate for pods of a workload; None when it is not limited."""
    limiter = args.object_limiters.get("workload")
    if limiter is None:
        return None
    value = limiter.max_migrating if limiter.max_migrating is not None else args.max_migrating_per_workload
    return _rate(limiter, shares.allowed(replicas, value))


def of_namespace(args: MigrationControllerArgs) -> Rate | None:
    """The rate for pods of a namespace; None when it is not limited. A percentage of a namespace is none."""
    limiter = args.object_limiters.get("namespace")
    if limiter is None or not isinstance(limiter.max_migrating, int):
        return None
    return _rate(limiter, limiter.max_migrating)


def _rate(limiter: ObjectLimiter, count: int) -> Rate | None:
    span = duration.seconds(limiter.duration)
    return Rate(count / span, limiter.burst or 1) if span > 0 and count > 0 else None
