"""Flight records as commands read them: the tick at a time and the hour before it, for explanations, and `koordlite
replay`, which judges a record again with its own settings or with others."""

from __future__ import annotations

import argparse
import collections
import pathlib
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import msgspec

from koordlite import commandline, config, fast_path
from koordlite.apply.foreign import ForeignWriters
from koordlite.cli import asking, options
from koordlite.cli import machine as machines
from koordlite.model import printable
from koordlite.model.decision import Decision
from koordlite.model.errors import InputError, Problem
from koordlite.model.reading import declared
from koordlite.model.slo import config as slo_config
from koordlite.model.slo.settings import Threshold
from koordlite.record.reader import Record
from koordlite.record.round_record import RoundRecord
from koordlite.report import units
from koordlite.report.history import History, Remembered
from koordlite.report.tick import Tick

if TYPE_CHECKING:
    from koordlite.replay.what_if import Other

PAST_SECONDS = 3600.0
NEWEST_PIECES = 2
MOST_MOMENTS = 4000
"""An hour of ticks, and surges between them."""


def at(path: str, wall: float | None) -> tuple[Tick, Remembered]:
    """The last tick up to `wall` (seconds since the epoch; None: of the record), and what was before it.

    InputError when the record has nothing up to then; RecordError when it is none.
    """
    rounds = _rounds(path, wall)
    if not rounds:
        do = "see when it begins with an earlier or later time, or leave the time out for its last moment"
        raise InputError(Problem(path, "record", "", "it has no moment of that time", do))
    history = History({}, {})
    for tick in _ticks(rounds):
        history.add(tick)
    return history.last or Tick(time=0.0), history.remembered()


def period(record: Record) -> tuple[float, float]:
    """Times of its first and its last round, in seconds since the epoch. InputError when it has none."""
    first = beginning(record)
    last = collections.deque(_newest(str(record.path)), maxlen=1)
    return first, last[0].wall if last else first


def beginning(record: Record) -> float:
    """Time of its first round; reads no more than that one. InputError when it has none."""
    first = next(record.rounds(), None)
    if first is None:
        do = "wait until its agent has ended a tick, or name another record"
        raise InputError(Problem(str(record.path), "record", "", "it has no moment yet", do))
    return first.wall


def start_for(since: str, covered: tuple[float, float]) -> tuple[float, str]:
    """Beginning of the used part of a record for `--since`, and a sentence when that is not what was asked.

    Times ago count from its last round. A record that begins later is used whole. InputError for a time after its end.
    """
    first, last = covered
    wall = options.time_of(since, "--since", now=last)
    if wall > last:
        why = f"the record covers {units.moment(first)} to {units.moment(last)}"
        raise InputError(Problem("command line", "--since", since, why, "ask for an earlier time"))
    if wall >= first:
        return wall, ""
    begins = f"the record begins at {units.moment(first)}, {units.span(last - first)} before its end"
    return first, f"{begins}: all of it is used"


def rounds(record: Record, since: float) -> Iterator[Tick]:
    """Its rounds from then on, each with what was decided and written in it alone."""
    for each in record.rounds(since=since):
        yield Tick(
            wall=each.wall,
            snapshot=each.snapshot,
            decisions=each.decisions,
            modes=_modes(each),
            applied=each.applied,
        )


def _rounds(path: str, wall: float | None) -> collections.deque[RoundRecord]:
    rounds: collections.deque[RoundRecord] = collections.deque(maxlen=MOST_MOMENTS)
    for each in _newest(path) if wall is None else Record(pathlib.Path(path)).rounds(since=wall - PAST_SECONDS):
        if wall is not None and each.wall > wall:
            break
        rounds.append(each)
    return rounds


def _newest(path: str) -> Iterator[RoundRecord]:
    """The rounds of the last pieces: a day is not read for its last hour."""
    for file in Record(pathlib.Path(path)).files()[-NEWEST_PIECES:]:
        yield from Record(file).rounds()


