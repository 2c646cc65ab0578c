"""The edge above which the agent wakes early stands on the typed result of a decision, not on its evidence."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from emulated import Emulated

from koordlite import fast_path
from koordlite.changes.cgroup import CgroupChange
from koordlite.model.decision import CPULimit, Decision
from koordlite.model.snapshot import Snapshot
from koordlite.model.status import AppliedStep

BAND_PERCENT = 1.0


@pytest.fixture
def judged(emulate: Callable[[str], Emulated]) -> tuple[Snapshot, tuple[Decision, ...]]:
    """A picture of a node whose best effort is held by quota, and what was decided on it."""
    node = emulate("small")
    node.slo(policy="cfsQuota", percent=90)
    with node.at_work() as agent:
        node.ticks(agent, 4)
    assert agent.last_round
    return agent.last_round.snapshot, agent.last_round.decisions


def with_limit(decisions: tuple[Decision, ...], **limits: int) -> tuple[Decision, ...]:
    """The same decisions, with another result of the rule that limits best effort."""
    return tuple(
        msgspec.structs.replace(d, outcome=msgspec.structs.replace(d.outcome, **limits))  # type: ignore[arg-type]
        if isinstance(d.outcome, CPULimit)
        else d
        for d in decisions
    )


def edge(seen: Snapshot, decisions: tuple[Decision, ...], applied: tuple[AppliedStep, ...] = (), **other: Any) -> Any:
    modes = {"cpuSuppress": other.get("mode", "enforce")}
    return fast_path.edge_milli(decisions, applied, seen, modes=modes, band_percent=BAND_PERCENT)


def test_the_edge_follows_the_result_and_not_the_evidence(judged: tuple[Snapshot, tuple[Decision, ...]]) -> None:
    seen, decisions = judged
    others, capacity = seen.usage.others_milli, seen.node.capacity_milli if seen.node else 0
    assert others is not None
    decisions = with_limit(decisions, budget_milli=5000, limit_milli=3000)
    blank = tuple(msgspec.structs.replace(d, evidence={}) for d in decisions)
    assert edge(seen, decisions) == edge(seen, blank) == others + 5000 - 3000 + capacity // 100


def test_a_refused_write_leaves_the_limit_before_it(judged: tuple[Snapshot, tuple[Decision, ...]]) -> None:
    seen, decisions = judged
    decisions = with_limit(decisions, budget_milli=5000, present_milli=4000, limit_milli=3000)
    change = CgroupChange("kubepods/besteffort", "cpu.quota", 300_000)
    decisions = tuple(msgspec.structs.replace(d, changes=(change,)) if d.outcome else d for d in decisions)
    done, refused = (AppliedStep(change.place, "300000", ok, "" if ok else "refused") for ok in (True, False))
    assert edge(seen, decisions, (done,)) == edge(seen, decisions)
    assert edge(seen, decisions, (refused,)) == edge(seen, decisions) - 1000


@pytest.mark.parametrize("mode", ["observe", "off"])
def test_what_is_not_enforced_wakes_nobody(judged: tuple[Snapshot, tuple[Decision, ...]], mode: str) -> None:
    assert edge(*judged, mode=mode) is None


def test_a_limit_that_cannot_shrink_wakes_nobody(judged: tuple[Snapshot, tuple[Decision, ...]]) -> None:
    seen, decisions = judged
    assert edge(seen, with_limit(decisions, limit_milli=20)) is None, "2000 µs of 100 ms is the least"
    assert edge(seen, with_limit(decisions, limit_milli=21)) is not None


def test_without_best_effort_or_a_sample_nobody_is_woken(judged: tuple[Snapshot, tuple[Decision, ...]]) -> None:
    seen, decisions = judged
    assert edge(dataclasses.replace(seen, pods=()), decisions) is None
    blind = dataclasses.replace(seen, usage=msgspec.structs.replace(seen.usage, node=None))
    assert edge(blind, decisions) is None


def test_once_half_a_second_of_the_node_is_owed_nothing_more_is_taken_between_ticks(
    judged: tuple[Snapshot, tuple[Decision, ...]],
) -> None:
    seen, decisions = judged
    assert seen.node
    half = seen.node.capacity_milli // 2
    assert edge(seen, with_limit(decisions, owed_milli_seconds=half)) is not None
    assert edge(seen, with_limit(decisions, owed_milli_seconds=half + 1)) is None
