"""Evictions that go on in the background, from picture to picture."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from descheduler.history import past_evictions
from descheduler.history.past_evictions import IN_PROGRESS, Request

ASKED = Request("default", "p", "uid-p", "a", 1000.0)
CONFIRMED = Request("default", "p", "uid-p", "a", 1000.0, confirmed=True)


def moving(cluster: Any) -> None:
    cluster.pod("p", "a", annotations={IN_PROGRESS: "true"})


def ended(phase: str) -> Callable[[Any], None]:
    def make(cluster: Any) -> None:
        cluster.pod("p", "a")["status"]["phase"] = phase

    return make


@pytest.mark.parametrize(
    ("before", "make", "now", "result"),
    [
        pytest.param(ASKED, moving, 1600.0, "", id="taken up, it goes on for as long as it takes"),
        pytest.param(ASKED, lambda c: c.pod("p", "a"), 1600.0, "", id="not taken up, it may wait ten minutes"),
        pytest.param(ASKED, lambda c: c.pod("p", "a"), 1600.5, "Forgotten", id="and is forgotten then"),
        pytest.param(CONFIRMED, lambda c: c.pod("p", "a"), 1001.0, "Failed", id="given up by who took it up"),
        pytest.param(ASKED, lambda c: None, 1001.0, "Evicted", id="the pod is gone"),
        pytest.param(ASKED, ended("Succeeded"), 1001.0, "Evicted", id="the pod has succeeded"),
        pytest.param(ASKED, ended("Failed"), 1001.0, "Failed", id="the pod has failed"),
    ],
)
def test_a_request_goes_on_or_ends(
    cluster: Any, before: Request, make: Callable[[Any], None], now: float, result: str
) -> None:
    cluster.node("a")
    make(cluster)
    going, over = past_evictions.follow({"uid-p": before}, cluster.view(), now)
    assert ([one.result for one in over], list(going)) == (([result], []) if result else ([], ["uid-p"]))


def test_a_restart_finds_the_pods_that_say_they_are_moved(cluster: Any) -> None:
    cluster.node("a")
    moving(cluster)
    going, _ = past_evictions.follow({}, cluster.view(), 5.0)
    assert going == {"uid-p": Request("default", "p", "uid-p", "a", 5.0, confirmed=True)}
    assert list(past_evictions.places(going.values())) == [("a", "default")]
