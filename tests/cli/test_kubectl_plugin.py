"""`kubectl koordlite` with a stand-in for kubectl that runs the command of `exec` here, against a real agent."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

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
    objects = {"pods": pods, "pod/web": bound, "pod/waiting": {"metadata": {}, "spec": {}}}
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
