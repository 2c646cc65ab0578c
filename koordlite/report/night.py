"""Nights of best effort: how long it was held back, how deep, by whom, and what it lost.

By a flight record every moment counts, and services are named. What the agent keeps of the last night for the page of
the cluster is one row: by minutes, without a record, and without the name of any pod.
"""

from __future__ import annotations

import collections
import threading
from array import array
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from koordlite import strategies
from koordlite.changes import eviction
from koordlite.model.snapshot import gives_way
from koordlite.report import units
from koordlite.report.explain.who_changed import use_by_name
from koordlite.report.tick import UNSEEN, Tick

HOURS = 12
"""Length of the night that the agent keeps."""
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
    """True where cpuSuppress enforced at the end."""


def squeeze(rounds: Iterable[Tick], end: float) -> Squeeze | None:
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


def text(story: Squeeze) -> str:
    """The story as lines."""
    covered = f"{units.moment(story.begin)} to {units.moment(story.end)}"
    pods = [f"{pod} ({strategy})" for pod, strategy in story.evicted.items()]
    more = f" and {len(pods) - 10} more" if len(pods) > 10 else ""
    evicted = f"  evicted    {f'{len(pods)}: ' if pods else 'no pod'}{', '.join(pods[:10])}{more}"
    if not story.held_back_seconds:
        return f"best effort was never held back: {covered}, it left some of its limit each time\n{evicted}\n"
    part = units.share(story.held_back_seconds, story.seconds)
    times = f"{_duration(story.held_back_seconds)} of {_duration(story.seconds)} ({part})"
    causes = ", ".join(
        f"{each.name} {100 * each.part:.0f} % ({units.cores(each.mean_milli)} cores on average, "
        f"{units.cores(each.deepest_milli)} then)"
        for each in story.causes
    )
    lines = [
        f"best effort was held back for {times}: {covered}",
        f"  deepest    {units.cores(story.deepest_milli)} cores at {units.moment(story.deepest_at)}; "
        f"{units.cores(story.quiet_limit_milli)} while services are quiet",
        f"  it lost    {story.lost_milli_seconds / 3.6e6:.1f} core-hours against quiet times",
        f"  caused by  {causes or 'no service whose use moved along with the limit'}",
        evicted,
        *([] if story.enforced else ["  no strategy enforces a limit: it is that of others"]),
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


class Night(msgspec.Struct, frozen=True, rename="camel"):
    """At most `HOURS` up to now. CPU in millicores or core-hours, moments in seconds since the epoch."""

    status: str = "unknown"
    """The agent's one word, of now."""
    begin: float = 0.0
    end: float = 0.0
    seconds: float = 0.0
    """Seconds in which use and limit of best effort were known."""
    held_back_seconds: float = 0.0
    """Seconds in which best effort used its limit up."""
    deepest_milli: int | None = None
    """The lowest limit under which it was held back."""
    deepest_at: float | None = None
    used_core_hours: float = 0.0
    """CPU time of best effort."""
    lost_core_hours: float = 0.0
    """Core hours that its limit took while it was held back, against the limit of quiet times."""
    service_wait_percent: float | None = None
    """Part of the time in which the service that waited most had a task waiting for a CPU; None without PSI."""
    service_wait_most_percent: float | None = None
    """The same in the worst minute."""
    evictions: int = 0
    restores: int = 0
    """Places that were given back what was there before."""


class _Minute(msgspec.Struct):
    number: int
    """Number of the run."""
    end: float = 0.0
    seconds: list[float] = msgspec.field(default_factory=lambda: [0.0, 0.0])
    """While best effort left some of its limit, and while it was held back."""
    limits: list[float] = msgspec.field(default_factory=lambda: [0.0, 0.0])
    """Limits in them, as millicores times seconds."""
    deepest: tuple[int, float] | None = None
    """The lowest limit that held best effort back, and when."""
    used: float = 0.0
    """Milliseconds of CPU time."""
    waited: float = 0.0
    """Percent times seconds."""
    waited_seconds: float = 0.0
    evictions: int = 0
    restores: int = 0


class NightLog:
    """Takes every tick; one thread adds, others ask. A minute counts by its mean limits: a night stays small."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._minutes: collections.deque[_Minute] = collections.deque(maxlen=HOURS * 60)
        self._last: tuple[float, float, str] | None = None
        """Time, wall clock and status of the last tick."""

    def add(self, tick: Tick) -> None:
        """Count the time since the tick before as this tick has it."""
        snapshot, pressure = tick.snapshot, tick.pressure
        if snapshot is UNSEEN:
            return
        number = int(tick.time // 60)
        seconds = tick.time - self._last[0] if self._last else 0.0
        with self._lock:
            self._last = tick.time, tick.wall, tick.status
            if not self._minutes or self._minutes[-1].number != number:
                self._minutes.append(_Minute(number))
            minute = self._minutes[-1]
            minute.end = tick.wall
            minute.evictions += sum(1 for _ in evictions(tick))
            minute.restores += tick.restored
            if not 0 < seconds <= LONGEST_GAP:
                return
            limit, used = snapshot.usage.best_effort_limit, snapshot.usage.best_effort_cpu
            if limit is not None and used is not None:
                is_held_back = uses_up(limit, used)
                minute.seconds[is_held_back] += seconds
                minute.limits[is_held_back] += limit * seconds
                minute.used += used * seconds
                if is_held_back:
                    minute.deepest = min(minute.deepest or (limit, tick.wall), (limit, tick.wall))
            waits = [
                pressure[subject]["cpu"].some.avg10
                for pod in snapshot.pods
                if "cpu" in pressure.get(subject := f"pod/{pod.key}", {}) and not gives_way(snapshot, pod)
            ]
            if waits:
                minute.waited += max(waits) * seconds
                minute.waited_seconds += seconds

    def night(self) -> Night:
        """The minutes of the last twelve hours as one value."""
        with self._lock:
            if self._last is None:
                return Night()
            now, wall, status = self._last
            minutes = [each for each in self._minutes if each.number > now // 60 - HOURS * 60]
            limits, seconds, held_back = array("q"), array("d"), array("b")
            for each in minutes:
                for is_held_back, span in enumerate(each.seconds):
                    if span:
                        limits.append(round(each.limits[is_held_back] / span))
                        seconds.append(span)
                        held_back.append(is_held_back)
            lost = against_quiet(limits, seconds, held_back)[1] if seconds else 0.0
            deepest = min((each.deepest for each in minutes if each.deepest), default=(None, None))
            waits = [each.waited / each.waited_seconds for each in minutes if each.waited_seconds]
            waited_seconds = sum(each.waited_seconds for each in minutes)
            return Night(
                status=status,
                begin=minutes[0].end,
                end=wall,
                seconds=sum(seconds),
                held_back_seconds=sum(each.seconds[True] for each in minutes),
                deepest_milli=deepest[0],
                deepest_at=deepest[1],
                used_core_hours=sum(each.used for each in minutes) / 3.6e6,
                lost_core_hours=lost / 3.6e6,
                service_wait_percent=sum(each.waited for each in minutes) / waited_seconds if waits else None,
                service_wait_most_percent=max(waits, default=None),
                evictions=sum(each.evictions for each in minutes),
                restores=sum(each.restores for each in minutes),
            )
