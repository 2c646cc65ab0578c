"""The outcome of a replay, for programs.

Version 1. Time in seconds since the epoch, CPU in millicores where the name does not say seconds; null is unknown.

    check        kind "koordlite-replay-check": rounds, decisions, first, last, same, wrong, mismatches
    comparison   kind "koordlite-replay": rounds, seconds, beCpuSecondsUsed, beCpuSecondsLost, beCpuSecondsGained,
                 lsSecondsAboveThreshold, recorded and other (the same fields each), points, turns, turnsSeen
    problems     what could not be read of the record
"""

from __future__ import annotations

from collections.abc import Iterable

from koordlite.model.decision import Decision
from koordlite.model.errors import Problem
from koordlite.replay.compare import Comparison
from koordlite.replay.verify import Verification
from koordlite.report.json.run_report import Object, decided, fields
from koordlite.report.present import Figures

VERSION = 1


def check(found: Verification, problems: Iterable[Problem] = ()) -> Object:
    """A check as plain values."""
    mismatches = [
        {**fields(each), "recorded": _decision(each.recorded), "again": _decision(each.again)}
        for each in found.mismatches
    ]
    head = {"version": VERSION, "kind": "koordlite-replay-check", **fields(found), "same": found.same}
    return {**head, "mismatches": mismatches, "problems": [fields(problem) for problem in problems]}


def comparison(found: Comparison, problems: Iterable[Problem] = ()) -> Object:
    """A comparison as plain values."""
    turns = [
        {**fields(turn), "recorded": _decision(turn.recorded), "other": _decision(turn.other)} for turn in found.turns
    ]
    points = [{"recorded": _figures(point.recorded), "other": _figures(point.other)} for point in found.points]
    return {
        "version": VERSION,
        "kind": "koordlite-replay",
        **fields(found),
        "recorded": fields(found.recorded),
        "other": fields(found.other),
        "points": points,
        "turns": turns,
        "problems": [fields(problem) for problem in problems],
    }


def _decision(decision: Decision | None) -> Object | None:
    return None if decision is None else decided(decision)


def _figures(numbers: Figures) -> Object:
    every = fields(numbers)
    return {**{name: every[name] for name in _DRAWN}, "wall": numbers.time}


_DRAWN = ("capacityMilli", "thresholdMilli", "nodeCpu", "prodCpu", "beCpu", "beLimit", "beBudget")
