"""A cluster behind an API server with what migration needs around it where koord-scheduler runs: a scheduler that
fills reservations itself. It moves only when the test says so."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import Any

import pytest
from apiserver import ApiServer, ManualClock
from migrationloop import MERGE, POLICY, RESERVATIONS, START, Loop, Object

from descheduler.arguments.migration import MigrationControllerArgs
from descheduler.cycle import planner
from descheduler.evictors.migration import Migrations, Progress
from descheduler.plan import Attempt, EvictionPlan
from descheduler.policy import reader
from descheduler.snapshot import assemble, cluster

KOORDINATOR = POLICY.replace("default-scheduler", "koord-scheduler")


class World(Loop):
    """Nodes `old`, whose pods have to go, `a` and `b`; Deployments of pods that ask for no CPU."""

    SCHEDULER = "koord-scheduler"

    def populate(self) -> None:
        for name in ("old", "a", "b"):
            self.node(name, 8)

    def create(self, path: str, item: Object) -> None:
        version = path.removeprefix("/apis/").rsplit("/namespaces", 1)[0] if path.startswith("/apis/") else "v1"
        head = {"apiVersion": version if path.startswith("/api/") else "/".join(version.split("/")[:2])}
        self.api.request("POST", path, body={**head, **item})

    def deployment(self, name: str, replicas: int, on: str = "old") -> None:
        """A Deployment with one ReplicaSet whose pods all run on one node."""
        self.replicas[name] = replicas
        self._deployment(name)
        for number in range(replicas):
            self.pod(name, f"{name}-{number}", on)
        self.around()

    def pod(self, app: str, name: str, node: str = "", cpu: int = 0) -> None:
        super().pod(app, name, node, cpu)

    def get(self, kind: str, name: str, namespace: str = "") -> Object:
        found = self.server.objects.get(kind, name, namespace)
        assert found is not None, f"no {kind} {name}"
        return found

    def status(self, path: str, status: Object) -> None:
        self.api.request("PATCH", f"{path}/status", body={"status": status}, content_type=MERGE)

    def around(self) -> None:
        """What everybody else does: pods made anew, reservations filled, pods bound and run."""
        self.replace()
        for place in self.all("Reservation"):
            if not (place.get("status") or {}).get("phase"):
                self._schedule(place)
        for pod in self.all("Pod"):
            self._bind(pod)
        self.kubelets()

    def _schedule(self, place: Object) -> None:
        taken = {one["status"].get("nodeName") for one in self.all("Reservation") if one.get("status")}
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
            for place in self.all("Reservation")
            if place["status"].get("phase") == "Available" and place["spec"]["owners"][0]["controller"]["uid"] == uid
        ]
        self.bind(name, free[0]["status"]["nodeName"] if free else "b")
        if free:
            owner = {"namespace": "shop", "name": name, "uid": pod["metadata"]["uid"]}
            path = f"{RESERVATIONS}/{free[0]['metadata']['name']}"
            self.status(path, {"phase": "Succeeded", "currentOwners": [owner]})

    def jobs(self) -> list[Object]:
        return self.all("PodMigrationJob")

    def places(self) -> dict[str, str]:
        """Node of each pod."""
        return {name: pod["spec"].get("nodeName", "") for name, pod in self.pods().items()}

    def evictions(self) -> EvictionPlan:
        """What a cycle of the descheduler plans."""
        view = assemble.view(cluster.read(self.api))
        return planner.plan(view, reader.setup(reader.parse(KOORDINATOR, "policy")))

    def controller(self, **args: Any) -> Migrations:
        return Migrations(self.api, MigrationControllerArgs(**args), creator="me")

    def ask(self, migrations: Migrations) -> tuple[Attempt, ...]:
        plan = self.evictions()
        return migrations.ask(plan.evict, plan.view, self.now)

    def work(self, migrations: Migrations, rounds: int = 1, seconds: float = 3.0) -> list[Progress]:
        """Rounds of work, each followed by what everybody else does, and by time passing."""
        told = []
        for _ in range(rounds):
            told += migrations.work(self.now)
            self.around()
            self.clock.advance(seconds)
        return told


@pytest.fixture
def world(tmp_path: pathlib.Path) -> Iterator[World]:
    clock = ManualClock(START)
    with ApiServer(seed=1, clock=clock, controllers=True) as server:
        yield World(server, clock, tmp_path, policy=KOORDINATOR)
