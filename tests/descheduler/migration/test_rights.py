"""The rights that manifests give are those that migration asks for, and guards hold while a job waits."""

from __future__ import annotations

import pathlib
from typing import Any

import cyaml

from descheduler.arguments.evictor import PriorityThreshold
from descheduler.arguments.migration import Arbitration, MigrationControllerArgs
from descheduler.evictors.migration import Migrations
from descheduler.migration.objects import JOBS

World = Any
ROOT = pathlib.Path(__file__).parents[3]
VERBS = {"POST": "create", "PATCH": "patch", "DELETE": "delete"}


class Recorder:
    """The API server, and what was asked of it."""

    def __init__(self, api: Any) -> None:
        self.api = api
        self.asked: set[tuple[str, str, str]] = set()

    def request(self, method: str, path: str, **how: Any) -> Any:
        self._note(method, path)
        return self.api.request(method, path, **how)

    def collect(self, path: str, query: Any = ()) -> Any:
        self._note("LIST", path)
        return self.api.collect(path, query)

    def _note(self, method: str, path: str) -> None:
        group, rest = ("", path.split("/")[3:])
        if path.startswith("/apis/"):
            group, rest = path.split("/")[2], path.split("/")[4:]
        rest = rest[2:] if rest[:1] == ["namespaces"] and len(rest) > 2 else rest
        if rest:  # Otherwise it is the list of what a group serves, which everybody may read.
            resource = "/".join([rest[0], *rest[2:3]])
            self.asked.add((group, resource, VERBS.get(method, "list" if method == "LIST" else "get")))


def given() -> set[tuple[str, str, str]]:
    text = (ROOT / "manifests/components/descheduler-migrate/rbac.yaml").read_text("utf-8")
    role = next(item for item in cyaml.safe_load_all(text) if item["kind"] == "ClusterRole")
    return {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_everything_that_is_asked_is_allowed(world: World) -> None:
    recorder = Recorder(world.api)
    ways: dict[str, dict[str, Any]] = {
        "web": {},
        "db": {"eviction_policy": "Delete", "default_job_mode": "EvictDirectly"},
        "batch": {"eviction_policy": "SoftEviction", "default_job_mode": "EvictDirectly"},
    }
    for app, args in ways.items():
        world.deployment(app, 3)
        world.around()
        migrations = Migrations(recorder, MigrationControllerArgs(**args), creator=app)
        plan = world.evictions()
        migrations.ask([o for o in plan.evict if o.pod.pod.name.startswith(app)], plan.view, world.now)
        world.work(migrations, 8)
        world.clock.advance(700)
        world.work(migrations, 1)
    assert len(recorder.asked) > 10
    assert recorder.asked - given() == set()


def test_a_pod_that_is_protected_meanwhile_stays(world: World) -> None:
    world.deployment("web", 3)
    migrations = world.controller(priority_threshold=PriorityThreshold(name="high"))
    head = {"kind": "PriorityClass", "metadata": {"name": "high"}, "value": 0}
    world.create("/apis/scheduling.k8s.io/v1/priorityclasses", head)
    world.ask(migrations)
    world.work(migrations, 3)
    assert (world.job()["status"]["phase"], world.job()["status"]["reason"]) == ("Failed", "ForbiddenMigratePod")
    assert "priority" in world.job()["status"]["message"]
    assert set(world.places().values()) == {"old"}


def test_without_arbitration_jobs_begin_at_once(world: World) -> None:
    world.deployment("web", 3)
    ref = {"namespace": "shop", "name": "web-0", "uid": world.get("Pod", "web-0", "shop")["metadata"]["uid"]}
    spec = {"podRef": ref, "mode": "EvictDirectly"}
    world.create(JOBS, {"kind": "PodMigrationJob", "metadata": {"name": "by-hand"}, "spec": spec})
    world.work(world.controller(arbitration_args=Arbitration(enabled=False)), 3)
    job = world.job()
    assert job["status"]["phase"] == "Succeeded"
    assert "annotations" not in job["metadata"]


def test_a_paused_job_waits(world: World) -> None:
    world.deployment("web", 3)
    ref = {"namespace": "shop", "name": "web-0", "uid": world.get("Pod", "web-0", "shop")["metadata"]["uid"]}
    spec = {"podRef": ref, "mode": "EvictDirectly", "paused": True}
    world.create(JOBS, {"kind": "PodMigrationJob", "metadata": {"name": "by-hand"}, "spec": spec})
    world.work(world.controller(), 3)
    assert (world.job().get("status") or {}).get("phase", "") == ""
    body = {"spec": {"paused": False}}
    world.api.request("PATCH", f"{JOBS}/by-hand", body=body, content_type="application/merge-patch+json")
    world.work(world.controller(), 4)
    assert world.job()["status"]["phase"] == "Succeeded"
