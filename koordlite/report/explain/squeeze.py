"""A night by its flight record: how long best effort was held back, how deep, by whom, and what it lost."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

import msgspec

from koordlite import strategies
from koordlite.changes import eviction
from koordlite.model.decision import Decision
from koordlite.model.settings import StrategySettings
from koordlite.model.snapshot import Snapshot
from koordlite.model.status import AppliedStep
from koordlite.report import units
from koordlite.report.explain.who_changed import use_by_name

SUBJECT = "besteffort"
HELD_BACK = 0.95
"""Best effort that uses so much of its limit would use more."""
_QUIET = 0.95
"""Percentile of the limit that counts as its limit while services are quiet."""
LONGEST_GAP = 10.0
"""Seconds: while there are no moments for longer, the agent was away, and nothing is counted."""
_NAMED = 3


class Decided(Protocol):
    """Decisions and deeds of a round."""

    @property
    def decisions(self) -> tuple[Decision, ...]: ...
    @property
    def applied(self) -> tuple[AppliedStep, ...]: ...


class Moment(Decided, Protocol):
    """One round of the agent, as a flight record has it."""

    @property
    def wall(self) -> float: ...
    @property
    def snapshot(self) -> Snapshot: ...
    @property
    def settings(self) -> Mapping[str, StrategySettings]: ...


class Cause(msgspec.Struct, frozen=True):
    """A service, and how far its use moved the limit."""

    name: str
    part: float
    """Of the moves of the limit while best effort was held back that go along with this service's use, 0 to 1."""
    mean_milli: int
    """Its mean use over the whole time."""
    deepest_milli: int
    """Its use when the limit was lowest."""


class Squeeze(msgspec.Struct, frozen=True):
    """CPU in millicores, times in seconds, moments since the epoch."""

    begin: float
    end: float
    seconds: float
    """Covered by the record."""
    held_back_seconds: float
    """While best effort used its limit up."""
    quiet_limit_milli: int
    lost_milli_seconds: float
    """CPU time between the limit and that of quiet times, while it was held back."""
    deepest_milli: int
    deepest_at: float
    """Begin of the lowest limit under which it was held back; 0 for never."""
    causes: tuple[Cause, ...]
    evicted: Mapping[str, str]
    """Strategy by pod, of the pods whose eviction was asked for."""
    enforced: bool
    """Whether cpuSuppress enforced at the end."""


def of(moments: Iterable[Moment], end: float) -> Squeeze | None:
    """The story of the moments up to `end`; None without use and limit in any of them."""
    limits, spans, held = array("q"), array("d"), array("b")
    services, limiting = _Services(), {rule.name for rule in strategies.limiting()}
    evicted: dict[str, str] = {}
    first = last = deepest_at = 0.0
    deepest, enforced, at_deepest = 0, False, dict[str, int]()
    for moment in moments:
        if moment.wall > end:
            break
        evicted.update(evictions(moment))
        limit, used = moment.snapshot.usage.best_effort_limit, moment.snapshot.usage.best_effort_cpu
        if limit is None or used is None:
            continue
        seconds = moment.wall - last if last else 0.0
        first, last = first or moment.wall, moment.wall
        if not 0 < seconds <= LONGEST_GAP:
            continue
        is_held = is_held_back(limit, used)
        enforced = any(each.mode == "enforce" for name, each in moment.settings.items() if name in limiting)
        uses = use_by_name(moment.snapshot, moment.snapshot.usage, "cpu")
        services.add(uses, limit, seconds, is_held=is_held)
        limits.append(limit)
        spans.append(seconds)
        held.append(is_held)
        if is_held and (not deepest_at or limit < deepest):
            deepest, deepest_at, at_deepest = limit, moment.wall, uses
    if not limits:
        return None
    quiet, lost = against_quiet(limits, spans, held)
    return Squeeze(
        begin=first,
        end=last,
        seconds=sum(spans),
        held_back_seconds=sum(span for span, is_held in zip(spans, held, strict=True) if is_held),
        quiet_limit_milli=quiet,
        lost_milli_seconds=lost,
        deepest_milli=deepest,
        deepest_at=deepest_at,
        causes=tuple(services.causes(at_deepest)),
        evicted=evicted,
        enforced=enforced,
    )


