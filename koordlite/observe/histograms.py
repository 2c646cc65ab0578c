"""Histograms of use whose samples lose weight with time. Plain numbers side by side, since a full node has hundreds."""

from __future__ import annotations

import array

import msgspec

from koordlite.formulas.allocatable.histogram import Buckets

SPAN = 76
"""Buckets that are kept, up to the largest value seen. What is below 2 % of that counts as 2 %, so that a peak is never
predicted too low."""
_MOST_EXPONENT = 16
"""Weights are counted from a new time before they grow beyond 2 to this."""
_LEAST_WEIGHT = 1e-4


class Kept(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A histogram on disk."""

    low: int
    reference: float
    weights: bytes
    """Numbers of four bytes, little-endian."""


class Histogram:
    """Weights by bucket. A sample weighs twice as much as one that is a half-life older."""

    __slots__ = ("_low", "_reference", "_weights")

    def __init__(self, low: int = 0, reference: float = 0.0, weights: array.array[float] | None = None) -> None:
        self._low, self._reference = low, reference
        self._weights = array.array("f") if weights is None else weights

    def add(self, value: float, wall: float, *, buckets: Buckets, half_life: float) -> None:
        """Take in a sample of this moment, in seconds since the epoch."""
        bucket, weights = buckets.find(value), self._weights
        if not weights:
            self._low, self._reference = bucket, wall
        exponent = (wall - self._reference) / half_life
        if exponent > _MOST_EXPONENT:
            self._decay(int(exponent), half_life)
            exponent -= int(exponent)
        self._make_place(bucket)
        self._weights[max(bucket - self._low, 0)] += 2.0 ** max(exponent, -_MOST_EXPONENT)

    def percentile(self, part: float, *, buckets: Buckets) -> float:
        """Value that `part` (0 to 1) of the weight does not exceed."""
        return buckets.percentile(self._weights, self._low, part)

    def _decay(self, halves: int, half_life: float) -> None:
        """Weigh all by a later moment; what weighs next to nothing at the upper end is forgotten."""
        factor = 0.5**halves
        weights = array.array("f", (weight * factor for weight in self._weights))
        while len(weights) > 1 and weights[-1] < _LEAST_WEIGHT:
            weights.pop()
        self._weights, self._reference = weights, self._reference + halves * half_life

    def _make_place(self, bucket: int) -> None:
        weights = self._weights
        if weights and bucket < self._low:
            more = min(self._low - bucket, SPAN - len(weights))
            self._weights = weights = array.array("f", bytes(4 * more)) + weights
            self._low -= more
        if bucket >= self._low + len(weights):
            weights.frombytes(bytes(4 * (bucket + 1 - self._low - len(weights))))
        surplus = len(weights) - SPAN
        if surplus > 0:
            lost = sum(weights[:surplus])
            self._weights = weights = weights[surplus:]
            weights[0] += lost
            self._low += surplus

    @property
    def kept(self) -> Kept:
        """For the disk."""
        weights = array.array("f", self._weights)
        if _BIG_ENDIAN:
            weights.byteswap()
        return Kept(self._low, self._reference, weights.tobytes())

    @classmethod
    def of(cls, kept: Kept, buckets: Buckets) -> Histogram:
        """Histogram as it was kept; ValueError for what no histogram can be."""
        weights = array.array("f")
        weights.frombytes(kept.weights)
        if _BIG_ENDIAN:
            weights.byteswap()
        fits = kept.low >= 0 and kept.low + len(weights) <= buckets.count and len(weights) <= SPAN
        if not fits or not all(0 <= weight < 2e9 for weight in weights) or not 0 <= kept.reference < 1e12:
            raise ValueError("these are no weights of buckets")
        return cls(kept.low, kept.reference, weights)


_BIG_ENDIAN = array.array("H", [1]).tobytes() == b"\x00\x01"
