"""Buckets of exponentially growing size, and percentiles over their weights.

Source: Koordinator `pkg/util/histogram`, which has them from the Vertical Pod Autoscaler.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

GROWTH = 1.05
"""Each bucket is 5 % larger than the one before."""


class Buckets(msgspec.Struct, frozen=True):
    """Bucket 0 begins at 0 and is `first` wide; the last one has no end."""

    first: float
    count: int

    @classmethod
    def up_to(cls, most: float, first: float) -> Buckets:
        """Number of buckets: as many as it takes to reach `most`, and one for what is beyond."""
        return cls(first, math.ceil(math.log(most * (GROWTH - 1) / first + 1, GROWTH)) + 1)

    def find(self, value: float) -> int:
        """The bucket of a value."""
        if value < self.first:
            return 0
        return min(int(math.log(value * (GROWTH - 1) / self.first + 1) / math.log(GROWTH)), self.count - 1)

    def start(self, bucket: int) -> float:
        """Lower bound of a bucket."""
        return self.first * (GROWTH**bucket - 1) / (GROWTH - 1)

    def percentile(self, weights: Sequence[float], low: int, part: float) -> float:
        """The end of the bucket within which `part` (0 to 1) of all weight lies, or the start of the last bucket.

        `weights` are those of the buckets from `low` on; the others have none. 0 without any weight.
        """
        threshold, total = part * sum(weights), 0.0
        if threshold <= 0:
            return 0.0
        last = len(weights) - 1
        for index, weight in enumerate(weights):
            total += weight
            if total >= threshold or index == last:
                return self.start(min(low + index + 1, self.count - 1))
        return 0.0


CPU = Buckets.up_to(1024, 0.025)
"""Cores: 0.025 to 1024."""
MEMORY = Buckets.up_to(1 << 41, 5 << 20)
"""Bytes: 5 MiB to 2 TiB."""
