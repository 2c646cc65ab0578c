"""`koordlite simulate`."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import tinyprometheus

from koordlite import cli

SCENARIO = """
duration: 30s
pods: [{name: web, cpu: "1", requests: {cpu: "1"}}, {name: crunch, qos: BE, cpu: greedy}]
config:
  resource-threshold-config: {clusterStrategy: {enable: true, cpuSuppressThresholdPercent: 65}}
expect: [{measure: beLimitCores, most: %d}]
"""
NAMES = {"name": "slo-controller-config", "namespace": "koordinator-system"}


def scenario(folder: Path, most: int = 2, name: str = "s.yaml") -> Path:
    path = folder / name
    path.write_text(SCENARIO % most)
    return path


def threshold(folder: Path, percent: int) -> Path:
    path = folder / f"p{percent}.yaml"
    strategy = {"clusterStrategy": {"enable": True, "cpuSuppressThresholdPercent": percent}}
    data = {"resource-threshold-config": json.dumps(strategy)}
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": NAMES, "data": data}))
    return path


def test_the_code_says_whether_it_came_out_as_expected(ask: Any, tmp_path: Path) -> None:
    said = ask("simulate", scenario(tmp_path))
    assert (said.code, "holds" in said.out) == (0, True)
    said = ask("simulate", scenario(tmp_path, most=0))
    assert (said.code, "FAILS" in said.out) == (1, True)


def test_the_log_of_who_called_is_heard_again_afterwards(
    ask: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ask("simulate", scenario(tmp_path))
    logging.getLogger("koordlite.kube").warning("the watch ended")
    assert "the watch ended" in caplog.text


def test_several_scenarios_are_played_one_after_the_other(ask: Any, tmp_path: Path) -> None:
    said = ask("simulate", scenario(tmp_path), scenario(tmp_path, most=0, name="t.yaml"))
    assert said.code == 1
    assert "s: 0:30" in said.out and "t: 0:30" in said.out


def test_mistakes_of_all_files_are_told_before_anything_is_played(ask: Any, tmp_path: Path) -> None:
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text("duration: never\n")
    said = ask("simulate", tmp_path / "a.yaml", tmp_path / "b.yaml", tmp_path / "none.yaml")
    assert said.code == 2
    assert all(name in said.err for name in ("a.yaml:1", "b.yaml:1", "none.yaml"))
    assert said.out == ""


def test_two_configurations_are_compared(ask: Any, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    files = threshold(tmp_path, 30), threshold(tmp_path, 90)
    said = ask("simulate", scenario(tmp_path), "--compare", *files, "--html", page)
    assert said.code == 0
    assert "p30" in said.out and "p90" in said.out
    found = page.read_text()
    assert found.count("<svg") == 2
    assert "<script" not in found


def test_without_the_agent_batch_work_gets_more_and_the_formula_leaves_it_the_same(ask: Any, tmp_path: Path) -> None:
    path = scenario(tmp_path, most=32)
    path.write_text("machine: intel-2s-ht\n" + path.read_text().replace("qos: BE", "qos: BE, count: 32"))
    said = ask("simulate", path, "--without")
    assert said.code == 0
    assert "with koordlite" in said.out.splitlines()[2] and said.out.splitlines()[2].endswith("without")
    rows = {line[:68].strip(): line[68:].split() for line in said.out.splitlines()}
    used, left = rows["core hours best effort used"], rows["core hours the formula left it"]
    assert float(used[0]) < float(used[1])
    assert left[0] == left[1]
    assert float(rows["what it used of these, %"][1]) > 100


def test_without_is_for_one_scenario_and_not_beside_a_comparison(ask: Any, tmp_path: Path) -> None:
    several = ask("simulate", scenario(tmp_path), scenario(tmp_path, name="t.yaml"), "--without")
    assert several.code == 2 and "leave --without out" in several.err
    files = threshold(tmp_path, 30), threshold(tmp_path, 90)
    both = ask("simulate", scenario(tmp_path), "--without", "--compare", *files)
    assert both.code == 2 and "--compare is there too" in both.err


def test_json_holds_both_runs(capsysbinary: Any, tmp_path: Path) -> None:
    files = threshold(tmp_path, 30), threshold(tmp_path, 90)
    words = ["simulate", scenario(tmp_path), "--compare", *files, "-o", "json"]
    assert cli.main([str(word) for word in words]) == 0
    found = json.loads(capsysbinary.readouterr().out)
    assert [run["label"] for run in found["runs"]] == ["p30", "p90"]
    low, high = (run["figures"]["beCoreHoursUsed"] for run in found["runs"])
    assert low < high


def test_one_scenario_is_compared_at_a_time(ask: Any, tmp_path: Path) -> None:
    files = threshold(tmp_path, 30), threshold(tmp_path, 90)
    said = ask("simulate", scenario(tmp_path), scenario(tmp_path), "--compare", *files)
    assert said.code == 2
    assert "several scenarios" in said.err


def test_a_configuration_replaces_the_settings(ask: Any, tmp_path: Path) -> None:
    (tmp_path / "off.yaml").write_text("strategies: {cpuSuppress: {mode: 'off'}}\n")
    said = ask("simulate", scenario(tmp_path), "--config", tmp_path / "off.yaml")
    assert said.code == 1


GUIDED = """
machine: small
duration: 60s
stepSeconds: 1
pods:
  - {name: web, cpu: "0.5", requests: {cpu: "1"}, annotations: {suppress.koordlite.io/objective: "p99"}}
  - {name: crunch, qos: BE, cpu: greedy, count: 4}
config:
  resource-threshold-config:
    clusterStrategy: {enable: true, cpuSuppressThresholdPercent: 65, cpuSuppressPolicy: %s}
settings:
  objectives: %s
"""


def _best_effort_used(capsys: Any, path: Path, policy: str, objectives: dict[str, Any]) -> tuple[float, float]:
    """Core hours with and without koordlite."""
    path.write_text(GUIDED % (policy, json.dumps(objectives)))
    assert cli.main(["simulate", str(path), "--without", "-o", "json"]) == 0
    used, without = (run["figures"]["beCoreHoursUsed"] for run in json.loads(capsys.readouterr().out)["runs"])
    return used, without


def test_it_answers_what_batch_work_would_have_got_guided_and_by_an_objective(
    capsysbinary: Any, tmp_path: Path
) -> None:
    path = tmp_path / "s.yaml"
    with tinyprometheus.serving(lambda: tinyprometheus.vector({("default", "web"): 20})) as server:
        query = {"query": "p99", "most": 50, "unit": "ms", "windowSeconds": 2}
        section = {"prometheusUrl": server.url, "intervalSeconds": 1, "queries": {"p99": query}}
        formula, without = _best_effort_used(capsysbinary, path, "cfsQuota", {})
        guided, _ = _best_effort_used(capsysbinary, path, "guided", {})
        met, _ = _best_effort_used(capsysbinary, path, "guided", section)
    assert formula < 0.8 * guided
    assert guided == pytest.approx(met, rel=0.05) == pytest.approx(without, rel=0.05)
