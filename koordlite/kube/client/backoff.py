"""Pauses after failures: longer each time, never all at the same moment, never shorter than asked."""

from __future__ import annotations

import random
from collections.abc import Callable

FIRST_SECONDS = 1.0
LAST_SECONDS = 30.0
LONGEST_ASKED_SECONDS = 600.0
"""A server that asks for more patience than this is asked again all the same."""

Uniform = Callable[[float, float], float]
"""A random number between two, as `random.uniform`."""
uniform: Uniform = random.Random().uniform
"""Pauses have a generator of their own: drawing from the global one would change what its seeded users get."""


def pause(failures: int, uniform: Uniform, *, asked: float | None = None, last: float = LAST_SECONDS) -> float:
    """Seconds until the next try after `failures` in a row: 1, 2, 4 … `last`, up to half as much more at random.

    `asked` is Retry-After.
    """
    own = min(FIRST_SECONDS * 2.0 ** min(max(failures, 1) - 1, 16), last)
    jittered = own * uniform(1.0, 1.5)
    return max(jittered, min(asked or 0.0, LONGEST_ASKED_SECONDS))