def text(found: Squeeze) -> str:
    """The story as lines."""
    covered = f"{units.moment(found.begin)} to {units.moment(found.end)}"
    if not found.held_back_seconds:
        lines = [f"best effort was never held back: {covered}, it left some of its limit each time"]
        return "\n".join([*lines, *_evictions(found), ""])
    part = units.share(found.held_back_seconds, found.seconds)
    lost = found.lost_milli_seconds / 3.6e6
    causes = [
        f"{each.name} {100 * each.part:.0f} % ({units.cores(each.mean_milli)} cores on average, "
        f"{units.cores(each.deepest_milli)} then)"
        for each in found.causes
    ]
    lines = [
        f"best effort was held back for {_duration(found.held_back_seconds)} of {_duration(found.seconds)} ({part}): "
        f"{covered}",
        f"  deepest    {units.cores(found.deepest_milli)} cores at {units.moment(found.deepest_at)}; "
        f"{units.cores(found.quiet_limit_milli)} while services are quiet",
        f"  it lost    {lost:.1f} core-hours against quiet times",
        f"  caused by  {', '.join(causes) or 'no service whose use moved along with the limit'}",
        *_evictions(found),
    ]
    if not found.enforced:
        lines.append("  no strategy enforces a limit: it is that of others")
    return "\n".join([*lines, ""])


def document(found: Squeeze) -> dict[str, Any]:
    """The same for programs."""
    plain: dict[str, Any] = msgspec.to_builtins(found)
    return plain


class _Services:
    """Sums over time, by which the use of each service and the limit are compared; nothing of a moment is kept."""

    def __init__(self) -> None:
        self._seconds = self._held = self._limit = 0.0
        self._used: dict[str, float] = {}
        self._used_held: dict[str, float] = {}
        self._with_limit: dict[str, float] = {}

    def add(self, uses: Mapping[str, int], limit: int, seconds: float, *, is_held: bool) -> None:
        self._seconds += seconds
        if is_held:
            self._held += seconds
            self._limit += limit * seconds
        for name, milli in uses.items():
            self._used[name] = self._used.get(name, 0.0) + milli * seconds
            if is_held:
                self._used_held[name] = self._used_held.get(name, 0.0) + milli * seconds
                self._with_limit[name] = self._with_limit.get(name, 0.0) + milli * limit * seconds

    def causes(self, at_deepest: Mapping[str, int]) -> Iterator[Cause]:
        """The services whose use rose most while the limit fell, by their covariance, largest part first."""
        if not self._held:
            return
        mean = self._limit / self._held
        along = {name: mean * used - self._with_limit[name] for name, used in self._used_held.items()}
        whole = sum(each for each in along.values() if each > 0)
        for name in sorted(along, key=lambda name: (-along[name], name))[:_NAMED]:
            if along[name] > 0.01 * whole > 0:
                own = round(self._used[name] / self._seconds)
                yield Cause(name, along[name] / whole, own, at_deepest.get(name, 0))


def evictions(moment: Decided) -> Iterator[tuple[str, str]]:
    """Pods whose eviction was asked for in this round, each with its strategy."""
    done = {step.place for step in moment.applied if step.ok and step.place.kind is eviction.PLACE}
    for decision in moment.decisions if done else ():
        for change in decision.changes:
            if isinstance(change, eviction.EvictPod) and change.place in done:
                yield f"{change.namespace}/{change.name}", decision.strategy


def is_held_back(limit: int, used: int) -> bool:
    """Tell whether best effort would use more than its limit."""
    return limit > 0 and used >= HELD_BACK * limit


def against_quiet(limits: array[int], spans: array[float], held: array[int]) -> tuple[int, float]:
    """The limit of quiet times, and what lower ones took while best effort was held back, in millicores times seconds.
    Each limit held for its span, in seconds."""
    quiet, left = max(limits), _QUIET * sum(spans)
    for limit, span in sorted(zip(limits, spans, strict=True)):
        left -= span
        if left <= 0:
            quiet = limit
            break
    spent = zip(limits, spans, held, strict=True)
    return quiet, sum(max(quiet - limit, 0) * span for limit, span, is_held in spent if is_held)


def _evictions(found: Squeeze) -> list[str]:
    if not found.evicted:
        return ["  evicted    no pod"]
    shown = ", ".join(f"{pod} ({strategy})" for pod, strategy in list(found.evicted.items())[:10])
    more = f" and {len(found.evicted) - 10} more" if len(found.evicted) > 10 else ""
    return [f"  evicted    {len(found.evicted)}: {shown}{more}"]


def _duration(seconds: float) -> str:
    whole = round(seconds)
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"
