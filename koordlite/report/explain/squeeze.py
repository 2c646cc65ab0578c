"""A night by its flight record: how long best effort was held back, how deep, by whom, and what it lost."""

from __future__ import annotations

import collections
from array import array
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from koordlite import strategies
from koordlite.changes import eviction
from koordlite.report import units
from koordlite.report.explain.who_changed import use_by_name
from koordlite.report.tick import Tick

HELD_BACK = 0.95
"""Best effort that uses so much of its limit would use more."""
_QUIET = 0.95
"""Percentile of the limit that counts as its limit while services are quiet."""
LONGEST_GAP = 10.0
"""Seconds: while there are no moments for longer, the agent was away, and nothing is counted."""
_NAMED = 3


class Cause(msgspec.Struct, frozen=True):
    """A service, and how far its use moved the limit."""

    name: str
    part: float
    """Part of the limit's moves while best effort was held back that go along with this service's use, 0 to 1."""
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


def of(rounds: Iterable[Tick], end: float) -> Squeeze | None:
    """The story of the rounds up to `end`; None without use and limit in any of them."""
    limits, spans, held_back = array("q"), array("d"), array("b")
    services, limiting = _Services(), [rule.name for rule in strategies.limiting()]
    evicted: dict[str, str] = {}
    first = last = deepest_at = 0.0
    deepest, enforced, at_deepest = 0, False, dict[str, int]()
    for each in rounds:
        if each.wall > end:
            break
        evicted.update(evictions(each))
        usage = each.snapshot.usage
        limit, used = usage.best_effort_limit, usage.best_effort_cpu
        if limit is None or used is None:
            continue
        seconds = each.wall - last if last else 0.0
        first, last = first or each.wall, each.wall
        if not 0 < seconds <= LONGEST_GAP:
            continue
        is_held_back = uses_up(limit, used)
        enforced = any(each.modes.get(name) == "enforce" for name in limiting)
        uses = use_by_name(each.snapshot, usage, "cpu")
        services.add(uses, limit, seconds, is_held_back=is_held_back)
        limits.append(limit)
        spans.append(seconds)
        held_back.append(is_held_back)
        if is_held_back and (not deepest_at or limit < deepest):
            deepest, deepest_at, at_deepest = limit, each.wall, uses
    if not limits:
        return None
    quiet, lost = against_quiet(limits, spans, held_back)
    return Squeeze(
        begin=first,
        end=last,
        seconds=sum(spans),
        held_back_seconds=sum(span for span, is_held_back in zip(spans, held_back, strict=True) if is_held_back),
        quiet_limit_milli=quiet,
        lost_milli_seconds=lost,
        deepest_milli=deepest,
        deepest_at=deepest_at,
        causes=tuple(services.causes(at_deepest)),
        evicted=evicted,
        enforced=enforced,
    )


def text(squeeze: Squeeze) -> str:
    """The story as lines."""
    covered = f"{units.moment(squeeze.begin)} to {units.moment(squeeze.end)}"
    pods = [f"{pod} ({strategy})" for pod, strategy in squeeze.evicted.items()]
    more = f" and {len(pods) - 10} more" if len(pods) > 10 else ""
    evicted = f"  evicted    {f'{len(pods)}: ' if pods else 'no pod'}{', '.join(pods[:10])}{more}"
    if not squeeze.held_back_seconds:
        return f"best effort was never held back: {covered}, it left some of its limit each time\n{evicted}\n"
    part = units.share(squeeze.held_back_seconds, squeeze.seconds)
    times = f"{_duration(squeeze.held_back_seconds)} of {_duration(squeeze.seconds)} ({part})"
    causes = ", ".join(
        f"{each.name} {100 * each.part:.0f} % ({units.cores(each.mean_milli)} cores on average, "
        f"{units.cores(each.deepest_milli)} then)"
        for each in squeeze.causes
    )
    lines = [
        f"best effort was held back for {times}: {covered}",
        f"  deepest    {units.cores(squeeze.deepest_milli)} cores at {units.moment(squeeze.deepest_at)}; "
        f"{units.cores(squeeze.quiet_limit_milli)} while services are quiet",
        f"  it lost    {squeeze.lost_milli_seconds / 3.6e6:.1f} core-hours against quiet times",
        f"  caused by  {causes or 'no service whose use moved along with the limit'}",
        evicted,
        *([] if squeeze.enforced else ["  no strategy enforces a limit: it is that of others"]),
    ]
    return "\n".join([*lines, ""])


class _Services:
    """Sums over time, by which the use of each service and the limit are compared; nothing of a moment is kept."""

    def __init__(self) -> None:
        self._seconds = self._held_back = self._limit = 0.0
        self._used: collections.defaultdict[str, float] = collections.defaultdict(float)
        """Millicores times seconds by service; of `_used_held_back` only while best effort was held back."""
        self._used_held_back: collections.defaultdict[str, float] = collections.defaultdict(float)
        self._with_limit: collections.defaultdict[str, float] = collections.defaultdict(float)

    def add(self, uses: Mapping[str, int], limit: int, seconds: float, *, is_held_back: bool) -> None:
        self._seconds += seconds
        if is_held_back:
            self._held_back += seconds
            self._limit += limit * seconds
        for name, milli in uses.items():
            self._used[name] += milli * seconds
            if is_held_back:
                self._used_held_back[name] += milli * seconds
                self._with_limit[name] += milli * limit * seconds

    def causes(self, at_deepest: Mapping[str, int]) -> Iterator[Cause]:
        """The services whose use rose most while the limit fell, by their covariance, largest part first."""
        if not self._held_back:
            return
        mean = self._limit / self._held_back
        along = {name: mean * used - self._with_limit[name] for name, used in self._used_held_back.items()}
        whole = sum(each for each in along.values() if each > 0)
        for name in sorted(along, key=lambda name: (-along[name], name))[:_NAMED]:
            if along[name] > 0.01 * whole > 0:
                own = round(self._used[name] / self._seconds)
                yield Cause(name, along[name] / whole, own, at_deepest.get(name, 0))


def evictions(each: Tick) -> Iterator[tuple[str, str]]:
    """Pods whose eviction was asked for in this round, each with its strategy."""
    done = {step.place for step in each.applied if step.ok and step.place.kind is eviction.PLACE}
    for decision in each.decisions if done else ():
        for change in decision.changes:
            if isinstance(change, eviction.EvictPod) and change.place in done:
                yield f"{change.namespace}/{change.name}", decision.strategy


def uses_up(limit: int, used: int) -> bool:
    """Tell whether best effort would use more than its limit."""
    return limit > 0 and used >= HELD_BACK * limit


def against_quiet(limits: array[int], spans: array[float], held_back: array[int]) -> tuple[int, float]:
    """The limit of quiet times, and what lower ones took while best effort was held back, in millicores times seconds.
    Each limit was in force for its span, in seconds."""
    quiet, remaining = max(limits), _QUIET * sum(spans)
    for limit, span in sorted(zip(limits, spans, strict=True)):
        remaining -= span
        if remaining <= 0:
            quiet = limit
            break
    lost = zip(limits, spans, held_back, strict=True)
    return quiet, sum(max(quiet - limit, 0) * span for limit, span, is_held_back in lost if is_held_back)


def _duration(seconds: float) -> str:
    whole = round(seconds)
    hours, minutes = whole // 3600, whole // 60 % 60
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {whole % 60} s" if minutes else f"{whole} s"
