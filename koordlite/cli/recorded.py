"""A flight record as explanations want it: the tick at a moment, and the hour before it."""

from __future__ import annotations

import collections
import pathlib
from collections.abc import Iterator

from koordlite import fast_path
from koordlite.apply.foreign import ForeignWriters
from koordlite.cli import options
from koordlite.model.decision import Decision
from koordlite.model.errors import InputError, Problem
from koordlite.record.reader import Record
from koordlite.record.round_record import RoundRecord
from koordlite.report import units
from koordlite.report.history import History, Past, Remembered
from koordlite.report.tick import Tick

PAST_SECONDS = 3600.0
NEWEST_PIECES = 2
MOST_MOMENTS = 4000
"""An hour of ticks, and surges between them."""


def at(path: str, wall: float | None) -> tuple[Tick, Remembered]:
    """The last tick up to `wall` (seconds since the epoch; None: of the record), and what was before it.

    InputError when the record has nothing up to then; RecordError when it is none.
    """
    held = _moments(path, wall)
    if not held:
        do = "see when it begins with an earlier or later time, or leave the time out for its last moment"
        raise InputError(Problem(path, "record", "", "it has no moment of that time", do))
    past, history, last = Past(), History({}, {}), Tick(time=0.0)
    for tick in _ticks(held):
        past.add(tick, history.add(tick))
        last = tick
    return last, past.remembered()


def period(record: Record) -> tuple[float, float]:
    """Times of its first and its last round, in seconds since the epoch. InputError when it has none."""
    first = beginning(record)
    last = collections.deque(_newest(str(record.path)), maxlen=1)
    return first, last[0].wall if last else first


def beginning(record: Record) -> float:
    """Time of its first round; reads no more than that one. InputError when it has none."""
    first = next(record.moments(), None)
    if first is None:
        do = "wait until its agent has ended a tick, or name another record"
        raise InputError(Problem(str(record.path), "record", "", "it has no moment yet", do))
    return first.wall


def begin(asked: str, covered: tuple[float, float]) -> tuple[float, str]:
    """From when a record is used for `--since` `asked`, and what to say when that is not what was asked.

    Times ago count from its last moment. A record that begins later is used whole. InputError for a time after its end.
    """
    first, last = covered
    wall = options.time_of(asked, "--since", now=last)
    if wall > last:
        why = f"the record covers {units.moment(first)} to {units.moment(last)}"
        raise InputError(Problem("command line", "--since", asked, why, "ask for an earlier time"))
    if wall >= first:
        return wall, ""
    begins = f"the record begins at {units.moment(first)}, {units.span(last - first)} before its end"
    return first, f"{begins}: all of it is used"


def _moments(path: str, wall: float | None) -> collections.deque[RoundRecord]:
    held: collections.deque[RoundRecord] = collections.deque(maxlen=MOST_MOMENTS)
    for moment in _newest(path) if wall is None else Record(pathlib.Path(path)).moments(since=wall - PAST_SECONDS):
        if wall is not None and moment.wall > wall:
            break
        held.append(moment)
    return held


def _newest(path: str) -> Iterator[RoundRecord]:
    """The moments of the last pieces: a day is not read for its last hour."""
    for file in Record(pathlib.Path(path)).files()[-NEWEST_PIECES:]:
        yield from Record(file).moments()


def _ticks(held: collections.deque[RoundRecord]) -> Iterator[Tick]:
    """The ticks the agent reported then. Who else wrote is found out as the agent does."""
    others = ForeignWriters()
    started, decisions = held[0].snapshot.time, tuple[Decision, ...]()
    for moment in held:
        foreign = others.check(moment.snapshot)
        if moment.new_groups:
            decisions = fast_path.added(decisions, moment.decisions)
        else:
            decisions = fast_path.merged(decisions, moment.decisions) if moment.woken else moment.decisions
        yield Tick(
            time=moment.snapshot.time - started,
            wall=moment.wall,
            snapshot=moment.snapshot,
            decisions=decisions,
            modes={name: section.mode for name, section in moment.settings.items()},
            applied=moment.applied,
            foreign=foreign,
            problems=moment.snapshot.problems,
            woken=moment.woken,
        )
        _note(moment, others)


def _note(moment: RoundRecord, others: ForeignWriters) -> None:
    """Tell what we wrote."""
    done = {step.place for step in moment.applied if step.ok}
    for change in (change for decision in moment.decisions for change in decision.changes):
        if change.place in done:
            if change.gives_back:
                others.forget(change.place)
            else:
                others.wrote(change)
