"""The node's promises and how they came about: every term of the formulas under each name that is in use for it.

A term is called one thing in our evidence, another in Koordinator's messages, and a third in Koordinator's design
document and articles. They are set side by side, so that numbers can be compared with either.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from koordlite import strategies
from koordlite.model import keys
from koordlite.model.decision import Decision, Evidence
from koordlite.report import paragraph, units
from koordlite.report.explain import decided
from koordlite.report.explain.pieces import Answer
from koordlite.report.history import Remembered
from koordlite.report.sentence import sentence
from koordlite.report.tick import Tick
from koordlite.strategies.shared.offer import SETTLING

Value = int | float | str
Names = Mapping[str, tuple[str, str]]
"""Our name of a term → Koordinator's in its messages, and the design document's; empty where it has none."""

BATCH: Names = {
    "result": ("batchAllocatable", "BE.alloc"),
    "capacity": ("nodeCapacity", "node.alloc"),
    "margin": ("nodeSafetyMargin", "node.reserved"),
    "system": ("systemUsageOrNodeReserved", "system.used"),
    "hp": ("podHP…", "pod(LS).used"),
    "node_reserved": ("nodeReserved", "node.anno.reserved"),
    "system_used": ("systemUsage", ""),
    "hp_used": ("podHPUsed", "pod(LS).used"),
    "hp_request": ("podHPRequest", ""),
    "hp_max_used_request": ("podHPMaxUsedRequest", ""),
    "cap": ("nodeCapacity × thresholdRatio", ""),
    "policy": ("calculatePolicy", ""),
    "normalization_ratio": ("cpu-normalization-ratio", ""),
    "offered": ("originExtendedAllocatable", ""),
    "third_party": ("thirdPartyAllocations", ""),
    "left": ("node.status.allocatable", ""),
}
MID: Names = {
    "result": ("midAllocatable", ""),
    "mode": ("midReclaimMode", ""),
    "node_capacity": ("NodeCapacity", "node.alloc"),
    "prod_reclaimable": ("ProdReclaimable", ""),
    "by_pod": ("podReclaimablePredictor", ""),
    "by_priority": ("priorityReclaimablePredictor", ""),
    "cold_seconds": ("prediction-cold-start-duration", ""),
    "node_unused": ("NodeUnused", ""),
    "unallocated": ("Unallocated", ""),
    "unallocated_percent": ("midUnallocatedRatio", ""),
    "static_percent": ("staticReservedPercent", ""),
    "threshold_percent": ("thresholdRatio", ""),
}
FORMULAS = {
    "batch": "result = min(max(capacity − margin − system − hp, 0), cap)",
    "mid": "result = min(max(min(prod reclaimable, node unused), 0) + unallocated × %, node capacity × threshold %)",
}
NO_ZONES = "no NUMA zone is published for this node, so none is offered anything"


class TermRow(msgspec.Struct, frozen=True):
    """One term for CPU (millicores) and memory (bytes); None where it plays no part."""

    term: str
    koordinator: str
    document: str
    cpu: Value | None
    memory: Value | None


class Table(msgspec.Struct, frozen=True):
    """One offer: of the node or of a zone, batch or mid."""

    title: str
    kind: str
    """`batch` or `mid`."""
    rows: tuple[TermRow, ...]
    notes: tuple[str, ...] = ()
    """Text in place of numbers, or beside them."""


def answer(subject: str, tick: Tick, past: Remembered) -> Answer:
    """The tables; the decisions about `subject` where none is about an offer."""
    offers = tables(tick.decisions)
    document = {"tables": [msgspec.to_builtins(table) for table in offers]}
    if offers:
        return Answer(text(offers).removesuffix("\n").split("\n"), document)
    fallback = decided.answer(subject, tick, past)
    return Answer(fallback.lines, {**document, **fallback.document})


def tables(decisions: Sequence[Decision]) -> tuple[Table, ...]:
    """The tables for this tick's decisions; none where no decision is about an offer."""
    zones = []
    for decision in decisions:
        if decision.kind == "zone":
            cpu, memory = _ending(decision.evidence, "_milli", "cpu_"), _ending(decision.evidence, "_bytes", "memory_")
            rows = tuple(_rows(BATCH, cpu, memory))
            notes = () if rows and decision.reason != SETTLING else (sentence(decision),)
            zones.append(Table(f"{decision.subject}, batch", "batch", rows, notes))
    batch = _of_node(decisions, "batch", BATCH, (keys.BATCH_CPU, keys.BATCH_MEMORY))
    if batch and batch.rows and not zones:
        batch = msgspec.structs.replace(batch, notes=(*batch.notes, NO_ZONES))
    mid = _of_node(decisions, "mid", MID, (keys.MID_CPU, keys.MID_MEMORY))
    return tuple(table for table in (batch, *zones, mid) if table)


def _of_node(decisions: Sequence[Decision], kind: str, names: Names, resources: tuple[str, str]) -> Table | None:
    pair = [next((d for d in decisions if d.subject == f"node/{resource}"), None) for resource in resources]
    of_kind = strategies.publishing(*resources)
    other = [d for d in decisions if d.strategy in of_kind and d.subject == "node"]
    rows = tuple(_rows(names, *(d.evidence if d and "result" in d.evidence else {} for d in pair)))
    in_words = [d for d in (*pair, *other) if d and ("result" not in d.evidence or d.reason == SETTLING)]
    notes = tuple(dict.fromkeys(sentence(d) for d in in_words))
    return Table(f"node, {kind}", kind, rows, notes) if rows or in_words else None


def _ending(evidence: Evidence, unit: str, prefix: str) -> Evidence:
    """The evidence of one resource in a zone, under the names the node's has."""
    amounts = {name.removesuffix(unit): value for name, value in evidence.items() if name.endswith(unit)}
    words = {name.removeprefix(prefix): value for name, value in evidence.items() if name.startswith(prefix)}
    return {**amounts, **words}


def _rows(names: Names, cpu: Evidence, memory: Evidence) -> Iterator[TermRow]:
    for term, (koordinator, article) in names.items():
        if term in cpu or term in memory:
            yield TermRow(term, koordinator, article, cpu.get(term), memory.get(term))


def text(offers: Sequence[Table]) -> str:
    """The tables as lines."""
    lines: list[str] = []
    for table in offers:
        lines.append(f"{table.title}: {FORMULAS[table.kind]}" if table.rows else table.title)
        rows = [("term", "Koordinator's messages", "design document", "CPU (cores)", "memory")] if table.rows else []
        for row in table.rows:
            amounts = _shown(row.term, row.cpu, "milli"), _shown(row.term, row.memory, "bytes")
            rows.append((row.term.replace("_", " "), row.koordinator, row.document, *amounts))
        lines += [
            *(f"  {line}" for line in paragraph.columns(rows, "<<<>>")),
            *(f"  {note}" for note in table.notes),
            "",
        ]
    return "\n".join(lines)


def _shown(term: str, value: Value | None, unit: str) -> str:
    """A thousandth of a CPU is the unit of the formulas, so all three decimals are shown."""
    if value is None:
        return "–"
    if unit == "milli" and not isinstance(value, str) and not units.has_unit(term):
        return f"{value / 1000:.3f}"
    return units.bare(term if units.has_unit(term) else f"{term}_{unit}", value)
