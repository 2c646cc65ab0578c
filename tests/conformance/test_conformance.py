"""The runner itself: it must be able to fail."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conformance import deviations

ROOT = Path(__file__).parents[2]
CPUS = [[cpu, cpu // 2, 0, 0] for cpu in range(4)]
RIGHT = {
    "func": "TakeByTopology",
    "input": {"topology": CPUS, "available": "0-3", "numCPUs": 2},
    "expect": {"cpuset": "0-1"},
}
WRONG = {**RIGHT, "expect": {"cpuset": "2-3"}, "source": "made up"}
RESERVED = {"annotations": {"node.koordinator.sh/reservation": "{"}}
DEVIATING = {"func": "GetReservedCPUs", "input": RESERVED, "expect": {"reservedCPUs": "", "numReservedCPUs": 0}}
SCOPE = {"kind": "cgroup.parse_container_id", "input": {"driver": "systemd", "basename": "a-1.scope"}}
UNKNOWN = {"kind": "no.such.kind", "input": {}, "expect": {}}
MASK = {"cbm": "fff", "start": 0, "end": 50, "mask": "3f", "error": False}


def run(folder: Path, cases: list[dict[str, Any]]) -> tuple[int, str]:
    file = folder / "cases.json"
    file.write_text(json.dumps(cases))
    command = [sys.executable, "-m", "tests.conformance", str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests" / "support")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert not done.stderr
    return done.returncode, done.stdout


def test_counts_what_passes_deviates_and_has_no_adapter(tmp_path: Path) -> None:
    code, text = run(tmp_path, [RIGHT, MASK, DEVIATING, UNKNOWN])
    assert "cases.json: 2 passed, 0 failed, 1 deviating, 1 without adapter" in text
    assert "reservation-refused" in text
    assert code == 0


def test_a_failure_is_shown_with_both_sides_and_fails_the_run(tmp_path: Path) -> None:
    code, text = run(tmp_path, [RIGHT, WRONG])
    assert "1 passed, 1 failed" in text
    assert "failed: TakeByTopology made up" in text
    assert "expected CPUSet('2-3'), got CPUSet('0-1')" in text
    assert code == 1


@pytest.mark.parametrize(
    ("case", "why"),
    [
        pytest.param({**RIGHT, "input": {"topology": [[0]]}}, "broke: TypeError: ", id="its adapter"),
        pytest.param({**SCOPE, "expect": {"id": ""}}, "expected {'id': ''}, got ", id="a rule"),
    ],
)
def test_a_case_that_breaks_something_fails_and_hides_no_other(tmp_path: Path, case: dict[str, Any], why: str) -> None:
    code, text = run(tmp_path, [case, RIGHT])
    assert "1 passed, 1 failed" in text
    assert why in text
    assert code == 1


def test_every_rule_of_deviation_is_explained_in_the_documentation() -> None:
    explained = (ROOT / "docs" / "compatibility.md").read_text()
    rules = sorted({each.rule.partition(":")[0] for each in deviations.DEVIATIONS})
    assert rules
    assert [rule for rule in rules if f"`{rule}`" not in explained] == []
