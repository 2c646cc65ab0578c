"""The decisions on a recorded moment, made by the same rules in the same order as in the agent."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

import msgspec

from koordlite import fast_path, strategies
from koordlite.model.decision import Decision
from koordlite.model.snapshot import Snapshot
from koordlite.record.round_record import RoundRecord
from koordlite.strategies import Strategy


class Judge:
    """Decides on one moment after the other. What did not change from one to the next is not decided again."""

    def __init__(self) -> None:
        self._answers = strategies.Answers()

    def decisions(self, record: RoundRecord) -> tuple[Decision, ...]:
        """Decisions of an agent that sees the picture of `record`, with the settings that are in it."""
        snapshot, settings = record.snapshot, record.settings
        if record.new_groups:
            pictures = fast_path.pictures(snapshot, record.new_groups)
            names = fast_path.new_group_rules([name for name, section in settings.items() if section.mode == "enforce"])
            rules = [rule for rule in strategies.discover() if rule.name in names]
            return fast_path.about(self._in_turn(rules, pictures, record), record.new_groups)
        if record.woken:
            return fast_path.allowed(d for rule in strategies.limiting() for d in self._of(rule, snapshot, record))
        return self._in_turn(strategies.discover(), lambda _: snapshot, record)

    def _in_turn(
        self, rules: Iterable[Strategy], picture: Callable[[Strategy], Snapshot], record: RoundRecord
    ) -> tuple[Decision, ...]:
        decisions: tuple[Decision, ...] = ()
        for rule in rules:
            evictees = strategies.evictees_before(rule, decisions, record.settings)
            decisions += self._of(rule, picture(rule), record, evictees)
        return decisions

    def _of(
        self, rule: Strategy, snapshot: Snapshot, record: RoundRecord, evictees: frozenset[str] = frozenset()
    ) -> tuple[Decision, ...]:
        try:
            return self._answers.of(rule, snapshot, record.settings, evictees)
        except Exception as error:  # noqa: BLE001 - the agent answers so as well, and goes on
            return (strategies.failed(rule, error),)


def decided_again() -> Callable[[RoundRecord], RoundRecord]:
    """Gives records with the decisions that follow from their pictures: a mask changes the pictures."""
    judge = Judge()
    return lambda record: msgspec.structs.replace(record, decisions=judge.decisions(record))


class Divergence(msgspec.Struct, frozen=True):
    """A subject that is decided otherwise than in the record."""

    wall: float
    """Time of the round, or of the beginning or end of the difference, in seconds since the epoch."""
    strategy: str
    subject: str
    recorded: Decision | None
    """None: the record has none."""
    other: Decision | None
    """The decision made again; None: there is none."""


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """Result of judging a whole record again."""

    rounds: int
    decisions: int
    first: float | None
    """Seconds since the epoch of the first and last moment; None without one."""
    last: float | None
    mismatches: tuple[Divergence, ...]
    """The first mismatches."""
    wrong: int
    """Number of all mismatches."""

    @property
    def same(self) -> bool:
        """True when every decision came out as recorded."""
        return self.wrong == 0


def check(records: Iterable[RoundRecord], *, keep: int = 20) -> Verification:
    """Judge every round with its own settings and compare, decision by decision, in order: their order is part of the
    answer. `keep` that many mismatches."""
    judge, mismatches = Judge(), list[Divergence]()
    rounds = decisions = wrong = 0
    first = last = None
    for record in records:
        answers = judge.decisions(record)
        rounds, decisions, last = rounds + 1, decisions + len(record.decisions), record.wall
        first = record.wall if first is None else first
        pairs = itertools.zip_longest(record.decisions, answers) if answers != record.decisions else ()
        for recorded, now in pairs:
            named = recorded or now
            if recorded != now:
                wrong += 1
                if wrong <= keep:
                    mismatches.append(Divergence(record.wall, named.strategy, named.subject, recorded, now))
    return Verification(
        rounds=rounds, decisions=decisions, first=first, last=last, mismatches=tuple(mismatches), wrong=wrong
    )
