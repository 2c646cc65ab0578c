"""Even out pods over domains: which ones have to go so that no domain has too many more than another.

Source: upstream balanceDomains of RemovePodsViolatingTopologySpreadConstraint.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


def is_level(sizes: Sequence[int], max_skew: int) -> bool:
    """Does no domain hold more than `max_skew` more than another?

    >>> is_level([2, 3], 1), is_level([1, 3], 1)
    (True, False)
    """
    return max(sizes, default=0) - min(sizes, default=0) <= max_skew


def moves(
    domains: list[list[T]],
    max_skew: int,
    movable: Callable[[T], bool],
    *,
    preferred: Callable[[T], bool] = lambda _item: True,
    empty: int = 0,
) -> Iterator[T]:
    """The items that have to leave their domain, given the domains from the smallest to the largest.

    Each domain gives its last items first. What it gives goes to the smallest domain that lacks some: the larger one
    stays at or above the average, the smaller one at or below, and no more goes than the skew asks for. An item that
    is not `movable` stays where it is, and counts there: a domain with nothing else gives no more. One that is movable
    but not `preferred` goes only when no preferred one is left. `empty` more domains have nothing, and are the smallest
    of all.

    >>> list(moves([[], ["x"], list("abcde")], 1, lambda item: True))
    ['d', 'e', 'c']
    """
    total = sum(map(len, domains))
    ideal = total / (len(domains) + empty) if domains else 0
    # Each domain that is given something gets an item at least, so that no more of the empty ones are needed.
    domains = [*([] for _ in range(min(empty, total))), *domains]
    low, high, grown = 0, len(domains) - 1, False
    while low < high:
        giver, taker = domains[high], domains[low]
        skew = len(giver) - len(taker)
        if len(giver) <= ideal:
            high -= 1
            continue
        wanted = min(math.ceil(len(giver) - ideal), math.ceil(ideal - len(taker)), math.ceil((skew - max_skew) / 2))
        if skew <= max_skew or wanted <= 0:
            if not grown:
                return  # The domains after this one are no smaller, so none of them asks for more either.
            low, grown = low + 1, False
            continue
        taken = _take(giver, wanted, movable, preferred)
        yield from taken
        taker += taken
        grown = True
        if len(taken) < wanted:
            high -= 1


def _take(giver: list[T], wanted: int, movable: Callable[[T], bool], preferred: Callable[[T], bool]) -> list[T]:
    """Take up to `wanted` movable items from the end, preferred ones first. Those passed over go to the front: they are
    not asked again before all others are gone."""
    taken: list[T] = []
    stuck: list[T] = []
    others: list[T] = []
    while giver and len(taken) < wanted:
        item = giver.pop()
        (stuck if not movable(item) else taken if preferred(item) else others).append(item)
    missing = wanted - len(taken)
    giver[:0] = [*reversed(stuck), *reversed(others[missing:])]
    return [*taken, *others[:missing]][::-1]
