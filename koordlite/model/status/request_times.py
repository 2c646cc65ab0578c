"""How long requests took, counted in buckets, by verb, path and status code."""

from __future__ import annotations

import msgspec

BUCKETS_SECONDS = tuple(0.001 * 4**k for k in range(7))
"""Koordinator's of kubelet_request_duration_seconds."""
Question = tuple[str, str, str]
"""Verb, path, code."""


class Times(msgspec.Struct, frozen=True):
    """Requests of one kind: how many took at most so long, bucket by bucket and all, and their sum in seconds."""

    counts: tuple[int, ...] = (0,) * (len(BUCKETS_SECONDS) + 1)
    seconds: float = 0.0

    def plus(self, seconds: float) -> Times:
        """With one more."""
        bounds = (*BUCKETS_SECONDS, float("inf"))
        return Times(
            tuple(n + (seconds <= b) for n, b in zip(self.counts, bounds, strict=True)), self.seconds + seconds
        )
