"""`descheduler run` asks pods first on a real API server, as the account that the manifests give it.

Servers before Kubernetes 1.37 have no EvictionRequests: the kinds are CRDs here, and their controller and a responder
are stand-ins (`tests/support/evictionasking.py`).
"""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from typing import Any

import control_plane
import evictionasking
from evictionasking import RESPONDER, Controller, listed

from koordlite.kube.client.access import Api
from tests.manifests.conftest import rendered

MERGE = "application/merge-patch+json"
PODS = "/api/v1/namespaces/shop/pods"
POLICY = """
apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
evictionRequests: {mode: "MODE", fallback: FALLBACK}
profiles:
- name: tidy
  plugins: {deschedule: {enabled: [RemovePodsViolatingNodeTaints]}}
"""
TAINT = {"key": "gone", "effect": "NoSchedule"}


def add(api: Api, path: str, kind: str, name: str, **parts: Any) -> None:
    meta = {"name": name} | parts.pop("metadata", {})
    status = parts.pop("status", None)
    api.request("POST", path, body={"apiVersion": "v1", "kind": kind, "metadata": meta, **parts})
    if status:
        api.request("PATCH", f"{path}/{name}/status", body={"status": status}, content_type=MERGE)


def set_up(api: Api) -> None:
    amounts = {"cpu": "8", "memory": "16Gi", "pods": "110"}
    ready = [{"type": "Ready", "status": "True", "reason": "r", "message": ""}]
    status = {"allocatable": amounts, "capacity": amounts, "conditions": ready}
    for name, taints in (("full", [TAINT]), ("free", [])):
        add(api, "/api/v1/nodes", "Node", name, spec={"taints": taints}, status=status)
    add(api, "/api/v1/namespaces", "Namespace", "shop")
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": True}
    meta = {"ownerReferences": [owner], "annotations": {"descheduler.koordlite.io/ask-first": "true"}}
    container = {"name": "c", "image": "pause"}
    spec = {"nodeName": "full", "containers": [container], "terminationGracePeriodSeconds": 0}
    for name in ("db-0", "db-1"):
        add(
            api,
            PODS,
            "Pod",
            name,
            metadata=meta,
            spec=spec,
            status={"phase": "Running", "startTime": "2026-01-01T00:00:00Z"},
        )


class Runs:
    """One process of the descheduler a cycle."""

    def __init__(self, kubeconfig: pathlib.Path, folder: pathlib.Path) -> None:
        self._kubeconfig, self._folder = kubeconfig, folder

    def cycle(self, mode: str = "on", *, fallback: bool = True, dry: bool = False) -> dict[str, Any]:
        """The JSON report."""
        policy = self._folder / "policy.yaml"
        policy.write_text(POLICY.replace("MODE", mode).replace("FALLBACK", str(fallback).lower()))
        words = [sys.executable, "-m", "descheduler", "run", f"--kubeconfig={self._kubeconfig}", f"--policy={policy}"]
        words += [f"--report={self._folder / 'report'}", f"--dry-run={str(dry).lower()}", "--listen=off"]
        words += ["--memory-namespace=koordlite-system"] if not dry else []
        done = subprocess.run(words, capture_output=True, text=True, timeout=100, check=False)
        assert done.returncode == 0, done.stderr
        report: dict[str, Any] = json.loads((self._folder / "report" / "plan.json").read_text())
        report["log"] = done.stderr
        return report

    def results(self, *, fallback: bool = True) -> dict[str, str]:
        """What became of each pod in a cycle."""
        report = self.cycle(fallback=fallback)
        kept = {one["pod"]: one["keptBecause"][0]["reason"] for one in report["kept"]}
        return kept | {one["pod"]: one["result"] for one in report["results"]}


def test_pods_are_asked_and_go_when_they_agree_or_are_made_to(tmp_path: pathlib.Path) -> None:
    with control_plane.control_plane(tmp_path) as plane:
        api = plane.api()
        set_up(api)
        parts = rendered("overlays/observe", "descheduler-evict", "descheduler-eviction-requests")
        kinds = "Namespace", "ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"
        here = "", "koordlite-system"
        wanted = [item for item in parts if item["kind"] in kinds and item["metadata"].get("namespace", "") in here]
        path = tmp_path / "rights.json"
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": wanted}))
        plane.kubectl("apply", "-f", str(path))
        runs = Runs(plane.kubeconfig(plane.token("descheduler")), tmp_path)

        observed = runs.cycle("observe", dry=True)
        assert [note["reason"] for note in observed["notes"]] == ["WouldBeRequested"]
        unserved = runs.cycle(fallback=False)
        assert {one["result"] for one in unserved["results"]} == {"NotTried"}
        assert "lifecycle.k8s.io/v1alpha1 is not served" in unserved["results"][0]["text"]

        evictionasking.define(api)
        controller = Controller(api)
        assert set(runs.results().values()) == {"Requested"}
        assert len(listed(api, "evictionrequests")) == 2
        controller.work("2 of 3 leaders handed over")
        report = runs.cycle()
        assert report["results"] == []
        for one in report["kept"]:
            (why,) = one["keptBecause"]
            assert why["reason"] == "EvictionRequested"
            assert f"{RESPONDER} answers: 2 of 3 leaders handed over" in why["text"]
        assert "2 of 3 leaders handed over" in report["log"]

        api.request("DELETE", f"{PODS}/db-0", body={"gracePeriodSeconds": 0})  # The responder has moved it.
        controller.work()
        assert runs.results() == {"shop/db-1": "EvictionRequested"}
        (request,) = listed(api, "evictionrequests")

        controller.fail("a shard has no replica")
        assert runs.results(fallback=False) == {"shop/db-1": "RequestRefused"}
        assert runs.results(fallback=False) == {"shop/db-1": "RequestRefused"}
        (request,) = listed(api, "evictionrequests")
        assert request["spec"]["intent"] == "Withdrawn"
        assert runs.results() == {"shop/db-1": "Evicted"}
        assert runs.results() == {}
        assert listed(api, "evictionrequests") == []

        group = "lifecycle.k8s.io"
        mine = plane.requests("system:serviceaccount:koordlite-system:descheduler")
        used = {(one.resource, one.verb) for one in mine if one.group == group}
        rules = [rule for item in wanted for rule in item.get("rules", ()) if rule["apiGroups"] == [group]]
        granted = {(resource, verb) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]}
        assert used == granted
        assert {one.status for one in mine if one.group == group and one.status >= 400} <= {404}
