"""The outcome of a replay, for programs.

Version 1. Time in seconds since the epoch, CPU in millicores where the name does not say seconds; null is unknown.

    check        kind "koordlite-replay-check": rounds, decisions, first, last, same, wrong, mismatches
    comparison   kind "koordlite-replay": rounds, seconds, beCpuSecondsUsed, beCpuSecondsLost, beCpuSecondsGained,
                 lsSecondsAboveThreshold, recorded and other (the same fields each), points, turns, turnsSeen
    problems     what could not be read of the record
"""

from __future__ import annotations

from collections.abc import Iterable

from koordlite.model.errors import Problem
from koordlite.replay.compare import Comparison
from koordlite.replay.verify import Divergence, Verification
from koordlite.report.json.run_report import Object, decided, fields
from koordlite.report.node_figures import Figures

VERSION = 1
_DRAWN = ("capacityMilli", "thresholdMilli", "nodeCpu", "prodCpu", "beCpu", "beLimit", "beBudget")


def document(outcome: Verification | Comparison, problems: Iterable[Problem] = ()) -> Object:
    """A check or a comparison as plain values."""
    if isinstance(outcome, Verification):
        head = {"version": VERSION, "kind": "koordlite-replay-check", **fields(outcome), "same": outcome.same}
        parts: Object = {"mismatches": [_divergence(each, "again") for each in outcome.mismatches]}
    else:
        head = {"version": VERSION, "kind": "koordlite-replay", **fields(outcome)}
        parts = {
            "recorded": fields(outcome.recorded),
            "other": fields(outcome.other),
            "points": [{"recorded": _figures(each.recorded), "other": _figures(each.other)} for each in outcome.points],
            "turns": [_divergence(turn, "other") for turn in outcome.turns],
        }
    return {**head, **parts, "problems": [fields(problem) for problem in problems]}


def _divergence(each: Divergence, other: str) -> Object:
    decisions = {"recorded": each.recorded and decided(each.recorded), other: each.other and decided(each.other)}
    return {"wall": each.wall, "strategy": each.strategy, "subject": each.subject, **decisions}


def _figures(numbers: Figures) -> Object:
    every = fields(numbers)
    return {**{name: every[name] for name in _DRAWN}, "wall": numbers.time}
