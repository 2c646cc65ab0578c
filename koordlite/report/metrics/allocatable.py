"""The terms behind batch-cpu and batch-memory as Prometheus metrics, so that a graph shows which of them moved."""

from __future__ import annotations

from prometheus_client.core import GaugeMetricFamily

from koordlite.model import keys
from koordlite.report.tick import Tick

TERMS = ("capacity", "margin", "system", "hp", "result")
"""As in docs/formulas.md, "BE allocatable": by use, the result is capacity − margin − system − hp."""
_MILLI_PER_CORE = 1000
_SUBJECTS = {f"node/{keys.BATCH_CPU}": _MILLI_PER_CORE, f"node/{keys.BATCH_MEMORY}": 1}


def terms(tick: Tick) -> GaugeMetricFamily:
    """CPU in cores, memory in bytes; no series while nothing is worked out."""
    family = GaugeMetricFamily(
        "koordlite_batch_allocatable_term",
        "A term of what best-effort pods may request",
        labels=("node", "resource", "term"),
    )
    for decision in tick.decisions:
        divisor = _SUBJECTS.get(decision.subject)
        if divisor is None or decision.reason != "BatchAllocatable":
            continue
        resource = decision.subject.partition("/")[2]
        for name in TERMS:
            value = decision.evidence.get(name)
            if isinstance(value, int | float):
                family.add_metric([tick.node, resource, name], value / divisor)
    return family
