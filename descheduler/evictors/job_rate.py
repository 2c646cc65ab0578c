"""How fast evictions of migration jobs are asked for, and how long a refused one is left alone."""

from __future__ import annotations

import msgspec

from descheduler.arguments.migration import MigrationControllerArgs
from descheduler.migration.object_limiter import Rate
from descheduler.migration.objects import MigrationJob
from koordlite.kube.client import backoff

_KEPT_MOMENTS = 1000


class Pace(msgspec.Struct):
    """How fast evictions may be asked for. A restart forgets it, which lets `burst` pods go sooner."""

    rate: Rate
    asked: list[float] = msgspec.field(default_factory=list)
    refused: dict[str, tuple[int, float]] = msgspec.field(default_factory=dict)
    """How often in a row the server refused a job's eviction, and until when it is not asked again, by uid."""

    @classmethod
    def of(cls, args: MigrationControllerArgs) -> Pace:
        """As evictQPS and evictBurst say."""
        return cls(Rate(float(args.evict_qps), args.evict_burst))

    def turn_seconds(self, job: MigrationJob, now: float) -> float:
        """How long the job has to wait for its eviction; 0 when it need not."""
        _, until = self.refused.get(job.metadata.uid, (0, now))
        missing = 1 - self.rate.left(self.asked, now)
        return max(until - now, missing / self.rate.tokens_per_second, 0.0)

    def take(self, now: float) -> None:
        """An eviction is asked for."""
        self.asked = [*self.asked[-_KEPT_MOMENTS:], now]

    def refuse(self, job: MigrationJob, asked_seconds: float | None, now: float) -> None:
        """The server refused: each further refusal makes the wait longer."""
        times_refused = self.refused.get(job.metadata.uid, (0, now))[0] + 1
        pause = backoff.pause(times_refused, backoff.uniform, asked=asked_seconds)
        self.refused[job.metadata.uid] = (times_refused, now + pause)
