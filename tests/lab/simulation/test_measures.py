"""Numbers out of samples made by hand."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from koordlite.lab.cluster.scenario import Expectation
from koordlite.lab.simulation import measures
from koordlite.lab.simulation.measures import Amount, Sample
from koordlite.report.node_figures import Figures

NUMBERS = {field.name for field in dataclasses.fields(Figures)}


def sample(time: float, wanted: int = 0, used: int = 0, **more: Any) -> Sample:
    """One second; CPU time of the only pod in seconds."""
    fields = {key: more.pop(key) for key in tuple(more) if key in NUMBERS}
    row = Figures(time=time, **fields) if fields else None
    return Sample(
        time=time, pods={"a/x": Amount(wanted * 1_000_000, used * 1_000_000)}, row=row, **{"restarts": 0, **more}
    )


def expected(measure: Any, **more: Any) -> Expectation:
    return Expectation(measure=measure, **{"least": 0.0, **more})


BUSY = [
    sample(0, be_cpu=0, be_limit=4000, node_cpu=1000, threshold_milli=2000),
    sample(1, 2, 1, be_cpu=3600, be_limit=2000, node_cpu=3000, threshold_milli=2000),
    sample(2, 4, 3, be_cpu=3600, be_limit=1000, node_cpu=1500, threshold_milli=2000, writes=2),
    sample(3, 1, 1, status="degraded", reasons=frozenset({"A"}), restarts=1),
    sample(4, 2, 2, be_cpu=0, be_limit=3000, reasons=frozenset({"A", "B"}), writes=1, restarts=1),
]


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (expected("beLimitCores", value="min"), 1),
        (expected("beLimitCores", value="max"), 4),
        (expected("beLimitCores", value="mean"), 2.5),
        (expected("beLimitCores"), 3),
        (expected("beLimitCores", value="max", start="1s", to="2s"), 2),
        (expected("beLimitCores", start="3s", to="3s"), None),
        (expected("beCoreHours"), 0.002),
        (expected("aboveThresholdSeconds"), 1),
        (expected("wellAboveThresholdSeconds"), 1),
        (expected("writes"), 3),
        (expected("writes", start="3s"), 1),
        (expected("ticksWith", of="A"), 2),
        (expected("degradedSeconds"), 1),
        (expected("pausedSeconds"), 0),
        (expected("restarts"), 1),
        (expected("restarts", start="3s"), 0),
        (expected("unmetPercent", of="a/", to="1s"), 50),
        (expected("unmetPercent", of="a/", to="2s"), 25),
        (expected("usedCores", of="a/", to="2s"), 1.5),
    ],
    ids=lambda value: (
        f"{value.measure} {value.value} {value.of} {value.start}-{value.to}" if hasattr(value, "of") else ""
    ),
)
def test_a_measure(asked: Expectation, found: float | None) -> None:
    assert measures.measure(asked, BUSY) == (None if found is None else pytest.approx(found))


@pytest.mark.parametrize(("node", "seconds"), [(2000, (0, 0)), (2001, (1, 0)), (2999, (1, 0)), (3000, (1, 1))])
def test_the_rounding_to_whole_cpus_is_told_apart(node: int, seconds: tuple[int, int]) -> None:
    samples = [sample(0, node_cpu=0), sample(1, node_cpu=node, threshold_milli=2000)]
    found = measures.figures(samples, frozenset())
    assert (found["aboveThresholdSeconds"], found["wellAboveThresholdSeconds"]) == seconds


def test_what_was_allowed_is_the_limit_that_the_tick_before_left() -> None:
    samples = [sample(0, be_limit=4000), sample(1800, be_cpu=4000, be_limit=1000), sample(3600, be_cpu=1000)]
    found = measures.figures(samples, frozenset())
    assert (found["beCoreHoursAllowed"], found["beCoreHoursUsed"]) == (2.5, 2.5)


def test_a_pod_that_began_anew_counts_from_nothing() -> None:
    # 4 wanted and 3 got before, then 1 and 1, 2 and 2 of its second life: 6 and 5.
    assert measures.measure(expected("unmetPercent", of="a/x"), BUSY) == pytest.approx(100 / 6)


@pytest.mark.parametrize(
    ("bounds", "ok"),
    [
        ({"least": 3.0}, True),
        ({"least": 3.1}, False),
        ({"most": 3.0, "least": None}, True),
        ({"most": 2.9, "least": None}, False),
        ({"least": 2.0, "most": 4.0}, True),
    ],
)
def test_bounds_are_kept(bounds: dict[str, Any], ok: bool) -> None:
    assert measures.check(expected("writes", **bounds), BUSY).ok is ok


def test_a_number_nobody_measured_is_not_as_expected() -> None:
    check = measures.check(expected("batchCores"), BUSY)
    assert (check.ok, check.found) == (False, "nothing was measured")


@pytest.mark.parametrize(("text", "ok"), [("MB:0= 50\n  L3:0=f", True), ("MB:0=5\nL3:0=f", False), ("", False)])
def test_texts_are_the_same_whatever_the_blanks(text: str, ok: bool) -> None:
    asked = Expectation(measure="file", of="/x", equals="MB:0=50\nL3:0=f\n")
    assert measures.check(asked, BUSY, text=text).ok is ok


def test_figures_leave_best_effort_out_of_what_was_unmet() -> None:
    assert measures.figures(BUSY, frozenset({"a/x"}))["unmetPercent"] is None
    assert measures.figures(BUSY, frozenset())["unmetPercent"] == pytest.approx(100 / 6)
