"""The pace of evictions beyond the limits of one cycle: maintenance windows, pauses for one owner, and loops that end.

A window is open by weekday and time of day, or by cron expression and duration, in a time zone of the operator's. One
that ends before it begins goes on past midnight, and belongs to the day on which it begins. The moment comes from
outside: nothing here looks at a clock.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import re
import zoneinfo
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

from koordlite.model import duration as durations
from koordlite.model.settings import bounded, duration_text

if TYPE_CHECKING:
    from apscheduler.triggers.cron import CronTrigger


Day = Literal["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]
DAYS: tuple[Day, ...] = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_DAYS_AHEAD = 8
"""A window comes at least once a week."""


def minutes(text: str) -> int:
    """Minutes since midnight of `HH:MM`, 24:00 included; ValueError when it is none.

    >>> minutes("22:30")
    1350
    """
    hour, colon, minute = text.partition(":")
    digits = len(hour) == len(minute) == 2 and (hour + minute).isascii() and (hour + minute).isdigit()
    if not colon or not digits or int(minute) > 59 or int(hour) * 60 + int(minute) > 24 * 60:
        raise ValueError(f"{text!r} is no time of day like 22:00")
    return int(hour) * 60 + int(minute)


@functools.cache
def zone(name: str) -> zoneinfo.ZoneInfo:
    """The time zone; ValueError when the tz database of this machine does not have it."""
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(f"{name!r} is not in the tz database of this machine (a name like Europe/Berlin)") from error


@dataclasses.dataclass(frozen=True, kw_only=True)
class Window:
    """A time in which pods may be evicted."""

    days: tuple[Day, ...] = DAYS
    """Days on which it begins: Mon, Tue, Wed, Thu, Fri, Sat, Sun."""
    start: str = dataclasses.field(default="00:00", metadata={"check": minutes})
    """Time of day, like `22:00`."""
    end: str = dataclasses.field(default="24:00", metadata={"check": minutes})
    """Time of day at which it is over, that of the next day when it is not after the start."""
    cron: str = ""
    """Beginning as a cron expression like `0 22 * * 1-5`, in place of days, start and end."""
    duration: str = dataclasses.field(default="0s", metadata={"check": durations.seconds})
    """Length like `6h`, with cron."""
    time_zone: str = dataclasses.field(default="UTC", metadata={"check": zone})
    """Name in the tz database, like `Europe/Berlin`."""

    def __post_init__(self) -> None:
        if not self.days:
            raise ValueError("a window needs a day")
        if minutes(self.start) >= 24 * 60:
            raise ValueError("a window starts before 24:00")
        if not self.cron:
            if self.seconds:
                raise ValueError("a duration needs cron; without it a window has an end")
            return
        parse(self.cron, self.time_zone)
        if (self.days, self.start, self.end) != (DAYS, "00:00", "24:00"):
            raise ValueError("a window has either cron and duration, or days, start and end")
        if self.seconds <= 0:
            raise ValueError("a window by cron needs a duration, like 6h")

    @property
    def seconds(self) -> float:
        """Length of a window by cron."""
        return durations.seconds(self.duration)

    def is_open(self, now: float) -> bool:
        """Tell whether it is open at `now` (seconds since the epoch)."""
        if self.cron:
            return parse(self.cron, self.time_zone).next_after(now - self.seconds) <= now
        return any(start <= now < end for start, end in self._spans(now))

    def next_opening(self, now: float) -> float:
        """Its next opening after `now`, both in seconds since the epoch."""
        if self.cron:
            return parse(self.cron, self.time_zone).next_after(now)
        return min(start for start, _ in self._spans(now) if start > now)

    def _spans(self, now: float) -> Iterator[tuple[float, float]]:
        """Spans in which it is open, from the day before to a week later. Wall clock times: an hour that the summer
        time skips or repeats counts as the tz database has it."""
        local = zone(self.time_zone)
        today = datetime.datetime.fromtimestamp(now, local).date()
        begin, end = minutes(self.start), minutes(self.end)
        for ahead in range(-1, _DAYS_AHEAD):
            day = today + datetime.timedelta(days=ahead)
            if DAYS[day.weekday()] in self.days:
                yield _at(day, begin, local), _at(day, end if end > begin else end + 24 * 60, local)


def is_open(windows: Sequence[Window], now: float) -> bool:
    """Tell whether pods may be evicted at `now` (seconds since the epoch); without windows always."""
    return not windows or any(window.is_open(now) for window in windows)


def next_opening(windows: Iterable[Window], now: float) -> float:
    """The next opening of a window after `now`, in seconds since the epoch."""
    return min(window.next_opening(now) for window in windows)


def _at(day: datetime.date, minute: int, local: zoneinfo.ZoneInfo) -> float:
    days, minute_of_day = divmod(minute, 24 * 60)
    time = datetime.time(minute_of_day // 60, minute_of_day % 60)
    return datetime.datetime.combine(day + datetime.timedelta(days=days), time, local).timestamp()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Loops:
    """The number of times an owner's pods are moved when they come back wrong each time. The history is kept on the
    cluster."""

    max_rounds: int = bounded(2, ge=1)
    """Times they are moved by one plugin; then they are left alone."""
    back_off: str = duration_text("10m")
    """Wait before the second time; before each further one twice as long."""
    forget_after: str = duration_text("24h")
    """An owner with nothing wrong for so long starts afresh."""


LOOPS = Loops()
"""Default of a policy that says nothing."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pacing:
    """All of it, as a policy asks for it."""

    windows: tuple[Window, ...] = ()
    loops: Loops = LOOPS
    owner_delay_seconds: float = 0
    """Least time between two evictions among the pods of one owner."""


