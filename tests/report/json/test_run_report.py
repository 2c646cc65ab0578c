"""The JSON report reads back to what was remembered."""

from __future__ import annotations

import json as plain_json
import re
from typing import Any

from koordlite.report.history import History
from koordlite.report.json import run_report
from koordlite.report.tick import Tick


def read(run: History) -> dict[str, Any]:
    document: dict[str, Any] = plain_json.loads(run_report.encode(run_report.document(run)))
    return document


def test_every_documented_field_is_there_and_no_other(history: History) -> None:
    documented = re.findall(r"^ {4}(\w+) {2,}", run_report.__doc__ or "", re.MULTILINE)
    assert set(read(history)) == set(documented)


def test_numbers_survive(history: History) -> None:
    made = read(history)
    assert made["version"] == 1
    assert made["summary"]["beLimitMin"] == 8000
    assert made["summary"]["writesByKind"] == {"cpuset.cpus": 38}
    assert len(made["ticks"]) == 241
    assert made["ticks"][0]["nodeCpu"] == history.rows[0].node_cpu
    assert made["last"]["schemata"]["BE"] == "L3:0=f;1=f MB:0=50;1=50"


def test_decisions_carry_their_sentence_evidence_and_places(history: History) -> None:
    shrink = next(d for d in read(history)["decisions"] if d["verdict"] == "shrink")
    assert shrink["sentence"].startswith("BE may use ")
    assert shrink["evidence"]["threshold_percent"] == 65
    assert shrink["changes"] == ["kubepods/besteffort/cpuset.cpus"]


def test_state_is_one_whole_tick(ticks: tuple[Tick, ...]) -> None:
    made = plain_json.loads(run_report.encode(run_report.state(ticks[40])))
    assert (made["kind"], made["beLimit"], made["cpus"][0]["owner"]) == ("koordlite-state", 8000, "reserved")
    assert made["problems"][0]["why"] == "the JSON ends too early"
    assert made["decisions"][0]["sentence"]


def test_a_run_without_ticks_is_a_document_too() -> None:
    made = read(History({}, {}))
    assert (made["ticks"], made["summary"]["ticks"], made["summary"]["beLimitMin"]) == ([], 0, None)
