"""Optimal NUMA distance: how near together the NUMA nodes are that a pod gets on a node, as a part of the score."""

from __future__ import annotations

from collections.abc import Sequence

from koordlite.numa.nrt import filter as nrt
from koordlite.numa.nrt import score as nrt_score
from koordlite.numa.nrt.score import Costs
from koordlite.reservation.pods import PodShape
from koordlite.scheduler.judgement.nodes import Row

NEAREST = 100
_LOCAL = 10
"""The distance of a NUMA node to itself, as firmware writes it."""


def nearness(nodes: Sequence[int], costs: Costs) -> int:
    """100 for one NUMA node; else 100 × 10 / mean distance over all ordered pairs, so 64 for two nodes 21 apart. A
    distance that is not reported counts 255."""
    if len(nodes) < 2:
        return NEAREST
    return NEAREST * _LOCAL * len(nodes) ** 2 // max(1, nrt_score.distance(nodes, costs))


def blended(total: int, near: int) -> int:
    """The score of a node by its amounts and by the distance of the NUMA nodes, each half."""
    return (total + near) // 2


def of_shape(shape: PodShape, row: Row) -> int:
    """Distance of the part of the pod that is worst off, by the fewest NUMA nodes that have enough, the nearest of
    them; 0 where all of them together have too little."""
    report, worst = row.report, NEAREST
    if report is None:
        return 0
    zones = row.zones
    for part in shape.request.of_scope(report.scope):
        if nrt_score.only_elsewhere(zones, {name: amount for name, amount, _ in part.wanted}):
            continue
        found = nrt_score.nodes_required(part, zones, report.costs)
        if found is None:
            return 0
        worst = min(worst, nearness(found[0], report.costs))
        if part.kind != "init":
            zones = nrt.without(zones, found[0], part.taken)
    return worst
