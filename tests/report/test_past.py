"""What a running agent keeps of its past, and that it stays small."""

from __future__ import annotations

import dataclasses

import pytest
from reported import tick_of

from koordlite import changes
from koordlite.changes.cgroup import CgroupChange
from koordlite.model.cpuset import CPUSet
from koordlite.model.decision import Decision
from koordlite.model.status import AppliedStep, ForeignWrite
from koordlite.report import history as pasts
from koordlite.report.history import ForeignWrites, History
from koordlite.report.tick import Tick

PLACE = changes.parse("kubepods/besteffort/cpuset.cpus")
SHRINK = Decision(
    "besteffort", "shrink", "BECPUBudget", {}, (CgroupChange("kubepods/besteffort", "cpuset.cpus", CPUSet([1])),)
)


def test_the_last_write_of_a_place_is_kept_with_the_decision_that_asked_for_it() -> None:
    past = History({}, {})
    past.add(tick_of(time=1.0, wall=10.0, decisions=(SHRINK,), applied=(AppliedStep(PLACE, "1"),)))
    past.add(tick_of(time=2.0, applied=()))
    write = past.remembered().writes[PLACE]
    assert (write.time, write.wall, write.step.value, write.cause) == (1.0, 10.0, "1", SHRINK)


def test_foreign_writes_are_counted_with_their_rhythm() -> None:
    past = History({}, {})
    for minute in range(30):
        past.add(tick_of(time=60.0 * minute, foreign=(ForeignWrite(PLACE, "1", f"0-{minute}"),)))
    found = past.remembered().foreign[PLACE]
    assert (found.count, found.last.found, found.seconds_apart) == (30, "0-29", 60.0)
    assert len(found.times) == pasts.KEPT_TIMES


@pytest.mark.parametrize("times", [(), (1.0,), (1.0, 61.0)], ids=["none", "one", "two: a coincidence"])
def test_a_rhythm_takes_three_writes(times: tuple[float, ...]) -> None:
    assert ForeignWrites(ForeignWrite(PLACE, "", ""), len(times), times).seconds_apart is None


def test_it_stays_bounded_and_forgets_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pasts, "MAX_PLACES", 3)
    past = History({}, {})
    for number in range(10):
        past.add(tick_of(time=float(number), applied=(AppliedStep(changes.parse(f"p{number}/cpu.quota"), "1"),)))
    assert list(map(str, past.remembered().writes)) == ["p7/cpu.quota", "p8/cpu.quota", "p9/cpu.quota"]


def test_what_was_handed_out_does_not_change_afterwards(ticks: tuple[Tick, ...]) -> None:
    past = History({}, {})
    past.add(ticks[0])
    held = past.remembered()
    before = dataclasses.astuple(held.rows[0]), len(held.events), dict(held.writes)
    for tick in ticks[1:]:
        past.add(tick)
    assert (dataclasses.astuple(held.rows[0]), len(held.events), dict(held.writes)) == before
    assert len(past.remembered().rows) == 241
