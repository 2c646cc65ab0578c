"""Measured load beside a real kube-scheduler: the pod goes to the idle node, and says why it goes nowhere else."""

from __future__ import annotations

import functools
import json
import pathlib
import subprocess
import sys
import time
import urllib.request
from typing import Any

import control_plane
import cyaml
from apibench import until

from koordlite.kube.client.access import Api, ApiError
from koordlite.model import times

ROOT = pathlib.Path(__file__).parents[2]
PODS = "/api/v1/namespaces/shop/pods"
METRICS = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics"
CPU = "node(s) cpu usage exceed threshold"


def pod(name: str, **more: Any) -> dict[str, Any]:
    amounts = {"cpu": "100m", "memory": "64Mi"}
    container = {"name": "c", "image": "pause", "resources": {"requests": amounts, "limits": amounts}}
    # A new node has the taint of one that is not ready.
    tolerations = [{"operator": "Exists"}]
    spec = {"containers": [container], "schedulerName": "koordlite-scheduler", "tolerations": tolerations, **more}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "shop"}, "spec": spec}


def node(name: str) -> dict[str, Any]:
    amounts = {"cpu": "8", "memory": "8Gi", "pods": "110"}
    ready = [{"type": "Ready", "status": "True", "reason": "r", "message": ""}]
    status = {"allocatable": amounts, "capacity": amounts, "conditions": ready}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {}, "status": status}


def metric(name: str, cpu: str) -> dict[str, Any]:
    status = {
        "updateTime": times.show(time.time()),
        "nodeMetric": {"nodeUsage": {"resources": {"cpu": cpu, "memory": "1Gi"}}},
    }
    head = {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric", "metadata": {"name": name}}
    return {**head, "spec": {}, "status": status}


def test_a_real_scheduler_leaves_a_busy_node_alone(tmp_path: pathlib.Path) -> None:
    with control_plane.control_plane(tmp_path) as plane:
        api = plane.api()
        kind = cyaml.safe_load((ROOT / "manifests/crds/koordinator/nodemetrics.yaml").read_text())
        api.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body=kind)
        api.request("POST", "/api/v1/namespaces", body={"metadata": {"name": "shop"}})
        for name, cpu in (("busy", "7"), ("idle", "1")):
            _put(api, "/api/v1/nodes", node(name))
            until(functools.partial(_is_put, api, METRICS, metric(name, cpu)), 30.0)
        port, file = control_plane.free_port(), tmp_path / "load.yaml"
        file.write_text("kind: LoadAwareSchedulingArgs\nnodeMetricExpirationSeconds: 36000\n")
        words = [sys.executable, "-m", "koordlite", "scheduler-extender", f"--kubeconfig={plane.kubeconfig()}"]
        words += [f"--listen=127.0.0.1:{port}", f"--load-aware={file}"]
        said = subprocess.run(
            [sys.executable, "-m", "koordlite", "scheduler", "render", "configuration"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        configuration = cyaml.safe_load(said)
        configuration["extenders"][0]["urlPrefix"] = f"http://127.0.0.1:{port}"
        configuration["leaderElection"] = {"leaderElect": False}
        with subprocess.Popen(words, stderr=subprocess.DEVNULL) as process, plane.scheduler(configuration):
            try:
                until(lambda: _answers(port), 60.0)
                api.request("POST", PODS, body=pod("free"))
                until(lambda: _pod(api, "free")["spec"].get("nodeName") == "idle", 60.0)
                api.request("POST", PODS, body=pod("chooses", affinity=_only("busy")))
                until(lambda: CPU in _condition(api, "chooses"), 60.0)
                explained = urllib.request.urlopen(f"http://127.0.0.1:{port}/explain/shop/chooses").read()
                assert "of at most 65 %" in json.dumps(json.loads(explained)["nodes"])
            finally:
                process.terminate()
            assert process.wait(20) == 0


def _only(node: str) -> dict[str, Any]:
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def _put(api: Api, path: str, item: dict[str, Any]) -> None:
    """Create the object and its status."""
    api.request("POST", path, body=item)
    kind = "application/merge-patch+json"
    status = f"{path}/{item['metadata']['name']}/status"
    api.request("PATCH", status, body={"status": item["status"]}, content_type=kind)


def _is_put(api: Api, path: str, item: dict[str, Any]) -> bool:
    """The same, as soon as the kind is served."""
    try:
        _put(api, path, item)
    except ApiError as error:
        if error.status != 404:
            raise
        return False
    return True


def _answers(port: int) -> bool:
    try:
        return bool(urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2).status == 200)
    except OSError:
        return False


def _pod(api: Api, name: str) -> Any:
    return json.loads(api.request("GET", f"/api/v1/namespaces/shop/pods/{name}").body)


def _condition(api: Api, name: str) -> str:
    conditions = _pod(api, name).get("status", {}).get("conditions") or []
    return " ".join(each.get("message") or "" for each in conditions)
