"""Judged again with its own settings, a record gives every decision it holds."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from koordlite import strategies
from koordlite.changes.eviction import EvictPod
from koordlite.changes.resctrl import SchemataChange
from koordlite.model.decision import CPULimit
from koordlite.model.snapshot import Snapshot
from koordlite.record.reader import Record
from koordlite.record.round_record import RoundRecord
from koordlite.replay import text, verify

Eventful = tuple[Path, list[RoundRecord]]


def test_the_run_has_what_is_hard_to_repeat(eventful: Eventful) -> None:
    _, moments = eventful
    changes = [change for moment in moments for decision in moment.decisions for change in decision.changes]
    assert any(isinstance(change, EvictPod) for change in changes)
    assert any(isinstance(change, SchemataChange) for change in changes)
    assert sum(moment.woken and bool(moment.decisions) for moment in moments) >= 1
    assert any(moment.snapshot.remembered for moment in moments)
    assert any(moment.snapshot.evicted for moment in moments)


def test_what_is_read_is_what_the_agent_had(eventful: Eventful) -> None:
    folder, moments = eventful
    assert list(Record(folder).rounds()) == moments


def test_every_decision_comes_out_as_recorded(eventful: Eventful) -> None:
    folder, moments = eventful
    found = verify.check(Record(folder).rounds())
    assert (found.wrong, found.rounds) == (0, len(moments)), text.text(found)
    assert found.decisions == sum(len(moment.decisions) for moment in moments)
    assert "every decision is the same as recorded" in text.text(found)


def test_a_limit_that_followed_what_services_waited_comes_out_as_recorded(guided: Eventful) -> None:
    folder, moments = guided
    reasons = {d.reason for moment in moments for d in moment.decisions if d.strategy == "cpuSuppress"}
    assert {"WaitCauseUnknown", "ServicesWait", "ServicesDoNotWait"} <= reasons
    found = verify.check(Record(folder).rounds())
    assert (found.wrong, found.rounds) == (0, len(moments)), text.text(found)


def test_a_limit_that_followed_an_objective_comes_out_as_recorded(by_objective: Eventful) -> None:
    folder, moments = by_objective
    decisions = [d for moment in moments for d in moment.decisions if d.strategy == "cpuSuppress"]
    assert {"ServiceObjective", "ObjectiveMissed", "ObjectiveMet"} <= {d.reason for d in decisions}
    limits = [d.outcome.limit_milli for d in decisions if isinstance(d.outcome, CPULimit)]
    assert min(limits) < 0.8 * limits[-1], "best effort gave way, and has its CPU back"
    found = verify.check(Record(folder).rounds())
    assert (found.wrong, found.rounds) == (0, len(moments)), text.text(found)


def test_a_decision_that_was_changed_is_found_and_named(eventful: Eventful) -> None:
    moments = list(eventful[1])
    first, *rest = moments[3].decisions
    moments[3] = msgspec.structs.replace(
        moments[3], decisions=(msgspec.structs.replace(first, reason="Otherwise"), *rest)
    )
    moments[4] = msgspec.structs.replace(moments[4], decisions=moments[4].decisions[:-1])
    found = verify.check(moments)
    assert not found.same
    assert found.wrong == 2
    assert found.mismatches[0].recorded and found.mismatches[0].recorded.reason == "Otherwise"
    assert found.mismatches[1].recorded is None
    assert first.reason in text.text(found)


def test_a_strategy_that_failed_fails_again(eventful: Eventful, monkeypatch: pytest.MonkeyPatch) -> None:
    rules = strategies.discover()

    def fail(seen: Snapshot, config: object) -> tuple[()]:
        raise ZeroDivisionError("nothing to divide by")

    broken = tuple(msgspec.structs.replace(r, decide=fail) if r.name == "cpuSuppress" else r for r in rules)
    monkeypatch.setattr(strategies, "discover", lambda: broken)
    decisions = verify.Judge().decisions(eventful[1][0])
    failed = [decision for decision in decisions if decision.reason == "StrategyFailed"]
    assert [decision.subject for decision in failed] == ["cpuSuppress"]
    assert len({decision.strategy for decision in decisions}) > 5


def test_an_empty_record_says_so() -> None:
    assert text.text(verify.check([])) == "the record is empty\n"
