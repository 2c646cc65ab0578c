"""The command, run on files as a person would."""

from __future__ import annotations

import gc
import json
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from descheduler import cli
from descheduler.cli import source
from koordlite.model.nrt import ContainerPlacement

Place = Callable[..., ContainerPlacement]


@pytest.fixture
def snapshot(cluster: Any, placed: Place, tmp_path: pathlib.Path) -> str:
    """One pod to evict, one that the agent cures, one healthy, one that is poison."""
    reserved = {"reservedCPUs": "0-1"}
    cluster.node("a", reservation=reserved)
    loose = placed("loose", source="koordinator", promised_cpus="4-5", cpuset="4-7")
    mine = placed("on-reserved", source="koordinator", exclusive=True, promised_cpus="0-3", cpuset="0-3")
    cluster.report("a", reservation=reserved, containers=[loose, mine])
    cluster.node("b")
    cluster.report("b")
    cluster.pinned("on-reserved", "a", "0-3", owner="one")
    cluster.pinned("loose", "a", "4-5", owner="two")
    cluster.pod("fine<b>", "b")
    cluster.add({"kind": "Pod", "metadata": {"name": "poison", "labels": {"a": 1}}})
    path = tmp_path / "cluster.json"
    path.write_text(cluster.json, encoding="utf-8")
    return str(path)


def test_the_text_says_who_goes_and_who_is_kept(snapshot: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["plan", "--snapshot", snapshot]) == 0
    text = capsys.readouterr().out
    assert "answer    2 pods with findings: 1 to evict, 1 kept" in text
    assert "1. default/on-reserved  on a" in text
    assert "the plan counts on b" in text
    assert "CuredOnNode" in text
    assert "pod/poison" in text
    assert all(len(line) <= 100 for line in text.splitlines())


def test_json_is_the_same_every_time_and_nothing_else_is_on_stdout(
    snapshot: str, capsys: pytest.CaptureFixture[str]
) -> None:
    outputs = []
    for _ in range(2):
        assert cli.main(["plan", "--snapshot", snapshot, "--output", "json"]) == 0
        outputs.append(capsys.readouterr())
    assert outputs[0].out == outputs[1].out
    assert "poison" in outputs[0].err
    plan = json.loads(outputs[0].out)
    assert [entry["pod"] for entry in plan["evict"]] == ["default/on-reserved"]
    assert plan["summary"]["keptBy"] == {"CuredOnNode": 1}
    assert plan["requests"][0]["kind"] == "Eviction"


def test_reports_are_written_and_the_page_stands_alone(
    snapshot: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["plan", "--snapshot", snapshot, "--report", str(tmp_path / "out")]) == 0
    capsys.readouterr()
    page = (tmp_path / "out" / "plan.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert "<svg" in page
    assert page.count("<script") == 1 and "<script>" in page, "the filter of the lists, and nothing from elsewhere"
    assert "script-src &#x27;sha256-" in page
    assert "http://" not in page and "https://" not in page
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "plan.txt",
        "plan.json",
        "plan.html",
        "changes.json",
    }


