"""A cluster behind an API server with what migration needs around it: a scheduler that honours reservations, a
controller that makes pods anew, and kubelets that run them. All of them move only when the test says so."""

from __future__ import annotations

import datetime
import pathlib
from collections.abc import Iterator
from typing import Any

import cyaml
import pytest
from apiserver import ApiServer, ManualClock

from descheduler.arguments.migration import MigrationControllerArgs
from descheduler.cycle import planner
from descheduler.evictors.migration import Migrations, Progress
from descheduler.plan import Attempt, EvictionPlan
from descheduler.policy import reader
from descheduler.snapshot import assemble, cluster
from koordlite.kube.client import access

ROOT = pathlib.Path(__file__).parents[3]
START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
Object = dict[str, Any]
MERGE = "application/merge-patch+json"
POLICY = """
kind: DeschedulerConfiguration
profiles:
- name: p
  pluginConfig:
  - {name: MigrationController, args: {schedulerNames: [koord-scheduler]}}
  plugins: {deschedule: {enabled: [{name: RemovePodsViolatingNodeTaints}]}}
"""


class World:
    """The cluster, with nodes `old` (whose pods have to go), `a` and `b`."""

    def __init__(self, server: ApiServer, clock: ManualClock, folder: pathlib.Path) -> None:
        self.server, self.clock = server, clock
        path = folder / "kubeconfig"
        path.write_text(server.kubeconfig(), encoding="utf-8")
        self.api = access.connect(str(path), None, user_agent="test")
        for kind in ("podmigrationjobs", "reservations"):
            definition = cyaml.safe_load((ROOT / f"manifests/crds/koordinator/{kind}.yaml").read_text("utf-8"))
            self.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        for name in ("old", "a", "b"):
            taints = [{"key": "broken", "effect": "NoSchedule"}] if name == "old" else []
            self.create("/api/v1/nodes", {"kind": "Node", "metadata": {"name": name}, "spec": {"taints": taints}})
        self.replicas: dict[str, int] = {}
        self.made = 0

    @property
    def now(self) -> float:
        return self.clock.now().timestamp()

    def create(self, path: str, item: Object) -> None:
        version = path.removeprefix("/apis/").rsplit("/namespaces", 1)[0] if path.startswith("/apis/") else "v1"
        head = {"apiVersion": version if path.startswith("/api/") else "/".join(version.split("/")[:2])}
        self.api.request("POST", path, body={**head, **item})

    def deployment(self, name: str, replicas: int, on: str = "old") -> None:
        """A Deployment with one ReplicaSet whose pods all run on one node."""
        self.replicas[name] = replicas
        selector = {"matchLabels": {"app": name}}
        whole = {"replicas": replicas, "selector": selector, "template": {"metadata": {"labels": {"app": name}}}}
        whole["template"]["spec"] = {"containers": [{"name": "main", "image": "x"}]}  # type: ignore[index]
        root = "/apis/apps/v1/namespaces/default"
        self.create(f"{root}/deployments", {"kind": "Deployment", "metadata": {"name": name}, "spec": whole})
        uid = self.get("Deployment", name, "default")["metadata"]["uid"]
        owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name, "uid": uid, "controller": True}
        meta = {"name": f"{name}-1", "labels": {"app": name}, "ownerReferences": [owner]}
        self.create(f"{root}/replicasets", {"kind": "ReplicaSet", "metadata": meta, "spec": whole})
        for number in range(replicas):
            self.pod(name, f"{name}-{number}", on)
        self.around()

    def pod(self, app: str, name: str, node: str = "") -> None:
        """A pod of a Deployment, on a node or waiting for one."""
        uid = self.get("ReplicaSet", f"{app}-1", "default")["metadata"]["uid"]
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"{app}-1", "uid": uid, "controller": True}
        meta = {"name": name, "namespace": "default", "labels": {"app": app}, "ownerReferences": [owner]}
        spec = {"containers": [{"name": "main", "image": "x"}], "terminationGracePeriodSeconds": 0}
        spec |= {"schedulerName": "koord-scheduler"} | ({"nodeName": node} if node else {})
        self.create("/api/v1/namespaces/default/pods", {"kind": "Pod", "metadata": meta, "spec": spec})

    def get(self, kind: str, name: str, namespace: str = "") -> Object:
        found = self.server.objects.get(kind, name, namespace)
        assert found is not None, f"no {kind} {name}"
        return found

    def status(self, path: str, status: Object) -> None:
        self.api.request("PATCH", f"{path}/status", body={"status": status}, content_type=MERGE)

    def around(self) -> None:
        """What everybody else does: pods made anew, reservations filled, pods bound and run."""
        for app, wanted in self.replicas.items():
            there = [p for p in self.pods() if p["metadata"]["labels"]["app"] == app]
            for _ in range(wanted - len(there)):
                self.made += 1
                self.pod(app, f"{app}-new-{self.made}")
        for place in self.server.objects.all("Reservation"):
            if not (place.get("status") or {}).get("phase"):
                self._schedule(place)
        for pod in self.pods():
            self._bind(pod)
        for pod in self.pods():
            if pod["spec"].get("nodeName") and (pod.get("status") or {}).get("phase") != "Running":
                ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
                self.status(f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}", ready)

    def _schedule(self, place: Object) -> None:
        taken = {one["status"].get("nodeName") for one in self.server.objects.all("Reservation") if one.get("status")}
        node = "a" if "a" not in taken else "b"
        scheduled = {"type": "Scheduled", "status": "True", "reason": "Scheduled"}
        status = {"phase": "Available", "nodeName": node, "conditions": [scheduled]}
        self.status(f"{RESERVATIONS}/{place['metadata']['name']}", status)

    def _bind(self, pod: Object) -> None:
        """A pod without a node takes a free reservation of its controller, and else the node `b`."""
        if pod["spec"].get("nodeName"):
            return
        name, uid = pod["metadata"]["name"], pod["metadata"]["ownerReferences"][0]["uid"]
        free = [
            place
            for place in self.server.objects.all("Reservation")
            if place["status"].get("phase") == "Available" and place["spec"]["owners"][0]["controller"]["uid"] == uid
        ]
        node = free[0]["status"]["nodeName"] if free else "b"
        target = {"target": {"apiVersion": "v1", "kind": "Node", "name": node}}
        meta = {"metadata": {**BINDING["metadata"], "name": name}}
        self.create(f"/api/v1/namespaces/default/pods/{name}/binding", {"kind": "Binding", **meta, **target})
        if free:
            owner = {"namespace": "default", "name": name, "uid": pod["metadata"]["uid"]}
            path = f"{RESERVATIONS}/{free[0]['metadata']['name']}"
            self.status(path, {"phase": "Succeeded", "currentOwners": [owner]})

    def pods(self) -> list[Object]:
        return list(self.server.objects.all("Pod"))

    def jobs(self) -> list[Object]:
        return list(self.server.objects.all("PodMigrationJob"))

    def job(self) -> Object:
        """The one job there is."""
        found = self.jobs()
        assert len(found) == 1
        return found[0]

    def places(self) -> dict[str, str]:
        """Node of each pod."""
        return {pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in self.pods()}

    def plan(self) -> EvictionPlan:
        view = assemble.view(cluster.read(self.api))
        return planner.plan(view, reader.setup(reader.parse(POLICY, "policy")))

    def controller(self, **args: Any) -> Migrations:
        return Migrations(self.api, MigrationControllerArgs(**args), creator="me")

    def ask(self, migrations: Migrations) -> tuple[Attempt, ...]:
        plan = self.plan()
        return migrations.ask(plan.evict, plan.view, self.now)

    def work(self, migrations: Migrations, rounds: int = 1, seconds: float = 3.0) -> list[Progress]:
        """Rounds of work, each followed by what everybody else does, and by time passing."""
        told = []
        for _ in range(rounds):
            told += migrations.work(self.now)
            self.around()
            self.clock.advance(seconds)
        return told


BINDING = {"metadata": {"namespace": "default"}}
RESERVATIONS = "/apis/scheduling.koordinator.sh/v1alpha1/reservations"


@pytest.fixture
def world(tmp_path: pathlib.Path) -> Iterator[World]:
    clock = ManualClock(START)
    with ApiServer(seed=1, clock=clock, controllers=True) as server:
        yield World(server, clock, tmp_path)
