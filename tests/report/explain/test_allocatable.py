"""Every term of what the node promises, under each name that is in use for it."""

from __future__ import annotations

import json

import msgspec
import pytest
from reported import tick_of

from koordlite.model import keys
from koordlite.model.decision import Decision
from koordlite.report.explain import allocatable, subject

GIB = 2**30
CPU = Decision(
    f"node/{keys.BATCH_CPU}",
    "set",
    "BatchAllocatable",
    {"result": 12523, "capacity": 32000, "hp": 9500, "policy": "usage", "normalization_ratio": 1.2},
    strategy="beAllocatable",
)
MEMORY = Decision(
    f"node/{keys.BATCH_MEMORY}",
    "set",
    "BatchAllocatable",
    {"result": 85 * GIB, "capacity": 256 * GIB, "hp": 80 * GIB, "policy": "request", "cap": 90 * GIB},
    strategy="beAllocatable",
)
ZONE = Decision(
    "zone/node-1",
    "hold",
    "ZoneAllocatable",
    {"result_milli": 6000, "result_bytes": 40 * GIB, "cpu_policy": "usage", "memory_policy": "request"},
    strategy="beAllocatable",
)
MID = Decision(
    f"node/{keys.MID_CPU}",
    "set",
    "MidAllocatable",
    {"result": 0, "mode": "dynamic", "threshold_percent": 100},
    strategy="midAllocatable",
)


def test_a_term_stands_beside_its_other_names() -> None:
    (table,) = allocatable.tables([CPU, MEMORY])
    rows = {row.term: row for row in table.rows}
    assert (rows["hp"].document, rows["hp"].cpu, rows["hp"].memory) == ("pod(LS).used", 9500, 80 * GIB)
    assert rows["capacity"].koordinator == "nodeCapacity"
    assert (rows["cap"].cpu, rows["cap"].memory) == (None, 90 * GIB)
    assert [row.term for row in table.rows][:2] == ["result", "capacity"]


def test_every_term_has_a_name_of_koordinator() -> None:
    assert [
        term for names in (allocatable.BATCH, allocatable.MID) for term, (name, _) in names.items() if not name
    ] == []


def test_no_term_of_the_decisions_is_lost() -> None:
    (table,) = allocatable.tables([CPU, MEMORY])
    assert {row.term for row in table.rows} == {*CPU.evidence, *MEMORY.evidence}


def test_zones_and_mid_have_tables_of_their_own() -> None:
    found = allocatable.tables([CPU, MEMORY, ZONE, MID])
    assert [table.title for table in found] == ["node, batch", "zone/node-1, batch", "node, mid"]
    assert {row.term: (row.cpu, row.memory) for row in found[1].rows} == {
        "result": (6000, 40 * GIB),
        "policy": ("usage", "request"),
    }
    assert found[0].notes == ()


def test_as_text_it_lines_up_and_has_the_units_people_read() -> None:
    lines = allocatable.text(allocatable.tables([CPU, MEMORY, ZONE, MID])).splitlines()
    assert lines[0] == "node, batch: result = min(max(capacity − margin − system − hp, 0), cap)"
    assert lines[2].split() == ["result", "batchAllocatable", "BE.alloc", "12.523", "85.0", "GiB"]
    assert len({len(line) for line in lines[1:7]}) == 1
    assert any(line.split()[:1] == ["threshold"] and "100 %" in line for line in lines)


def test_what_is_withheld_is_said_in_words() -> None:
    gone = Decision("node", "hold", "NoMetrics", {"ageSeconds": 5, "degradeTimeMinutes": 15}, strategy="beAllocatable")
    (table,) = allocatable.tables([gone])
    assert table.rows == ()
    assert "no usage data for 5 s" in allocatable.text([table])


def test_without_zones_that_is_said() -> None:
    assert allocatable.NO_ZONES in allocatable.text(allocatable.tables([CPU, MEMORY]))


def test_explain_has_it_as_text_and_as_json() -> None:
    tick = tick_of(time=1.0, node="n", decisions=(CPU, MEMORY))
    assert subject.explain("allocatable", tick).startswith("node, batch")
    found = json.loads(subject.explain("allocatable", tick, output="json"))
    assert (found["kind"], found["node"]) == ("koordlite-allocatable", "n")
    row = next(row for row in found["tables"][0]["rows"] if row["term"] == "result")
    assert (row["cpu"], row["memory"], row["document"]) == (12523, 85 * GIB, "BE.alloc")


def test_without_such_decisions_it_says_that_there_are_none() -> None:
    with pytest.raises(ValueError, match="nothing was decided about 'allocatable'"):
        subject.explain("allocatable", tick_of(time=1.0, node="n"))


def test_an_offer_of_an_earlier_run_is_said_beside_the_terms() -> None:
    waiting = {"published": 260, "atLeastSeconds": 1, "windowLeftSeconds": 299}
    kept = msgspec.structs.replace(CPU, verdict="hold", reason="UseWindowFilling", evidence={**CPU.evidence, **waiting})
    text = allocatable.text(allocatable.tables([kept, MEMORY]))
    assert "0.3 cores, published by an earlier run at least 1 s ago" in text, text
    assert "12.523" in text
