"""Moments by a cron expression of five fields in a time zone, as Kubernetes' CronJob understands it.

Days of the week are 0 or 7 for Sunday to 6, or names. Where both days are given, either will do. A moment that
summer time skips comes an hour later by the clock; one that it repeats comes twice. Nothing here asks what time it is.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import re
import zoneinfo
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from apscheduler.triggers.cron import CronTrigger


@functools.cache
def zone(name: str) -> zoneinfo.ZoneInfo:
    """The time zone; ValueError when the tz database of this machine does not have it."""
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(f"{name!r} is not in the tz database of this machine (a name like Europe/Berlin)") from error


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

    def next_after(self, moment: float) -> float:
        """The first moment after this one, both in seconds since the epoch; infinity when there is none."""
        begin = datetime.datetime.fromtimestamp(int(moment) + 1, self.local)
        found = (trigger.get_next_fire_time(None, begin) for trigger in self.triggers)
        return min((each.timestamp() for each in found if each is not None), default=float("inf"))

    def longest_gap(self, moment: float) -> float:
        """The most seconds between two of the next moments after this one, of a year at most."""
        begin, longest = moment, 0.0
        for _ in range(_MOMENTS_AHEAD):
            end = min(self.next_after(begin), moment + _YEAR_SECONDS)
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
    found: set[int] = set()
    for text in word.split(","):
        part = _PART.fullmatch(text)
        if part is None:
            raise ValueError(f"{text!r} is no day of the week")
        first, last, step = part.groups()
        begin = 0 if first == "*" else _day(first)
        end = 6 if first == "*" or (step and not last) else _day(last) if last else begin
        if end < begin or step == "0":
            raise ValueError(f"{text!r} is no day of the week")
        found.update(day % 7 for day in range(begin, end + 1, int(step or 1)))
    return ",".join(_DAYS[day] for day in sorted(found))


def _day(text: str) -> int:
    if text in _DAYS:
        return _DAYS.index(text)
    if text.isascii() and text.isdigit() and int(text) <= 7:
        return int(text)
    raise ValueError(f"{text!r} is no day of the week")
