"""What makes the agent unhealthy, and what makes it unready."""

from __future__ import annotations

import pytest
from reported import tick_of, tick_with

from koordlite.model.decision import Decision, Lacking
from koordlite.report import health

GOOD = tick_of(time=1.0, node="n1", ages={"node": 1.0, "pods": 2.0, "placement": 500.0, "topology write": 500.0})


@pytest.mark.parametrize(
    ("age", "why"),
    [
        (None, "no tick has ended yet"),
        (0.0, ""),
        (3.0, ""),
        (3.1, "the last tick ended 3.1 s ago; one is due every 1 s"),
    ],
)
def test_alive_means_that_rounds_come(age: float | None, why: str) -> None:
    assert health.failing(health.alive(age_seconds=age, period_seconds=1.0)) == why


@pytest.mark.parametrize(
    ("change", "why"),
    [
        pytest.param({}, "", id="all is well; the age of our own report is no input"),
        pytest.param({"node": ""}, "the Node object has not been seen yet", id="no node"),
        pytest.param(
            {"ages": {"pods": 61.0, "node": 3600.0}},
            "node not confirmed for 3600 s; pods not confirmed for 61 s",
            id="stale inputs",
        ),
        pytest.param(
            {"decisions": (Decision("x", "skip", "StrategyFailed", {"error": "KeyError: 1"}, strategy="blkio"),)},
            "blkio: KeyError: 1",
            id="a rule that crashes",
        ),
        pytest.param(
            {
                "decisions": (
                    Decision("x", "skip", "ResctrlRequired", strategy="resctrl", outcome=Lacking("no such hardware")),
                )
            },
            "resctrl is required: no such hardware",
            id="what is required and not there",
        ),
        pytest.param(
            {"because": "no picture of the node: [Errno 5] /proc/stat"},
            "no picture of the node: [Errno 5] /proc/stat",
            id="the last error",
        ),
        pytest.param({"because": "3 writes refused"}, "", id="a refused write is for status, not for readiness"),
        pytest.param(
            {"decisions": (Decision("p", "refuse", "BadBurstAnnotation"),)}, "", id="a wrong annotation is its owner's"
        ),
    ],
)
def test_ready_means_that_it_sees_what_it_has_to(change: dict[str, object], why: str) -> None:
    tick = tick_with(GOOD, **change)  # type: ignore[arg-type]
    assert health.failing(health.ready(tick, stale_seconds=60.0)) == why


def test_every_check_is_a_line() -> None:
    found = health.text(health.ready(tick_with(GOOD, node=""), stale_seconds=60.0))
    assert found.splitlines() == [
        "[-]node the Node object has not been seen yet",
        "[+]inputs ok",
        "[+]strategies ok",
        "[+]hardware ok",
        "[+]picture ok",
    ]
