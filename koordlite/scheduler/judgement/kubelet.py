"""Nodes on which kubelet decides: its topology manager's admission is predicted from the report; nothing is written."""

from __future__ import annotations

import functools
from collections.abc import Iterator

from koordlite.model.quantity import Quantity
from koordlite.numa.nrt import filter as nrt
from koordlite.numa.nrt import score as nrt_score
from koordlite.reservation.pods import PodShape
from koordlite.scheduler.judgement import reserved
from koordlite.scheduler.judgement.nodes import JudgeSettings, Row, Score, Verdict
from koordlite.scheduler.judgement.reports import Report

NAME = "kubelet"
INVALID = "invalid node topology data"
"""Upstream's text for a node about which nothing may be concluded at present."""
SINGLE, RESTRICTED = "single-numa-node", "restricted"
_NOT_ALIGNED = Verdict(NAME, why="kubelet aligns nothing that the pod asks for")
_NO_REPORT = Verdict(NAME, why="no NodeResourceTopology: its NUMA nodes are unknown")
_NO_POLICY = Verdict(NAME, why="kubelet's topology manager admits every pod here")


def verdict(shape: PodShape, row: Row, settings: JudgeSettings) -> Verdict:
    """Predict whether kubelet's topology manager admits a pod like `shape`."""
    if shape.best_effort or not shape.aligned:
        return _NOT_ALIGNED
    if row.unusable:
        return Verdict(NAME, INVALID, why=row.unusable)
    report = row.report
    if report is None:
        return _NO_REPORT
    fit = _fit(shape, row, report, settings)
    if fit is None:
        return _NO_POLICY
    if fit.why_not:
        return Verdict(NAME, fit.why_not)
    return _admitted(tuple((part.name or "*", nodes) for part, nodes in fit.placed))


def refusal(shape: PodShape, row: Row, settings: JudgeSettings) -> str:
    """The refusal of `verdict` alone, which is asked about thousands of nodes."""
    if shape.best_effort or not shape.aligned:
        return ""
    if row.unusable:
        return INVALID
    fit = _fit(shape, row, row.report, settings) if row.report is not None else None
    return fit.why_not if fit is not None else ""


def placed(shape: PodShape, row: Row, settings: JudgeSettings) -> tuple[tuple[nrt.Part, tuple[int, ...]], ...]:
    """The NUMA nodes of each part of the pod, where it is admitted and aligned."""
    if shape.best_effort or not shape.aligned or row.unusable or row.report is None:
        return ()
    fit = _fit(shape, row, row.report, settings)
    return fit.placed if fit is not None and not fit.why_not else ()


def _fit(shape: PodShape, row: Row, report: Report, settings: JudgeSettings) -> nrt.Fit | None:
    """None: the policy admits every pod."""
    policy: nrt.Policy
    if report.policy == SINGLE:
        policy = "single-numa-node"
    elif report.policy == RESTRICTED and settings.check_restricted:
        policy = "restricted"
    else:
        return None
    return nrt.admit(
        shape.request,
        policy,
        zones=row.zones,
        at_most=row.at_most or row.zones,
        totals=report.totals,
        scope=report.scope,
    )


@functools.lru_cache(maxsize=4096)
def _admitted(placed: tuple[tuple[str, tuple[int, ...]], ...]) -> Verdict:
    """Few of them differ, and thousands of nodes share them."""
    return Verdict(NAME, numa_nodes=tuple(sorted({node for _, nodes in placed for node in nodes})), placed=placed)


def score(shape: PodShape, row: Row, settings: JudgeSettings) -> Score:
    """The score of the strategy in `settings`, with its terms. Source: scheduler-plugins score.go."""
    total, report = points(shape, row, settings), row.report
    if not shape.guaranteed:
        return Score(total, {"class": "not Guaranteed: every node is as good"})
    if report is None or row.unusable:
        return Score(total, {"report": "none that can be used"})
    terms: dict[str, int | str] = {"policy": report.policy, settings.strategy: _by_amounts(shape, row, settings)}
    if settings.numa_distance:
        terms["NUMADistance"] = _near(shape, row)
    return Score(total, terms)


def points(shape: PodShape, row: Row, settings: JudgeSettings) -> int:
    """The score alone, 0 to 100."""
    total = _by_amounts(shape, row, settings)
    if not settings.numa_distance or not shape.guaranteed or row.report is None or row.unusable:
        return total
    return nrt_score.blended(total, _near(shape, row))


def _near(shape: PodShape, row: Row) -> int:
    """Distance between the NUMA nodes on which kubelet's managers would put the pod."""
    report = row.report
    if report is None or report.policy not in (SINGLE, RESTRICTED, "best-effort"):
        return 0
    if report.policy == SINGLE:
        return nrt_score.NEAREST
    return nrt_score.nearness_of_parts(shape.request.of_scope(report.scope), row.zones, report.costs)


def _by_amounts(shape: PodShape, row: Row, settings: JudgeSettings) -> int:
    report, strategy = row.report, settings.strategy
    if not shape.guaranteed:
        return nrt_score.FULL
    if report is None or row.unusable or (report.policy != SINGLE and strategy != nrt_score.LEAST_NUMA_NODES):
        return 0
    if strategy == nrt_score.LEAST_NUMA_NODES:
        return nrt_score.score(
            shape.request,
            zones=row.zones,
            costs=report.costs,
            scope=report.scope,
            strategy=strategy,
            max_numa_nodes=report.max_numa_nodes,
        )
    asked = shape.extra.get(report.scope)
    if asked is None:
        asked = shape.extra[report.scope] = nrt_score.weighted(shape.request.of_scope(report.scope), settings.weights)
    units = row.extra.get("units") or row.once("units", lambda: nrt_score.whole_units(_free(row)))
    return nrt_score.mean_score(asked, units, strategy)


def _free(row: Row) -> nrt.Zones:
    """Amounts by NUMA node, none above what the node has beside its own reservation."""
    most = reserved.room(row)
    if not most:
        return row.zones
    return {
        node: {name: min(nano, most.get(name, nano)) for name, nano in zone.items()} for node, zone in row.zones.items()
    }


def shortage(shape: PodShape, row: Row) -> Iterator[str]:
    """Reason why a pod is not admitted, with numbers: for each resource of each part, what every NUMA node has."""
    report = row.report
    if report is None:
        return
    for part in shape.request.of_scope(report.scope):
        for name, amount, counted in part.wanted:
            zones = {node: zone[name] for node, zone in row.zones.items() if name in zone}
            if counted and zones and max(zones.values()) < amount:
                where = part.name and f"container {part.name}"
                there = ", ".join(f"NUMA node {node} has {_said(left)}" for node, left in sorted(zones.items()))
                yield f"{where or 'the pod'} asks {name} {_said(amount)}; {there}"


def _said(nano: int) -> str:
    """An amount for people: large ones as binary units."""
    return str(Quantity(nano, "BinarySI" if nano >= 2**20 * nrt.NANO else "DecimalSI"))
