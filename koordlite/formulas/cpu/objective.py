"""The limit that the objectives of services allow: p99, error rates and the like, by the operator's queries.

A measurement covers a window that has passed, so the limit moves once in a window, and only measurements that began
after its last move say what the move has done. The rule is ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

CALM_RATIO = 0.9
"""Part of its objective up to which a service leaves best effort more."""
GROWTH = 0.05
"""Part of the node a window, after an objective has taken CPU away."""
NEAR_FLOOR = 0.05
"""Part of the node: a limit that is to shrink from there goes to the formula's, not half the way."""
AT_FLOOR = 0.02
"""Part of the node: a limit so near is the formula's. Quotas that are within 1 % are not written again."""
ASIDE_SECONDS = 600.0
"""Time for which an objective is left aside that best effort cannot help."""


class Level(msgspec.Struct, frozen=True):
    """Measurement of one service against its objective."""

    uid: str
    ratio: float
    """Value ÷ objective."""
    since: float
    """Beginning of the time over which it was measured."""


class Steering(msgspec.Struct, frozen=True, kw_only=True):
    """State that one round leaves for the next; times of the monotonic clock."""

    moved_at: float | None = None
    """Time at which an objective last moved the limit; None while none has taken CPU away."""
    at_floor_since: float | None = None
    """Time since which a missed objective has kept the limit at the formula's."""
    limit_milli: int | None = None
    """The limit that objectives last allowed; what waits allow may be less. None at first: the one in force counts."""
    aside: Mapping[str, float] = msgspec.field(default_factory=dict)
    """Time since which an objective has been left aside, by uid: it was missed over a whole window at the formula's
    limit."""


class Steered(msgspec.Struct, frozen=True):
    """The limit that objectives allow, in millicores."""

    limit_milli: int
    steering: Steering
    worst: Level | None = None
    """The level that decides."""


def active(levels: Sequence[Level], steering: Steering, time: float) -> list[Level]:
    """Levels of the services that are judged by their objective."""
    aside = _aside(steering, time)
    return [level for level in levels if level.uid not in aside]


def _aside(steering: Steering, time: float) -> dict[str, float]:
    return {uid: since for uid, since in steering.aside.items() if 0 <= time - since < ASIDE_SECONDS}


def shrunk_milli(limit_milli: int, *, floor_milli: int, capacity_milli: int) -> int:
    """Half the way from a limit to the formula's; the formula's from near there."""
    near = limit_milli - floor_milli <= capacity_milli * NEAR_FLOOR
    return floor_milli if near else (limit_milli + floor_milli) // 2


def _worst(levels: Sequence[Level], aside: Mapping[str, float]) -> Level | None:
    return max((level for level in levels if level.uid not in aside), key=lambda level: level.ratio, default=None)


def steered(
    levels: Sequence[Level],
    steering: Steering,
    *,
    time: float,
    present_milli: int,
    floor_milli: int,
    ceiling_milli: int,
    capacity_milli: int,
) -> Steered:
    """The next limit, by the service that is worst off: half the way to the formula's (`floor_milli`) while it misses
    its objective, 5 % of the node more while it is below 90 % of it, once in a window each; between the two it stays.
    It is `ceiling_milli` while all is calm and no objective has taken CPU away. `present_milli` is the limit in force,
    which may be less than objectives allow: only what is missed under it shrinks, and only more than it grows.
    """
    aside = _aside(steering, time)
    present = min(max(present_milli, floor_milli), ceiling_milli)
    allowed = present if steering.limit_milli is None else min(max(steering.limit_milli, floor_milli), ceiling_milli)
    is_at_floor = present - floor_milli <= capacity_milli * AT_FLOOR
    moved_at, floor_since = steering.moved_at, steering.at_floor_since
    worst = _worst(levels, aside)
    if worst and worst.ratio > 1 and is_at_floor and floor_since is not None and worst.since >= floor_since:
        # The window lies wholly in the time at the formula's limit: it is not less best effort that the service lacks.
        aside[worst.uid], floor_since = time, None
        worst = _worst(levels, aside)
    is_fresh = worst is not None and (moved_at is None or worst.since >= moved_at)
    limit, is_missed = allowed, worst is not None and worst.ratio > 1
    if worst is None or (worst.ratio <= CALM_RATIO and moved_at is None):
        limit, moved_at = ceiling_milli, None
    elif is_missed and is_at_floor:
        limit, moved_at = floor_milli, time if moved_at is None else moved_at
    elif is_missed and is_fresh:
        limit, moved_at = shrunk_milli(present, floor_milli=floor_milli, capacity_milli=capacity_milli), time
    elif worst.ratio <= CALM_RATIO and is_fresh:
        limit = max(allowed, min(ceiling_milli, present + round(capacity_milli * GROWTH)))
        moved_at = None if limit == ceiling_milli else time
    if not (is_missed and is_at_floor):
        floor_since = None
    elif floor_since is None:
        floor_since = time
    steering = Steering(moved_at=moved_at, at_floor_since=floor_since, limit_milli=limit, aside=aside)
    return Steered(limit, steering, worst)
