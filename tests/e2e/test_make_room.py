"""A pod waits on a real cluster, other pods move, and the stock scheduler places all of them."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from typing import Any

import control_plane
from apibench import until

from koordlite.kube.client.access import Api

PODS = "/api/v1/namespaces/shop/pods"
MERGE = "application/merge-patch+json"
POLICY = """
apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
profiles:
- name: room
  pluginConfig:
  - {name: DefaultEvictor, args: {nodeFit: true}}
  - {name: MakeRoom, args: {evict: true, minPending: 1s}}
  plugins: {deschedule: {enabled: [MakeRoom]}}
"""


def spec(cpu: str) -> dict[str, Any]:
    """A pod that goes at once, as there is no kubelet that would end it; a new node has the taint of one not ready."""
    amounts = {"cpu": cpu, "memory": "64Mi"}
    container = {"name": "c", "image": "pause", "resources": {"requests": amounts, "limits": amounts}}
    return {"containers": [container], "terminationGracePeriodSeconds": 0, "tolerations": [{"operator": "Exists"}]}


def add_node(api: Api, name: str, cpu: str) -> None:
    amounts = {"cpu": cpu, "memory": "8Gi", "pods": "110"}
    ready = [{"type": "Ready", "status": "True", "reason": "r", "message": ""}]
    status = {"allocatable": amounts, "capacity": amounts, "conditions": ready}
    api.request("POST", "/api/v1/nodes", body={"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    api.request("PATCH", f"/api/v1/nodes/{name}/status", body={"status": status}, content_type=MERGE)


def nodes(api: Api) -> dict[str, str]:
    """Node by app."""
    items = json.loads(api.request("GET", PODS).body)["items"]
    return {item["metadata"]["labels"]["app"]: item["spec"].get("nodeName", "") for item in items}


def refused(api: Api) -> bool:
    items = json.loads(api.request("GET", PODS).body)["items"]
    big = next(item for item in items if item["metadata"]["labels"]["app"] == "big")
    return any(one.get("reason") == "Unschedulable" for one in big["status"].get("conditions") or ())


def test_pods_move_and_the_one_that_waited_is_placed(tmp_path: pathlib.Path) -> None:
    with control_plane.control_plane(tmp_path, controllers=("replicaset-controller",)) as plane:
        api, policy = plane.api(), tmp_path / "policy.yaml"
        policy.write_text(POLICY, encoding="utf-8")
        api.request("POST", "/api/v1/namespaces", body={"metadata": {"name": "shop"}})
        add_node(api, "a", "8")
        head = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
        with plane.scheduler({**head, "leaderElection": {"leaderElect": False}}):
            for app in ("one", "two"):
                template = {"metadata": {"labels": {"app": app}}, "spec": spec("3")}
                whole = {"replicas": 1, "selector": {"matchLabels": {"app": app}}, "template": template}
                body = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": app}, "spec": whole}
                api.request("POST", "/apis/apps/v1/namespaces/shop/replicasets", body=body)
            until(lambda: nodes(api) == {"one": "a", "two": "a"}, 30.0)
            for name in ("b", "c"):  # Emptier than `a` without one of its pods: the scheduler prefers them.
                add_node(api, name, "6")
            meta = {"name": "big", "labels": {"app": "big"}}
            api.request("POST", PODS, body={"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec("8")})
            until(lambda: refused(api), 30.0)
            words = [sys.executable, "-m", "descheduler"]
            cluster = [f"--kubeconfig={plane.kubeconfig()}", f"--policy={policy}"]
            told = subprocess.check_output([*words, "explain", "shop/big", *cluster], text=True)
            assert "room on    a, after 2 moves" in told
            until(lambda: "2 to evict" in planned([*words, "plan", *cluster]), 30.0)
            command = [*words, "run", *cluster, "--dry-run=false", "--memory-namespace=shop", "--no-events"]
            subprocess.run(command, check=True, capture_output=True, timeout=60)
            until(lambda: nodes(api).get("big") == "a", 45.0)
            until(lambda: {nodes(api)["one"], nodes(api)["two"]} <= {"b", "c"}, 30.0)


def planned(command: list[str]) -> str:
    """The plan, once the pod has waited for a second."""
    return subprocess.check_output(command, text=True)
