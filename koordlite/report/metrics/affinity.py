"""Pods that talk to each other as Prometheus metrics; without series while `numaAffinity` is off."""

from __future__ import annotations

import collections
from collections.abc import Iterator

from prometheus_client.core import Metric

from koordlite.report.metrics.families import Sample, gauge
from koordlite.report.tick import Tick

_NODE = ("node",)
_PLACED = frozenset({"NUMAAffinity", "NUMAAffinityDeclared", "NUMAAffinityNamed", "NUMAAffinityFading"})
"""Reasons of pods that are on one NUMA node."""


def families(tick: Tick) -> Iterator[Metric]:
    """What the last count found and cost, and who is placed where."""
    counted = tick.picture.affinity.connections if tick.picture else None
    connections, pairs, uncounted, seconds = (
        (sum(counted.totals.values()), len(counted.talks), len(counted.uncounted), counted.cost_seconds)
        if counted
        else (None,) * 4
    )
    for name, meaning, value in (
        ("connections", "TCP connections that leave their pod", connections),
        ("pairs", "Pairs of pods of the node that talk to each other", pairs),
        ("uncounted_pods", "Pods whose connections are not known", uncounted),
        ("count_seconds", "Time that the last count of connections took", seconds),
    ):
        samples: list[Sample] = [] if value is None else [([tick.node], value)]
        yield gauge(f"koordlite_affinity_{name}", meaning, _NODE, samples)
    yield gauge("koordlite_affinity_pods", "Pods kept on a NUMA node", ("node", "numa_node"), _pods(tick))


def _pods(tick: Tick) -> Iterator[Sample]:
    placed = collections.Counter(str(d.evidence["numa_node"]) for d in tick.decisions if d.reason in _PLACED)
    for node, count in sorted(placed.items()):
        yield [tick.node, node], count
