"""`kubectl koordlite` with a stand-in for kubectl that runs the command of `exec` here, against a real agent."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cyaml
import pytest
from apibench import until

from koordlite.cli import kubectl_plugin

STAND_IN = """#!{python}
import json, os, subprocess, sys
words = sys.argv[1:]
with open({log!r}, "a") as log:
    log.write(json.dumps(words) + "\\n")
if "get" in words:
    what = words[words.index("get") + 1]
    found = json.load(open({objects!r})).get(what)
    if found is None:
        sys.exit(print(f'Error from server (NotFound): "{{what}}" not found', file=sys.stderr) or 1)
    print(json.dumps(found))
else:
    url = json.load(open({urls!r})).get(words[words.index("-c") - 1])
    if url is None:
        sys.exit(print("error: unable to upgrade connection: container not found", file=sys.stderr) or 1)
    command = [sys.executable, "-m", *words[words.index("--") + 1 :]]
    sys.exit(subprocess.call(command, env={{**os.environ, "KOORDLITE_URL": url}}))
"""

Plugin = Callable[..., int]


def agent(name: str, node: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "koordlite-system"}, "spec": {"nodeName": node}}


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two nodes whose agents do not answer, pods, and the log of the questions to kubectl."""
    old = agent("koordlite-old", "n1")
    old["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    pods = {"items": [agent("koordlite-a", "n1"), agent("koordlite-b", "n2"), old]}
    bound = {"metadata": {"name": "web"}, "spec": {"nodeName": "n1"}}
    paths = {name: str(tmp_path / f"{name}.json") for name in ("objects", "urls", "log")}
    nodes = {"items": [{"metadata": {"name": "n2"}}, {"metadata": {"name": "n3"}}]}
    objects = {"pods": pods, "nodes": nodes, "pod/web": bound, "pod/waiting": {"metadata": {}, "spec": {}}}
    Path(paths["objects"]).write_text(json.dumps(objects))
    Path(paths["urls"]).write_text("{}")
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(STAND_IN.format(python=sys.executable, **paths))
    kubectl.chmod(0o755)
    monkeypatch.setenv("KUBECTL", str(kubectl))
    return tmp_path


def questions(cluster: Path) -> list[list[str]]:
    return [json.loads(line) for line in (cluster / "log.json").read_text().splitlines()]


def test_the_agent_of_the_node_answers(
    cluster: Path, running: tuple[subprocess.Popen[str], str], capfd: pytest.CaptureFixture[str]
) -> None:
    (cluster / "urls.json").write_text(json.dumps({"koordlite-a": running[1]}))
    assert kubectl_plugin.main(["--context", "prod", "status", "n1"]) == 0
    assert "enforcing" in capfd.readouterr().out
    assert kubectl_plugin.main(["explain", "n1", "besteffort"]) == 0
    assert "besteffort" in capfd.readouterr().out
    asked = [words for words in questions(cluster) if "exec" in words]
    assert asked[0][:2] == ["--context", "prod"]
    assert all(words[words.index("-c") - 1] == "koordlite-a" for words in asked)

    assert kubectl_plugin.main(["fleet"]) == 1, "one agent does not answer"
    head, first, second = capfd.readouterr().out.splitlines()
    assert head.split()[:2] == ["NODE", "STATUS"]
    assert first.split()[:2] == ["n1", "enforcing"]
    assert second.split()[:2] == ["n2", "unknown"] and "unable to upgrade connection" in second
    kubectl_plugin.main(["fleet", "-o", "json"])
    found = json.loads(capfd.readouterr().out)["nodes"]
    assert [(node["node"], node["status"]) for node in found] == [("n1", "enforcing"), ("n2", "unknown")]
    assert found[0]["nodeCpu"] >= 0 and found[1]["nodeCpu"] is None
    kubectl_plugin.main(["fleet", "-o", "yaml"])
    assert [node["node"] for node in cyaml.safe_load(capfd.readouterr().out)["nodes"]] == ["n1", "n2"]
    kubectl_plugin.main(["fleet", "-o", "name"])
    assert capfd.readouterr().out == "node/n1\nnode/n2\n"
    kubectl_plugin.main(["fleet", "-o", "wide"])
    head, first, _ = capfd.readouterr().out.splitlines()
    assert head.split()[-1] == "AGENT" and first.split()[-1] == "koordlite-a"


def test_a_pod_is_explained_on_its_node(cluster: Path) -> None:
    assert kubectl_plugin.main(["explain", "pod", "shop/web", "--since", "1h"]) == 1
    first, *_, last = questions(cluster)
    assert first == ["get", "pod/web", "-n", "shop", "-o", "json"]
    assert last[last.index("--") + 1 :] == ["koordlite", "explain", "pod", "shop/web", "--since", "1h", "-o", "text"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param(("status", "n3"), "no agent runs there; nodes with one: n1, n2", id="a node without an agent"),
        pytest.param(("explain", "pod", "shop/gone"), "(NotFound)", id="a pod that there is not"),
        pytest.param(("explain", "pod", "shop/waiting"), "it has no node yet", id="a pod without a node"),
    ],
)
def test_what_cannot_be_asked_is_said(
    cluster: Path, words: tuple[str, ...], said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert kubectl_plugin.main(words) == 2
    assert said in capfd.readouterr().err


def test_without_kubectl_it_says_so(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("KUBECTL", "/nowhere/kubectl")
    assert kubectl_plugin.main(["fleet"]) == 2
    assert "kubectl is not on the PATH" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("words", "get", "asked"),
    [
        pytest.param(("explain", "pod", "web", "-n", "shop"), ["-n", "shop"], "shop/web", id="-n is the pod's"),
        pytest.param(("-n", "shop", "explain", "pod", "web"), ["-n", "shop"], "shop/web", id="before the command too"),
        pytest.param(("explain", "pod", "web"), [], "default/web", id="else the context's"),
    ],
)
def test_a_namespace_is_that_of_the_pod(cluster: Path, words: tuple[str, ...], get: list[str], asked: str) -> None:
    kubectl_plugin.main([*words, "--at", "1h", "--who"])
    first, *_, last = questions(cluster)
    assert first == ["get", "pod/web", *get, "-o", "json"]
    assert last[last.index("--") + 1 :] == ["koordlite", "explain", "pod", asked, "--at", "1h", "--who", "-o", "text"]
    assert last[last.index("-n") + 1] == "koordlite-system"


def test_the_night_of_many_nodes_is_a_table_and_says_which_do_not_answer(
    cluster: Path, running: tuple[subprocess.Popen[str], str], capfd: pytest.CaptureFixture[str]
) -> None:
    (cluster / "urls.json").write_text(json.dumps({"koordlite-a": running[1]}))

    def is_told() -> bool:
        code = kubectl_plugin.main(["explain", "n1", "besteffort", "--since", "1h"])
        return code == 0 and "held back" in capfd.readouterr().out

    until(is_told)
    assert kubectl_plugin.main(["explain", "besteffort", "--since", "1h", "--all"]) == 1, "one does not answer"
    head, *rows = capfd.readouterr().out.splitlines()
    assert head.split()[:3] == ["NODE", "HELD", "BACK"]
    assert [row.split()[0] for row in rows] == ["n1", "n2"]
    assert rows[0].split()[2] == "min" and "unable to upgrade connection" in rows[1]
    assert kubectl_plugin.main(["explain", "besteffort", "--since", "1h", "-l", "pool=batch"]) == 1
    assert [line.split()[0] for line in capfd.readouterr().out.splitlines()] == ["NODE", "n2"], "n3 has no agent"


def test_to_act_on_more_than_one_node_it_has_to_be_said(cluster: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = ["pause", "2h", "--because", "kernel upgrade", "--all"]
    assert kubectl_plugin.main(words) == 2
    said = capfd.readouterr()
    assert said.out == "pause on 2 nodes: n1, n2\n" and "add --yes to act on all of them" in said.err
    assert not [question for question in questions(cluster) if "exec" in question]
    kubectl_plugin.main([*words, "--yes"])
    asked = [question[question.index("--") + 1 :] for question in questions(cluster) if "exec" in question]
    assert asked == [["koordlite", "pause", "2h", "--because", "kernel upgrade"]] * 2
    capfd.readouterr()
    assert kubectl_plugin.main(["resume"]) == 2
    assert "name nodes, or choose them with -l SELECTOR or --all" in capfd.readouterr().err
    assert kubectl_plugin.main(["restore", "n1"]) == 2
    assert "pause DURATION --release" in capfd.readouterr().err


def test_the_records_of_many_nodes_are_judged_again(cluster: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert kubectl_plugin.main(["replay", "n1", "n2", "--since", "12h", "--set", "cpuSuppressThresholdPercent=70"]) == 1
    assert capfd.readouterr().out == "== n1, exit code 1\n== n2, exit code 1\n"
    asked = questions(cluster)[-1]
    expected = ["replay", "--since", "12h", "--set", "cpuSuppressThresholdPercent=70", "-o", "text"]
    assert asked[asked.index("--") + 2 :] == expected
