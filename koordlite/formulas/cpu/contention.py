"""Waits that best effort causes to services, and the limit that follows: the kernel arbitrates, the limit helps out.

A service also waits for itself, its neighbours and the system, and how long depends on its load. So no fixed part of
the time says whether best effort is to blame. The formula's limit does: what a service waits while best effort keeps to
it is its own, and only what it waits beyond that, with more for best effort, is caused. Of that in turn best effort is
to blame for no more than the part it has of the CPU time of all others: on a node that others keep busy, a small pod
waits nearly always, whatever best effort does. The rule is ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from koordlite.formulas.cpu import objective
from koordlite.formulas.cpu.objective import Level, Steered, Steering

SURGE_TOLERANCE = 0.1
"""Part by which a surge may lengthen the work of services before best effort gives way at once."""
CEILING_PERCENT = 98
"""Part of the node that best effort may use at most, however idle the rest is: the system stays reachable."""
GROWTH = 0.02
"""Part of the node a round, for `CAREFUL_SECONDS` after waits have taken CPU away."""
CAREFUL_SECONDS = 60.0
LEARNING_SECONDS = 20.0
"""Longest time for which the limit is the formula's to find out what services wait by themselves."""
LEARNED_SECONDS = 600.0
"""Time for which what a service waits by itself is believed: its load changes."""


class Service(msgspec.Struct, frozen=True):
    """Recent wait of one service."""

    uid: str
    share: float
    """Part of the time it wanted a CPU."""
    since: float
    """Beginning of that time."""
    tolerance: float
    """Part by which best effort may lengthen its work."""
    part: float = 1.0
    """Best effort's part of the CPU time of everybody but the service, lately."""


class Guidance(msgspec.Struct, frozen=True, kw_only=True):
    """State that one round leaves for the next; times of the monotonic clock."""

    own: Mapping[str, float] = msgspec.field(default_factory=dict)
    """Part of the time that a service waited while best effort kept to the formula, by uid."""
    learned_at: float | None = None
    """Time at which one of these was last learned."""
    kept_since: float | None = None
    """Time since which best effort has kept to the formula, by its limit or of itself."""
    floor_at: float | None = None
    """Time of the last round that left it the formula's limit."""
    learning_since: float | None = None
    """Time since which it has been the formula's in order to find that out."""
    cut_at: float | None = None
    """Time at which waits last took CPU away."""
    known_at: float | None = None
    """Time at which the waits of services were last known; at first, that of the first request for them."""
    steering: Steering = Steering()
    """State of steering by the objectives of services."""


Verdict = Literal["calm", "learning", "caused"]


class Guided(msgspec.Struct, frozen=True):
    """The limit that services allow, in millicores."""

    limit_milli: int
    verdict: Verdict
    """calm: best effort delays nobody too much; learning: somebody waits, and whether best effort is to blame is found
    out at the formula's limit; caused: it is."""
    guidance: Guidance
    worst: Service | None = None
    """The service that best effort delays most, by what it tolerates."""
    slower: float = 0.0
    """Part by which best effort lengthens the work of its threads."""
    objective: Steered | None = None
    """The deciding objective of a service, which allows less than the waits of the others."""


def slowdown(*, share: float, own: float) -> float:
    """(1 − own) ÷ (1 − share) − 1: by which part of their time the threads of a service take longer than they would
    waiting only `own` of it. A thread that waits the part `share` of its time takes 1 ÷ (1 − share) times as long."""
    return (1 - own) / max(1 - share, 1e-3) - 1


def is_delayed(*, ran: int, waited: int, share: float, tolerance: float = SURGE_TOLERANCE) -> bool:
    """Tell whether threads that ran and waited so long, in one unit, take longer than usual by more than `tolerance`,
    where they usually wait the part `share` of their time. True where they did neither: nothing is known of those that
    did.
    """
    runnable = ran + waited
    return not runnable or slowdown(share=waited / runnable, own=share) > tolerance


def usual_share(before: float, ran: int, waited: int) -> float:
    """before + (share now − before) ÷ 5, once a tick: what part of their time threads usually wait."""
    runnable = ran + waited
    return before + (waited / runnable - before) / 5 if runnable else before


