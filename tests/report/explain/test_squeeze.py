"""What is told of the time in which best effort was held back, of moments made by hand."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import pytest
from msgspec import structs

from koordlite.changes.eviction import EvictPod
from koordlite.model.decision import Decision
from koordlite.model.picture.usage import Usage, Use
from koordlite.model.snapshot import Snapshot
from koordlite.model.status import AppliedStep
from koordlite.report import night
from koordlite.report.tick import Tick

Second = tuple[int, int, dict[str, int]]
"""Limit and use of best effort in millicores, and the use of services by uid."""


def moments(picture: Snapshot, seconds: Iterable[Second], **more: Any) -> list[Tick]:
    found = []
    for number, (limit, used, services) in enumerate(seconds):
        uses = {uid: Use(milli, 0) for uid, milli in services.items()}
        usage = Usage(Use(8000, 0), uses, {}, best_effort_cpu=used, best_effort_limit=limit)
        snapshot = dataclasses.replace(picture, usage=usage)
        found.append(Tick(wall=1000.0 + number, snapshot=snapshot, **more))
    return found


@pytest.fixture
def services(picture: Snapshot) -> tuple[str, str]:
    """The uids of two pods that are not best effort."""
    first, second, *_ = (pod.uid for pod in picture.pods if not pod.is_best_effort)
    return first, second


def test_the_service_that_rises_while_the_limit_falls_is_the_cause(
    picture: Snapshot, services: tuple[str, str]
) -> None:
    guilty, steady = services
    quiet = [(8000, 2000, {guilty: 500, steady: 3000})] * 6
    squeezed = [(limit, limit, {guilty: 8500 - limit, steady: 3000}) for limit in (4000, 2000, 3000)]
    found = night.squeeze(moments(picture, [*quiet, *squeezed]), 2000.0)
    assert found is not None
    assert (found.seconds, found.held_back_seconds, found.quiet_limit_milli) == (8, 3, 8000)
    assert (found.deepest_milli, found.deepest_at, found.lost_milli_seconds) == (2000, 1007, 4000 + 6000 + 5000)
    (cause,) = found.causes
    name = next(pod.key for pod in picture.pods if pod.uid == guilty)
    assert (cause.name, cause.part, cause.deepest_milli) == (name, 1.0, 6500)
    assert night.text(found).splitlines()[0].startswith("best effort was held back for 3 s of 8 s (38 %)")


def test_best_effort_that_leaves_some_of_its_limit_was_not_held_back(picture: Snapshot) -> None:
    found = night.squeeze(moments(picture, [(4000, 3000, {}), (1000, 900, {}), (0, 0, {})]), 2000.0)
    assert found is not None and found.held_back_seconds == 0
    assert night.text(found).startswith("best effort was never held back: ")


def test_time_without_an_agent_counts_nothing_and_what_comes_after_the_end_is_left_out(picture: Snapshot) -> None:
    seconds = moments(picture, [(1000, 1000, {})] * 6)
    seconds[3:] = [dataclasses.replace(each, wall=each.wall + 500) for each in seconds[3:]]
    found = night.squeeze(seconds, seconds[4].wall)
    assert found is not None
    assert (found.seconds, found.held_back_seconds) == (3, 3)


def test_without_use_there_is_no_story(picture: Snapshot) -> None:
    blind = dataclasses.replace(picture, usage=Usage(None, {}, {}))
    assert night.squeeze([Tick(wall=1.0, snapshot=blind)], 2.0) is None


def test_pods_that_were_evicted_are_named_with_the_strategy_that_asked(picture: Snapshot) -> None:
    change = EvictPod(namespace="ns", name="batch", uid="u", reason="too little memory")
    decision = Decision("ns/batch", "evict", "MemoryEvict", {}, (change,), strategy="memoryEvict")
    tried = AppliedStep(place=change.place, value="evict")
    for ok, evicted in ((True, {"ns/batch": "memoryEvict"}), (False, {})):
        steps = (structs.replace(tried, ok=ok),)
        found = night.squeeze(moments(picture, [(1000, 1000, {})] * 3, decisions=(decision,), applied=steps), 2000.0)
        assert found is not None and found.evicted == evicted
