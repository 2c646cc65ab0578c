"""`descheduler run` with an API server as its cluster."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from descheduler.serve.events import CONTROLLER
from koordlite.kube.client.access import Api

POLICY = """
apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
profiles:
  - name: tidy
    pluginConfig:
      - name: RemovePodsViolatingNodeTaints
      - name: DefaultEvictor
        args: {minReplicas: 0}
    plugins:
      deschedule: {enabled: [RemovePodsViolatingNodeTaints]}
"""


@pytest.fixture
def tainted(api: Api, put: Callable[[dict[str, Any]], None]) -> Api:
    """A node that a pod may no longer be on, and one where it could go."""
    for name, taints in (("full", [{"key": "gone", "effect": "NoSchedule"}]), ("free", [])):
        amounts = {"cpu": "8", "memory": "16Gi", "pods": "110"}
        ready = [{"type": "Ready", "status": "True"}]
        status = {"capacity": amounts, "allocatable": amounts, "conditions": ready}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {"taints": taints}}
        put(node | {"status": status})
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": True}
    spec = {"nodeName": "full", "containers": [{"name": "main", "image": "x"}]}
    meta = {"name": "web-1", "namespace": "default", "ownerReferences": [owner]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": {"phase": "Running"}}
    put(pod)
    return api


def _run(kubeconfig: pathlib.Path, folder: pathlib.Path, *more: str) -> subprocess.CompletedProcess[str]:
    policy = folder / "policy.yaml"
    policy.write_text(POLICY)
    command = [sys.executable, "-m", "descheduler", "run", "--kubeconfig", str(kubeconfig), "--policy", str(policy)]
    command += ["--listen", "off", "--report", str(folder / "report"), *more]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)


def _pods(api: Api) -> list[str]:
    items = json.loads(api.request("GET", "/api/v1/pods").body)["items"]
    return [item["metadata"]["name"] for item in items if "deletionTimestamp" not in item["metadata"]]


def test_a_dry_run_plans_and_leaves_everything_where_it_is(
    tainted: Api, kubeconfig: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    done = _run(kubeconfig, tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(list(json.loads((tmp_path / "report" / "plan.json").read_text())["evict"])) == 1
    assert _pods(tainted) == ["web-1"]


def test_a_real_run_evicts_through_the_eviction_api_and_says_so_in_an_event(
    tainted: Api, kubeconfig: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    done = _run(kubeconfig, tmp_path, "--dry-run=false")
    assert done.returncode == 0, done.stderr
    assert _pods(tainted) == []
    events = json.loads(tainted.request("GET", "/apis/events.k8s.io/v1/events").body)["items"]
    # Some servers write events of their own, about themselves.
    ours = [event for event in events if event.get("reportingController") == CONTROLLER]
    assert [event["regarding"]["name"] for event in ours] == ["web-1"]


def test_a_server_that_refuses_is_a_clear_error(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(
        json.dumps(
            {
                "clusters": [{"name": "x", "cluster": {"server": "http://127.0.0.1:1"}}],
                "users": [{"name": "x", "user": {}}],
                "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
                "current-context": "x",
            }
        )
    )
    done = _run(path, tmp_path)
    assert done.returncode != 0
    assert "refused" in done.stderr
