"""`koordlite run` on the emulated node, with an API server as its cluster."""

from __future__ import annotations

import functools
import json
import pathlib
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from koordlite.kube.client.access import Api

NODE = "/api/v1/nodes/tour-a"
TOPOLOGY = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies/tour-a"


def _get(api: Api, path: str) -> Any:
    return json.loads(api.request("GET", path).body)


Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(request: pytest.FixtureRequest, kubeconfig: pathlib.Path, tmp_path: pathlib.Path) -> Run:
    """Runs the agent for thirty emulated seconds. A real server takes its own time until it serves a new kind."""
    speed = 4 if "real" in request.node.callspec.id else 30
    return functools.partial(_run, kubeconfig, tmp_path, "--speed", str(speed))


def _run(kubeconfig: pathlib.Path, folder: pathlib.Path, *more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "koordlite", "run", "--sandbox", "intel-2s-ht", "--node-name", "tour-a"]
    command += ["--kubeconfig", str(kubeconfig), "--mode", "enforce", "--for", "30", "--no-http"]
    command += ["--quiet", "--state-dir", str(folder / "state"), *more]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)


def test_the_agent_publishes_what_best_effort_pods_may_request(tour, run: Run):
    before = _get(tour, NODE)
    done = run()
    assert done.returncode == 0, done.stderr
    node = _get(tour, NODE)
    assert int(node["status"]["allocatable"]["kubernetes.io/batch-memory"]) > 0
    assert node["status"]["allocatable"]["cpu"] == before["status"]["allocatable"]["cpu"]
    assert node["spec"] == before["spec"]


def test_the_agent_reports_the_topology_of_its_node(tour, run: Run):
    run()
    found = _get(tour, TOPOLOGY)
    assert {zone["type"] for zone in found["zones"]} == {"Node"}
    assert found["metadata"]["ownerReferences"][0]["name"] == "tour-a"


def test_an_agent_that_only_observes_writes_nothing(tour, run: Run):
    before = _get(tour, NODE)
    assert run("--mode", "observe").returncode == 0
    assert _get(tour, NODE)["status"].get("allocatable") == before["status"].get("allocatable")
