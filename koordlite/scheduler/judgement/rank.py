"""Scores of 0 to 100 as the 0 to 10 of an extender, so that their order survives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

MOST = 10
"""MaxExtenderPriority: the scheduler multiplies by the weight and by 10."""


def by_tenths(scores: Sequence[int]) -> Mapping[int, int]:
    """Rank of each score: its place among the different ones, in tenths.

    A tenth of the score itself would make 71 and 79 equal. Up to eleven different scores stay different; a higher
    score never stands below a lower one; equal ones are equal. One single score says nothing, and stands at 0.
    """
    places = sorted(set(scores))
    last = len(places) - 1
    return {score: place * MOST // last if last else 0 for place, score in enumerate(places)}