def ceiling_milli(*, capacity_milli: int, floor_milli: int) -> int:
    """max(98 % of the node, the formula's limit): what best effort may have while no service waits."""
    return max(capacity_milli * CEILING_PERCENT // 100, floor_milli)


def guided(
    services: Sequence[Service],
    guidance: Guidance,
    *,
    time: float,
    present_milli: int,
    used_milli: int,
    floor_milli: int,
    capacity_milli: int,
    levels: Sequence[Level] = (),
) -> Guided:
    """The next limit: the least of what the waits of services allow, and the objectives (`levels`) of those that have
    one; such a service is not judged by its waits. `present_milli` is the limit in force, `used_milli` what best effort
    uses, `floor_milli` the formula's limit, below which it never is.
    """
    ceiling = ceiling_milli(capacity_milli=capacity_milli, floor_milli=floor_milli)
    steered = objective.steered(
        levels,
        guidance.steering,
        time=time,
        present_milli=present_milli,
        floor_milli=floor_milli,
        ceiling_milli=ceiling,
        capacity_milli=capacity_milli,
    )
    steering = steered.steering
    by_objective = {level.uid for level in objective.active(levels, steering, time)}
    guided = _by_waits(
        [service for service in services if service.uid not in by_objective],
        msgspec.structs.replace(guidance, steering=steering),
        time=time,
        present_milli=present_milli,
        used_milli=used_milli,
        floor_milli=floor_milli,
        capacity_milli=capacity_milli,
    )
    if steered.limit_milli >= guided.limit_milli:
        return guided
    floor_at = time if steered.limit_milli == floor_milli else guidance.floor_at
    guidance = msgspec.structs.replace(guided.guidance, floor_at=floor_at)
    return msgspec.structs.replace(guided, limit_milli=steered.limit_milli, guidance=guidance, objective=steered)


def _by_waits(
    services: Sequence[Service],
    guidance: Guidance,
    *,
    time: float,
    present_milli: int,
    used_milli: int,
    floor_milli: int,
    capacity_milli: int,
) -> Guided:
    """All but 2 % of the node while every slowdown is within the service's tolerance; the formula's while it is unknown
    what the service waits by itself; half the way to the formula's, once in a window, when best effort is to blame."""
    ceiling = ceiling_milli(capacity_milli=capacity_milli, floor_milli=floor_milli)
    # What services have waited by themselves since best effort keeps to the formula: it has since the last round if
    # that left it the formula's limit, or if it uses no more anyhow.
    keeps = used_milli <= floor_milli or (guidance.floor_at is not None and guidance.floor_at == guidance.known_at)
    since = guidance.kept_since if keeps else None
    expired = guidance.learned_at is None or not 0 <= time - guidance.learned_at < LEARNED_SECONDS
    learned = {} if expired else {s.uid: guidance.own[s.uid] for s in services if s.uid in guidance.own}
    fresh = {s.uid: s.share for s in services if since is not None and s.since >= since}
    learned_at = time if fresh else guidance.learned_at if learned else None
    own, cut_at = learned | fresh, guidance.cut_at
    guidance = msgspec.structs.replace(guidance, own=own, learned_at=learned_at, kept_since=since)
    slowdowns = {
        # What was seen before the last cut is of a time when best effort had another part.
        s.uid: slowdown(share=s.share, own=own.get(s.uid, 0.0)) * (s.part if cut_at is None or s.since >= cut_at else 1)
        for s in services
    }
    worst = max(services, key=lambda s: slowdowns[s.uid] / max(s.tolerance, 1e-3), default=None)
    slower = max(0.0, slowdowns[worst.uid]) if worst else 0.0
    verdict: Verdict = "calm"
    began = guidance.learning_since
    if began is not None and time - began < LEARNING_SECONDS and any(s.since < began for s in services):
        verdict, limit = "learning", floor_milli
    elif worst is None or slower <= worst.tolerance:
        careful = cut_at is not None and 0 <= time - cut_at < CAREFUL_SECONDS
        limit = min(ceiling, present_milli + round(capacity_milli * GROWTH)) if careful else ceiling
        limit = max(limit, floor_milli)
    elif worst.uid not in own:
        verdict, limit, began = "learning", floor_milli, time
    else:
        verdict, limit = "caused", min(ceiling, max(present_milli, floor_milli))
        if cut_at is None or worst.since >= cut_at:
            # What was seen before the last cut says nothing about the limit since.
            limit = objective.shrunk_milli(limit, floor_milli=floor_milli, capacity_milli=capacity_milli)
            guidance = msgspec.structs.replace(guidance, cut_at=time)
    guidance = msgspec.structs.replace(
        guidance,
        kept_since=time if guidance.kept_since is None else guidance.kept_since,
        floor_at=time if limit == floor_milli else guidance.floor_at,
        learning_since=began if verdict == "learning" else None,
        known_at=time,
    )
    return Guided(limit, verdict, guidance, worst, slower)
