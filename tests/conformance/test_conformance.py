"""The runner itself: it must be able to fail."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conformance import __main__, deviations

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


Run = Callable[[list[dict[str, Any]]], tuple[int, str]]


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a file of these cases; gives the exit code and what was printed."""

    def cases(found: list[dict[str, Any]]) -> tuple[int, str]:
        (tmp_path / "cases.json").write_text(json.dumps(found))
        code = __main__.main([str(tmp_path)])
        said = capsys.readouterr()
        assert not said.err
        return code, said.out

    return cases


def test_counts_what_passes_deviates_and_has_no_adapter(run: Run) -> None:
    code, text = run([RIGHT, MASK, DEVIATING, UNKNOWN])
    assert "cases.json: 2 passed, 0 failed, 1 deviating, 1 without adapter" in text
    assert "reservation-refused" in text
    assert code == 0


def test_a_field_that_is_null_says_no_more_than_one_that_is_missing(run: Run) -> None:
    broken = {"kind": "parse.cpu_stat_v2", "input": {"input": "nr_periods x"}}
    code, text = run([{**broken, "expect": {"value": None, "error": True}}, {**broken, "expect": {"error": True}}])
    assert "2 passed" in text
    assert code == 0


def test_a_failure_is_shown_with_both_sides_and_fails_the_run(run: Run) -> None:
    code, text = run([RIGHT, WRONG])
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
def test_a_case_that_breaks_something_fails_and_hides_no_other(run: Run, case: dict[str, Any], why: str) -> None:
    code, text = run([case, RIGHT])
    assert "1 passed, 1 failed" in text
    assert why in text
    assert code == 1


def test_every_rule_of_deviation_is_explained_in_the_documentation() -> None:
    pages = "docs/compatibility.md", "tests/apiserver/README.md", "tests/conformance/README.md"
    explained = "".join((ROOT / page).read_text() for page in pages)
    rules = sorted({each.rule.partition(":")[0] for each in deviations.deviations()})
    assert rules
    assert [rule for rule in rules if f"`{rule}`" not in explained] == []