DEFAULT_PACING = Pacing()
"""No windows, no pauses, and loops end as by default."""


_FIELDS = ("minute", "hour", "day", "month", "day_of_week")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_PART = re.compile(r"(\*|[a-z0-9]+)(?:-([a-z0-9]+))?(?:/([0-9]+))?")
_MOMENTS_AHEAD = 16
_YEAR_SECONDS = 366 * 86400.0
_MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Cron:
    """The moments of an expression."""

    triggers: tuple[CronTrigger, ...]
    local: datetime.tzinfo

    def next_after(self, after: float) -> float:
        """The first moment after this one, both in seconds since the epoch; infinity when there is none."""
        begin = datetime.datetime.fromtimestamp(int(after) + 1, self.local)
        fire_times = (trigger.get_next_fire_time(None, begin) for trigger in self.triggers)
        return min((each.timestamp() for each in fire_times if each is not None), default=float("inf"))

    def longest_gap(self, after: float) -> float:
        """The most seconds between two of the next moments after this one, of a year at most."""
        begin, longest, last = after, 0.0, after + _YEAR_SECONDS
        for _ in range(_MOMENTS_AHEAD):
            if begin == last:
                break
            end = min(self.next_after(begin), last)
            longest, begin = max(longest, end - begin), end
        return longest


@functools.cache
def parse(text: str, time_zone: str = "UTC") -> Cron:
    """Read an expression. ValueError when it is none, or the time zone is not known here.

    >>> parse("0 3 * * *").next_after(0.0)
    10800.0
    """
    from apscheduler.triggers.cron import CronTrigger

    local = zone(time_zone)
    words = _MACROS.get(text.strip().lower(), text).lower().split()
    if len(words) != len(_FIELDS):
        raise ValueError(f"{text!r} is no cron expression: minute hour day month day-of-week, like '0 3 * * 1-5'")
    fields: dict[str, Any] = dict(zip(_FIELDS, words, strict=True))
    try:
        fields["day_of_week"] = _days(fields["day_of_week"])
        both = {"day", "day_of_week"} <= {name for name, word in fields.items() if not word.startswith("*")}
        ways = [{**fields, "day": "*"}, {**fields, "day_of_week": "*"}] if both else [fields]
        return Cron(tuple(CronTrigger(**way, timezone=local) for way in ways), local)
    except ValueError as error:
        raise ValueError(f"{text!r} is no cron expression: {error}") from error


def _days(word: str) -> str:
    """Days of the week by name, one by one: the library counts them from Monday, cron from Sunday."""
    if word == "*":
        return word
    numbers: set[int] = set()
    for text in word.split(","):
        part = _PART.fullmatch(text)
        if part is None:
            raise ValueError(f"{text!r} is no day of the week")
        first, last, step = part.groups()
        begin = 0 if first == "*" else _day(first)
        end = 6 if first == "*" or (step and not last) else _day(last) if last else begin
        if end < begin or step == "0":
            raise ValueError(f"{text!r} is no day of the week")
        numbers.update(day % 7 for day in range(begin, end + 1, int(step or 1)))
    return ",".join(_DAYS[day] for day in sorted(numbers))


def _day(text: str) -> int:
    if text in _DAYS:
        return _DAYS.index(text)
    if text.isascii() and text.isdigit() and int(text) <= 7:
        return int(text)
    raise ValueError(f"{text!r} is no day of the week")
