"""`koordlite run` with an API server as the cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from apibench import BATCH, Bench, NoFiles, opened, until

from koordlite import cli
from koordlite.cli import machine
from koordlite.model.errors import ConfigError
from koordlite.model.topology import Topology

LS = {"cpu": "1", "memory": "1Gi"}
BE = {"kubernetes.io/batch-cpu": "2000", "kubernetes.io/batch-memory": "1Gi"}


def _workload(name: str, qos: str, amounts: dict[str, str]) -> dict[str, Any]:
    container = {"name": "m", "image": "x", "resources": {"requests": amounts, "limits": amounts}}
    metadata = {"name": name, "namespace": "default", "labels": {"koordinator.sh/qosClass": qos}}
    spec = {"nodeName": "n1", "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": "Running"}}


def _scene(bench: Bench) -> None:
    settings = {"colocation-config": json.dumps({"enable": True}), "resource-threshold-config": "{not json"}
    metadata = {"name": "slo-controller-config", "namespace": "koordinator-system"}
    bench.server.objects.load({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": settings})
    bench.server.objects.load(_workload("ls", "LS", LS), _workload("be", "BE", BE))


def _command(*more: str) -> list[str]:
    return [sys.executable, "-m", "koordlite", "run", "--node-name", "n1", "--quiet", *more]


def _environment(**more: str) -> dict[str, str]:
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("KUBE", "NODE_NAME"))}
    return kept | more


def test_a_run_publishes_what_it_decided_and_tells_what_it_could_not_read(tmp_path: Path) -> None:
    with opened(tmp_path) as bench:
        _scene(bench)
        (tmp_path / "kubeconfig").write_text(bench.server.kubeconfig())
        command = _command("--sandbox", "small", "--kubeconfig", str(tmp_path / "kubeconfig"), "--mode", "enforce")
        done = subprocess.run(
            [*command, "--no-http", "--for", "20", "--speed", "10"],
            capture_output=True,
            text=True,
            env=_environment(),
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert BATCH in bench.node()["status"]["allocatable"]
        held = bench.topology()
        assert held is not None
        assert "node.koordinator.sh/cpu-topology" in held["metadata"]["annotations"]
        events = bench.server.objects.all("Event", api_version="events.k8s.io/v1")
        assert any("resource-threshold-config" in json.dumps(event) for event in events)
        assert bench.asked("patch", "nodes/status") <= 3
        requests = list(bench.server.requests)
        assert not [a.resource for a in requests if a.verb == "list"], "lists come as streams of the watches"
        watched = sorted({a.resource for a in requests if a.verb == "watch"})
        assert watched == ["configmaps", "noderesourcetopologies", "nodes", "pods"]


def test_the_agent_goes_on_without_its_server_and_comes_back(tmp_path: Path) -> None:
    with opened(tmp_path) as bench:
        _scene(bench)
        (tmp_path / "kubeconfig").write_text(bench.server.kubeconfig())
        options = ["--sandbox", "small", "--kubeconfig", str(tmp_path / "kubeconfig"), "--speed", "1", "--port", "0"]
        running = subprocess.Popen(_command(*options), stderr=subprocess.PIPE, text=True, env=_environment())
        try:
            assert running.stderr is not None
            url = next(line.split()[-1] for line in running.stderr if "listening on" in line)
            drain = threading.Thread(target=running.stderr.read, daemon=True)
            drain.start()

            def state() -> dict[str, Any]:
                try:
                    with urllib.request.urlopen(f"{url}/state", timeout=5) as answer:
                        found: dict[str, Any] = json.load(answer)
                except urllib.error.HTTPError as early:  # Before the first tick there is nothing to tell.
                    early.close()
                    return {"watches": []}
                return found

            def watch(name: str) -> dict[str, Any]:
                return next((each for each in state()["watches"] if each["name"] == name), {})

            until(lambda: watch("pods").get("objects") == 4)
            bench.server.stop()
            until(lambda: watch("pods").get("error"))
            ticked = state()["time"]
            assert watch("pods")["objects"] == 4
            until(lambda: watch("pods")["ageSeconds"] > 1)
            until(lambda: state()["time"] > ticked)
            bench.server.objects.remove("Pod", "be", "default", api_version="v1")
            bench.server.start()
            until(lambda: watch("pods").get("objects") == 3, 20.0)
            assert watch("pods")["error"] == ""
        finally:
            running.terminate()
            assert running.wait(20) == 0
            drain.join(5)
            running.stderr.close()


@pytest.mark.parametrize(
    ("node", "environment", "words"),
    [
        pytest.param("", {}, "NODE_NAME", id="no-node-name"),
        pytest.param("n1", {}, "service account of this pod", id="no-credentials"),
        pytest.param("n1", {"KUBECONFIG": "/nowhere"}, "/nowhere", id="a-kubeconfig-that-is-not-there"),
    ],
)
def test_what_is_missing_is_said(
    node: str, environment: dict[str, str], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "NODE_NAME"):
        monkeypatch.delenv(name, raising=False)
    for name, text in environment.items():
        monkeypatch.setenv(name, text)
    args = cli.parser().parse_args(["run", "--node-name", node])
    settings = machine.settings(args)
    with pytest.raises(ConfigError, match=words):
        machine.open_cluster(args, settings, files=NoFiles(), topology=Topology((), ()), stop=None)


def test_the_node_name_may_come_from_the_environment(tmp_path: Path) -> None:
    with opened(tmp_path) as bench:
        (tmp_path / "kubeconfig").write_text(bench.server.kubeconfig())
        options = ["--sandbox", "small", "--kubeconfig", str(tmp_path / "kubeconfig"), "--once", "--no-http"]
        done = subprocess.run(
            [sys.executable, "-m", "koordlite", "run", *options],
            capture_output=True,
            text=True,
            env=_environment(NODE_NAME="n1"),
            check=False,
        )
    assert done.stdout.startswith("n1: observing")
    assert "watch of pods" in done.stdout
