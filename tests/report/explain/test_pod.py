"""Everything about one pod on one page."""

from __future__ import annotations

import json

import pytest
from reported import tick_of

from koordlite.changes.eviction import EvictPod
from koordlite.model.decision import Decision
from koordlite.report.explain import pod
from koordlite.report.explain.subject import explain
from koordlite.report.history import DecisionEvent, Remembered

GONE = Decision(
    "pod/ns/crunch",
    "evict",
    "ChosenForEviction",
    {"feature": "BEMemoryEvict", "rank": 1, "candidates": 3, "priority": 5500},
    (EvictPod("ns", "crunch", "u1", "memory is short"),),
    "memoryEvict",
)
RULE = Decision(
    "evict/BEMemoryEvict",
    "evict",
    "UseOverThreshold",
    {"used_percent": 90, "threshold_percent": 80, "lower_percent": 70},
)
OTHER = Decision("pod/ns/crunch-2", "hold", "EnoughReleased", {"feature": "BEMemoryEvict", "rank": 2, "candidates": 3})
HELD = Decision("besteffort", "hold", "Disabled")
TICK = tick_of(time=1.0, node="n", decisions=(RULE, GONE, OTHER, HELD))


def test_a_pod_is_told_why_it_goes_its_rank_and_what_made_it_necessary() -> None:
    page = explain("pod crunch", TICK)
    assert "pod/ns/crunch: evict, ChosenForEviction: evicted by BEMemoryEvict: number 1 of 3 candidates" in page
    assert "90 % of the node is used; the threshold is 80 %" in page
    assert "besteffort: hold, Disabled" in page
    assert "crunch-2" not in page


@pytest.mark.parametrize("name", ["crunch", "ns/crunch"])
def test_a_pod_may_be_named_with_its_namespace(name: str) -> None:
    assert pod.decisions(name, TICK.decisions) == [GONE]


def test_a_pod_nobody_decided_about_is_said_to_be_one() -> None:
    assert "no strategy acts on it" in explain("pod quiet", TICK)


def test_earlier_decisions_about_the_pod_are_told() -> None:
    news = [DecisionEvent(5.0, 0.0, GONE), DecisionEvent(6.0, 0.0, OTHER)]
    page = explain("pod crunch", tick_of(time=9.0), Remembered(news))
    assert "earlier:\n  0:05  pod/ns/crunch: evict" in page
    assert "0:06" not in page


def test_json_has_the_decisions_by_section() -> None:
    found = json.loads(explain("pod crunch", TICK, output="json"))
    assert (found["kind"], found["subject"]) == ("koordlite-pod", "crunch")
    assert [d["reason"] for d in found["pod"]] == ["ChosenForEviction"]
    assert [d["reason"] for d in found["evictions"]] == ["UseOverThreshold"]


def test_a_pod_has_to_be_named() -> None:
    with pytest.raises(ValueError, match="name a pod"):
        explain("pod ", TICK)
