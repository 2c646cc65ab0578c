"""The night that an agent keeps by minutes, against the story of the same rounds in a flight record."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reported import tick_of

from koordlite.changes.eviction import EvictPod
from koordlite.model.decision import Decision
from koordlite.model.picture.usage import Pressure, Stall, Usage, Use
from koordlite.model.snapshot import Snapshot
from koordlite.model.status import AppliedStep
from koordlite.report.night import HOURS, Night, NightLog, squeeze

EVICTED = EvictPod(namespace="ns", name="batch", uid="u", reason="too little memory")
STEP = AppliedStep(place=EVICTED.place, value="evict")


def picture_of(picture: Snapshot, limit: int, used: int) -> Snapshot:
    return dataclasses.replace(
        picture, usage=Usage(Use(8000, 0), {}, {}, best_effort_cpu=used, best_effort_limit=limit)
    )


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from((0, 2000, 4000, 9000)), st.integers(0, 9000)), min_size=2, max_size=30))
def test_it_says_of_minutes_with_one_limit_what_the_record_says(
    picture: Snapshot, minutes: list[tuple[int, int]]
) -> None:
    log, moments = NightLog(), []
    for second in range(0, 60 * len(minutes), 5):
        # The time up to a tick is counted by the tick.
        limit, used = minutes[second // 60]
        judged = picture_of(picture, limit, min(used, limit))
        moments.append(tick_of(time=float(second), wall=1e9 + second, snapshot=judged))
        log.add(moments[-1])
    night, told = log.night(), squeeze(moments, 2e9)
    assert told is not None
    assert (night.seconds, night.held_back_seconds) == (told.seconds, told.held_back_seconds)
    assert (night.deepest_milli or 0, night.deepest_at or 0.0) == (told.deepest_milli, told.deepest_at)
    assert night.lost_core_hours == pytest.approx(told.lost_milli_seconds / 3.6e6)
    used = sum(5 * min(minutes[second // 60]) for second in range(5, 60 * len(minutes), 5))
    assert night.used_core_hours == pytest.approx(used / 3.6e6)


def test_evictions_and_restores_count_and_what_is_older_than_the_night_does_not(picture: Snapshot) -> None:
    log, judged = NightLog(), picture_of(picture, 2000, 2000)
    evict = Decision("ns/batch", "evict", "MemoryEvict", {}, (EVICTED,), strategy="memoryEvict")
    log.add(tick_of(time=0.0, wall=1.0, snapshot=judged, decisions=(evict,), applied=(STEP,), restored=7))
    refused = AppliedStep(EVICTED.place, "", ok=False)
    log.add(tick_of(time=60.0, wall=61.0, snapshot=judged, decisions=(evict,), applied=(refused,)))
    assert (log.night().evictions, log.night().restores) == (1, 7)
    log.add(tick_of(time=HOURS * 3600.0, wall=HOURS * 3600.0, status="enforcing", snapshot=judged))
    night = log.night()
    assert (night.evictions, night.restores, night.begin, night.status) == (0, 0, 61.0, "enforcing")
    assert night.seconds == 0, "the agent was away in between"


def test_of_services_the_one_that_waited_most_counts(picture: Snapshot) -> None:
    service = next(pod for pod in picture.pods if not pod.is_best_effort)
    batch = next(pod for pod in picture.pods if pod.is_best_effort)
    log, judged = NightLog(), picture_of(picture, 4000, 0)
    for second, part in ((59, 0.0), (60, 10.0), (61, 20.0), (120, 0.0), (121, 3.0)):
        waits = {f"pod/{pod.key}": {"cpu": stalled(part * times)} for pod, times in ((service, 1), (batch, 5))}
        log.add(tick_of(time=float(second), wall=float(second), snapshot=judged, pressure=waits))
    night = log.night()
    assert (night.service_wait_percent, night.service_wait_most_percent) == (11.0, 15.0)


def stalled(percent: float) -> Pressure:
    return Pressure(Stall(percent, 0.0, 0.0, 0), Stall(0.0, 0.0, 0.0, 0))


def test_before_the_first_tick_nothing_is_known(picture: Snapshot) -> None:
    log = NightLog()
    assert log.night() == Night()
    log.add(tick_of(time=1.0))
    assert log.night() == Night()