def test_names_from_the_cluster_are_never_markup(
    cluster: Any, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.node("a", reservation={"reservedCPUs": "0"})
    cluster.report("a")
    cluster.pinned("<img src=x>", "a", "0-1")
    path = tmp_path / "c.json"
    path.write_text(cluster.json, encoding="utf-8")
    cli.main(["plan", "--snapshot", str(path), "--output", "html"])
    page = capsys.readouterr().out
    assert "<img" not in page
    assert "&lt;img src=x&gt;" in page


def test_long_names_stay_within_the_line(
    cluster: Any, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = "n" * 63
    cluster.node(node, reservation={"reservedCPUs": "0"})
    cluster.report(node)
    cluster.pinned("p" * 63, node, "0-1")
    path = tmp_path / "c.json"
    path.write_text(cluster.json, encoding="utf-8")
    assert cli.main(["plan", "--snapshot", str(path)]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 100


def test_explain_lists_what_each_node_answers_and_the_report_counts_it(
    cluster: Any, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, cpu in (("a", "8"), ("b", "1"), ("c", "1"), ("d", "1"), ("e", "1")):
        cluster.node(name, cpu=cpu)
    cluster.pod("big", "a", cpu="4", restarts=50)
    policy, path = tmp_path / "policy.yaml", tmp_path / "c.json"
    restarts = "{name: RemovePodsHavingTooManyRestarts, args: {podRestartThreshold: 5}}"
    args = f"pluginConfig: [{{name: DefaultEvictor, args: {{nodeFit: true}}}}, {restarts}]"
    plugins = "plugins: {deschedule: {enabled: [RemovePodsHavingTooManyRestarts]}}"
    policy.write_text(f"profiles: [{{name: p, {args}, {plugins}}}]")
    path.write_text(cluster.json, encoding="utf-8")
    files = ["--snapshot", str(path), "--policy", str(policy)]
    assert cli.main(["explain", "big", *files]) == 0
    said = capsys.readouterr().out
    assert [line.split() for line in said.splitlines() if " node " in line] == [
        ["node", f"{name}:", "insufficient", "cpu"] for name in "bcde"
    ]
    assert cli.main(["plan", *files, "--output", "json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["kept"][0]["fit"] == {"places": [], "whyNot": [0]}
    assert plan["refusals"] == [{"reason": "insufficient cpu", "nodes": 4, "examples": ["b", "c", "d"]}]


def test_pods_that_nobody_judges_are_explained_so(
    cluster: Any, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    conditions = [{"type": "Ready", "status": "False"}]
    cluster.node("sick")["status"]["conditions"] = conditions
    cluster.node("a")
    phases = {"broken": "Failed", "done": "Succeeded"}
    for name, node in (("waiting", ""), ("lost", "gone"), ("ill", "sick"), ("broken", "a"), ("done", "a")):
        cluster.pod(name, node, owner="app")["status"]["phase"] = phases.get(name, "Running")
    policy = tmp_path / "policy.yaml"
    args = "pluginConfig: [{name: RemoveFailedPods, args: {minPodLifetimeSeconds: 0}}]"
    policy.write_text(f"profiles: [{{name: p, {args}, plugins: {{deschedule: {{enabled: [RemoveFailedPods]}}}}}}]")
    path = tmp_path / "c.json"
    path.write_text(cluster.json, encoding="utf-8")
    said = {}
    for name in ("waiting", "lost", "ill", "broken", "done"):
        assert cli.main(["explain", name, "--snapshot", str(path), "--policy", str(policy)]) == 0
        said[name] = capsys.readouterr().out
    assert said["waiting"].startswith("WAITS  default/waiting  for a node\nROOM FOR IT by the rules of profile p\n")
    assert "its node gone is not in the snapshot" in said["lost"]
    assert "its node sick is not ready" in said["ill"]
    assert "PodFailed" in said["broken"]
    assert said["done"].splitlines() == [
        "NO FINDINGS  default/done  on a",
        "    it has ended: Succeeded",
        "PLUGINS of profile p",
        "    ok         RemoveFailedPods  its phase is Succeeded, not Failed",
        "IF ONE OF THEM NAMED IT",
        "    kept by    no filter",
    ]


def test_findings_can_fail_a_pipeline(snapshot: str) -> None:
    assert cli.main(["plan", "--snapshot", snapshot, "--fail-on-findings"]) == cli.FOUND


@pytest.mark.parametrize(
    ("pod", "words"),
    [
        pytest.param("on-reserved", "EVICT  default/on-reserved", id="a pod that goes"),
        pytest.param("default/loose", "kept     CuredOnNode", id="one that is kept"),
        pytest.param("fine<b>", "NO FINDINGS", id="one that is fine"),
    ],
)
def test_explain(snapshot: str, capsys: pytest.CaptureFixture[str], pod: str, words: str) -> None:
    assert cli.main(["explain", pod, "--snapshot", snapshot]) == 0
    assert words in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(["plan", "--snapshot", "/absent"], "no such file", id="no snapshot"),
        pytest.param(["plan", "--snapshot", "SNAPSHOT", "--now", "noon"], "--now", id="no time"),
        pytest.param(["plan", "--snapshot", "SNAPSHOT", "--policy", "/absent"], "No such file", id="no policy"),
        pytest.param(
            ["explain", "reserved", "--snapshot", "SNAPSHOT"], "did you mean default/on-reserved", id="no pod"
        ),
        pytest.param(["check-config", "/absent"], "No such file", id="no file to check"),
    ],
)
def test_bad_input_ends_with_2_and_says_what_to_do(
    snapshot: str, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert cli.main([snapshot if a == "SNAPSHOT" else a for a in arguments]) == 2
    said = capsys.readouterr()
    assert words in said.err
    assert said.out == ""


def test_check_config_and_default_config_agree(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["default-config"]) == 0
    path = tmp_path / "policy.yaml"
    path.write_text(capsys.readouterr().out, encoding="utf-8")
    assert cli.main(["check-config", str(path)]) == 0
    assert "plugins NUMAAlignment, ReservedCPUs" in capsys.readouterr().out


def test_list_plugins(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["list-plugins"]) == 0
    assert "ReservedCPUs\n    Pods must not run on CPUs" in capsys.readouterr().out


def test_help_loads_nothing_heavy() -> None:
    heavy = ("msgspec", "yaml", "descheduler.policy.reader")
    code = f"import sys; from descheduler import cli; cli.parser(); print([m for m in {heavy} if m in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_two_hundred_nodes_are_planned_quickly(
    cluster: Any, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(200):
        node = f"n{number:03}"
        cluster.node(node, cpu="64", reservation={"reservedCPUs": "0-1"})
        cluster.report(node)
        cluster.pinned(f"pinned-{number}", node, "0-3" if number % 20 == 0 else "4-7", owner=f"o{number}")
        for pod in range(29):
            cluster.pod(f"p{number}-{pod}", node, cpu="100m")
    path = tmp_path / "c.json"
    path.write_text(cluster.json, encoding="utf-8")
    start = time.perf_counter()
    assert cli.main(["plan", "--snapshot", str(path), "--output", "json"]) == 0
    took = time.perf_counter() - start
    plan = json.loads(capsys.readouterr().out)
    print(f"200 nodes, 6000 pods: planned in {took:.2f} s")
    assert plan["summary"]["found"] == 10
    assert took < 20, "an order of magnitude above what a slow machine needs"


@pytest.mark.parametrize(
    ("most", "generation"), [(10_000, 0), (100, 2)], ids=["few objects are new", "a first picture"]
)
def test_a_first_picture_is_of_the_oldest_generation(
    monkeypatch: pytest.MonkeyPatch, most: int, generation: int
) -> None:
    monkeypatch.setattr(source, "MANY_OBJECTS", most)
    gc.collect()
    try:
        with source.no_collection():
            objects = [[number] for number in range(1000)]
        assert any(one is objects[0] for one in gc.get_objects(generation))
    finally:
        gc.freeze()