def _ticks(rounds: collections.deque[RoundRecord]) -> Iterator[Tick]:
    """The ticks the agent reported then. Who else wrote is found out as the agent does."""
    writers = ForeignWriters()
    started, decisions = rounds[0].snapshot.time, tuple[Decision, ...]()
    for each in rounds:
        foreign = writers.check(each.snapshot)
        if each.new_groups:
            decisions = fast_path.added(decisions, each.decisions)
        else:
            decisions = fast_path.merged(decisions, each.decisions) if each.woken else each.decisions
        yield Tick(
            time=each.snapshot.time - started,
            wall=each.wall,
            snapshot=each.snapshot,
            decisions=decisions,
            modes=_modes(each),
            applied=each.applied,
            foreign=foreign,
            problems=each.snapshot.problems,
            woken=each.woken,
        )
        written = {step.place for step in each.applied if step.ok}
        for change in (change for decision in each.decisions for change in decision.changes):
            if change.place in written and change.gives_back:
                writers.forget(change.place)
            elif change.place in written:
                writers.wrote(change)


def _modes(each: RoundRecord) -> Mapping[str, str]:
    return {name: section.mode for name, section in each.settings.items()}


def replay(args: argparse.Namespace) -> int:
    """Replay a record. Without other settings: 1 when a decision does not come out as recorded. With others: what would
    differ."""
    from koordlite.replay import compare, html, json, text, verify
    from koordlite.report.json.run_report import encode

    other = _other(args)
    record = Record(pathlib.Path(args.record or asking.record_folder(config.named(None).record.folder)))
    covered = period(record)
    since, note = start_for(args.since, covered) if args.since else (None, "")
    if args.output == "text":
        span = f"{units.moment(since or covered[0])} to {units.moment(covered[1])}"
        print(printable.lines(f"{record.path}: {span}"))
    if note:
        print(printable.lines(note), file=sys.stdout if args.output == "text" else sys.stderr)
    outcome: verify.Verification | compare.Comparison
    if other is None:
        with commandline.progress("deciding again"):
            outcome = verify.check(record.rounds(since=since))
    else:
        with commandline.progress("deciding with other settings"):
            outcome = compare.compare(record.rounds(since=since), other)
    if args.output == "json":
        sys.stdout.buffer.write(encode(json.document(outcome, record.problems)))
    elif args.output == "html":
        title = f"koordlite replay of {record.path.name}"
        print(printable.lines(html.document(outcome, record.problems, title=title)))
    else:
        print(printable.lines(text.text(outcome, record.problems)), end="")
    return int(isinstance(outcome, verify.Verification) and not outcome.same)


def _other(args: argparse.Namespace) -> Other | None:
    """Changes by the options; None when they change nothing."""
    from koordlite.kube.folder import manifest_files
    from koordlite.replay.what_if import Other

    if not (args.config or args.set or args.mode or args.strategy):
        return None
    data: Mapping[str, str] | None = None
    settings: config.Settings | None = None
    for path in map(pathlib.Path, args.config):
        config_map = manifest_files.config_map(path)
        if config_map is None:
            settings = config.load(path)
        else:
            data = config_map
    modes = machines.with_modes(config.default(), args).strategies
    named = {text.partition("=")[0] for text in args.strategy}
    return Other(
        settings=settings.strategies if settings else None,
        modes={name: section.mode for name, section in modes.items() if args.mode or name in named},
        config=data,
        threshold=_threshold(args.set),
    )


def _threshold(pairs: list[str]) -> dict[str, object]:
    """`cpuSuppressThresholdPercent=70` and the like as fields of `Threshold`, read as the ConfigMap would be."""
    names = {declared.camel(name): name for name in Threshold.__struct_fields__}
    values: dict[str, object] = {}
    for pair in pairs:
        name, _, text = pair.partition("=")
        if name not in names:
            do = f"write NAME=VALUE with NAME one of {', '.join(names)}"
            raise InputError(Problem("command line", "--set", pair, "no field of resource-threshold-config", do))
        try:
            values[name] = msgspec.json.decode(text)
        except msgspec.DecodeError:
            values[name] = text
    document = msgspec.json.encode({"clusterStrategy": values}).decode()
    slo = slo_config.effective({"resource-threshold-config": document}, labels={}, annotations={}, owner="command line")
    if slo.problems:
        raise InputError(slo.problems)
    return {names[name]: getattr(slo.threshold, names[name]) for name in values}
