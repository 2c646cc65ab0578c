"""What strategies ask for besides the usual: use of containers, throttling, means over other windows."""

from __future__ import annotations

import pytest
from emulated import Emulated

from koordlite.model.slo import SLO
from koordlite.model.snapshot import Snapshot
from koordlite.observe import Observer
from koordlite.observe.wants import Wants


def looks(node: Emulated, wants: Wants, count: int) -> list[Snapshot]:
    def asked(_slo: SLO) -> Wants:
        return wants

    observer = Observer(node.host(), node.cluster, tasks_seconds=5.0, wanted=asked)
    seen = []
    for _ in range(count):
        seen.append(observer.observe())
        node.sandbox.advance(1.0)
    return seen


def test_containers_are_looked_at_only_when_asked_for(node: Emulated) -> None:
    assert looks(node, Wants(), 3)[-1].usage.containers == {}


def test_a_container_has_use_and_throttling_from_its_second_look(node: Emulated) -> None:
    first, *_, last = looks(node, Wants(frozenset({"cpu.stat"}), (2,)), 4)
    groups = {group for place in last.places.values() for group in place.containers.values()}
    assert (first.usage.containers, first.usage.throttled) == ({}, {})
    assert set(last.usage.containers) == set(last.usage.throttled) == groups != set()
    assert all(0 <= ratio <= 1 for ratio in last.usage.throttled.values())
    assert last.average.containers == {}, "five minutes of every container would be large"
    assert set(last.windows[2].containers) == groups


@pytest.mark.parametrize(("seconds", "samples"), [(2, 3), (5, 6), (100, 8)])
def test_a_window_holds_what_its_seconds_hold(node: Emulated, seconds: int, samples: int) -> None:
    last = looks(node, Wants(windows=(seconds,)), 9)[-1]
    assert last.windows[seconds].samples == samples


def test_best_effort_request_and_limit_are_averaged_with_the_rest(node: Emulated) -> None:
    last = looks(node, Wants(windows=(5,)), 4)[-1]
    assert last.usage.best_effort_request == last.windows[5].best_effort_request == 1000
    assert last.usage.best_effort_limit == last.windows[5].best_effort_limit == 4000
