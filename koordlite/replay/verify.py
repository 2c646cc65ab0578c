"""The decisions on a recorded moment, made by the same rules in the same order as in the agent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

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

    def decisions(self, moment: RoundRecord) -> tuple[Decision, ...]:
        """Decisions of an agent that sees `moment`, with the settings that are in it."""
        if moment.new_groups:
            return fast_path.about(self._about_new_groups(moment), moment.new_groups)
        if moment.woken:
            answers = (d for rule in strategies.limiting() for d in self._of(rule, moment.snapshot, moment))
            return fast_path.allowed(answers)
        return self._in_turn(strategies.discover(), lambda _: moment.snapshot, moment)

    def _about_new_groups(self, moment: RoundRecord) -> tuple[Decision, ...]:
        sight = fast_path.pictures(moment.snapshot, moment.new_groups)
        enforced = [name for name, section in moment.settings.items() if section.mode == "enforce"]
        asking = fast_path.new_group_rules(enforced)
        return self._in_turn([rule for rule in strategies.discover() if rule.name in asking], sight, moment)

    def _in_turn(
        self, rules: Iterable[Strategy], sight: Callable[[Strategy], Snapshot], moment: RoundRecord
    ) -> tuple[Decision, ...]:
        decisions: tuple[Decision, ...] = ()
        for rule in rules:
            asked = strategies.evictees_before(rule, decisions, moment.settings)
            decisions += self._of(rule, sight(rule), moment, asked)
        return decisions

    def _of(
        self, rule: Strategy, snapshot: Snapshot, moment: RoundRecord, asked: frozenset[str] = frozenset()
    ) -> tuple[Decision, ...]:
        try:
            return self._answers.of(rule, snapshot, moment.settings, asked)
        except Exception as error:  # noqa: BLE001 - the agent answers so as well, and goes on
            return (strategies.failed(rule, error),)


def decided_again() -> Callable[[RoundRecord], RoundRecord]:
    """Gives moments with the decisions that follow from their pictures: a mask changes the pictures."""
    judge = Judge()
    return lambda moment: msgspec.structs.replace(moment, decisions=judge.decisions(moment))


class Mismatch(msgspec.Struct, frozen=True):
    """A decision that differs from the record."""

    wall: float
    """When, in seconds since the epoch."""
    strategy: str
    subject: str
    recorded: Decision | None
    """None: the record has none."""
    again: Decision | None
    """None: there is none."""


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """Result of judging a whole record again."""

    rounds: int
    decisions: int
    first: float | None
    """Seconds since the epoch of the first and last moment; None without one."""
    last: float | None
    mismatches: tuple[Mismatch, ...]
    """The first mismatches."""
    wrong: int
    """Number of all mismatches."""

    @property
    def same(self) -> bool:
        """True when every decision came out as recorded."""
        return self.wrong == 0


def check(moments: Iterable[RoundRecord], *, keep: int = 20) -> Verification:
    """Judge every moment with its own settings and compare; `keep` that many mismatches."""
    judge, found = Judge(), list[Mismatch]()
    rounds = decisions = wrong = 0
    first = last = None
    for moment in moments:
        again = judge.decisions(moment)
        rounds, decisions, last = rounds + 1, decisions + len(moment.decisions), moment.wall
        first = moment.wall if first is None else first
        for mismatch in _mismatches(moment, again):
            wrong += 1
            if len(found) < keep:
                found.append(mismatch)
    return Verification(
        rounds=rounds, decisions=decisions, first=first, last=last, mismatches=tuple(found), wrong=wrong
    )


def _mismatches(moment: RoundRecord, again: tuple[Decision, ...]) -> Iterator[Mismatch]:
    """Decision by decision, in order; their order is part of the answer."""
    if again == moment.decisions:
        return
    for number in range(max(len(again), len(moment.decisions))):
        recorded = moment.decisions[number] if number < len(moment.decisions) else None
        now = again[number] if number < len(again) else None
        named = recorded or now
        if recorded != now and named is not None:
            yield Mismatch(moment.wall, named.strategy, named.subject, recorded, now)
