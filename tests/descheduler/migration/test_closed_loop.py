"""Migration against an API server, with a scheduler, a controller and kubelets around it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from apiserver import Fault

from descheduler.arguments.migration import ObjectLimiter
from descheduler.evictors.migration_api import Cluster
from descheduler.migration import objects
from descheduler.migration.objects import JOBS, RESERVATIONS, MigrationJob
from koordlite.kube.client.answers import ApiError
from koordlite.model.wire.reservation import ObjectReference

World = Any
MERGE = "application/merge-patch+json"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
FREE = {"workload": ObjectLimiter()}
"""No limit of pace."""


def phases(world: World) -> list[str]:
    return [job["status"].get("phase", "") for job in world.jobs()]


def one_move(world: World, **args: Any) -> Any:
    """The controller, with a job for one of three pods."""
    world.deployment("web", 3)
    migrations = world.controller(**args)
    world.ask(migrations)
    return migrations


def test_a_pod_moves_to_the_place_that_was_reserved_for_it(world: World) -> None:
    world.deployment("web", 3)
    migrations = world.controller()
    results = [attempt.result for attempt in world.ask(migrations)]
    assert results[0] == "JobCreated"
    world.work(migrations, 8)
    job = world.job()
    assert job["status"]["phase"] == "Succeeded"
    assert job["status"]["nodeName"] == "a"
    assert sorted(world.places().values()) == ["a", "old", "old"]
    kinds = [condition["type"] for condition in job["status"]["conditions"]]
    assert kinds[:3] == ["ReservationCreated", "ReservationScheduled", "Eviction"]


def test_the_reservation_comes_before_the_eviction(world: World) -> None:
    move_ = one_move(world)
    world.server.requests.clear()
    world.work(move_, 8)
    done = [(asked.verb, asked.resource) for asked in world.server.requests]
    assert done.index(("create", "reservations")) < done.index(("create", "pods/eviction"))


def test_only_one_pod_of_a_small_workload_moves_at_a_time(world: World) -> None:
    world.deployment("web", 3)
    results = [attempt.result for attempt in world.ask(world.controller())]
    assert results == ["JobCreated", "Deferred", "Deferred"]


def test_a_workload_of_one_pod_is_left_alone(world: World) -> None:
    world.deployment("web", 1)
    (attempt,) = world.ask(world.controller())
    assert (attempt.result, attempt.text.split(":")[0]) == ("Deferred", "TooFewReplicas")


def test_without_reservations_a_pod_just_goes(world: World) -> None:
    migrations = one_move(world, default_job_mode="EvictDirectly")
    world.work(migrations, 3)
    assert phases(world) == ["Succeeded"]
    assert sorted(world.places().values()) == ["b", "old", "old"]
    assert world.server.objects.all("Reservation") == []


@pytest.mark.parametrize("done", range(7))
def test_a_restart_after_any_round_ends_the_same(world: World, done: int) -> None:
    before = one_move(world)
    world.work(before, done)
    world.work(world.controller(), 8)
    assert phases(world) == ["Succeeded"]
    assert sorted(world.places().values()) == ["a", "old", "old"]


@pytest.mark.parametrize("verb, resource", [("create", "reservations"), ("patch", "podmigrationjobs/status")])
def test_a_write_whose_answer_is_lost_is_not_done_twice(world: World, verb: str, resource: str) -> None:
    migrations = one_move(world)
    world.server.faults.add(Fault(verb=verb, resource=resource, drop=True))
    world.work(migrations, 9)
    assert phases(world) == ["Succeeded"]
    assert len(world.server.objects.all("Reservation")) == 1


def test_a_new_pod_of_the_same_name_is_never_the_victim(world: World) -> None:
    migrations = one_move(world)
    name = world.job()["spec"]["podRef"]["name"]
    world.work(migrations, 1)
    world.server.objects.remove("Pod", name, "shop")
    world.pod("web", name, "old")
    fresh = world.get("Pod", name, "shop")["metadata"]["uid"]
    world.work(migrations, 8)
    assert world.get("Pod", name, "shop")["metadata"]["uid"] == fresh
    assert (phases(world), world.job()["status"]["reason"]) == (["Failed"], "MissingPod")


def test_a_job_that_fails_gives_its_place_back(world: World) -> None:
    migrations = one_move(world)
    world.work(migrations, 1)
    assert len(world.server.objects.all("Reservation")) == 1
    world.server.objects.remove("Pod", world.job()["spec"]["podRef"]["name"], "shop")
    world.replicas.clear()
    world.work(migrations, 3)
    assert phases(world) == ["Failed"]
    assert world.server.objects.all("Reservation") == []


def test_a_disruption_budget_makes_the_job_wait_and_then_time_out(world: World) -> None:
    migrations = one_move(world)
    budget = {"metadata": {"name": "all"}, "spec": {"minAvailable": 3, "selector": {"matchLabels": {"app": "web"}}}}
    path = "/apis/policy/v1/namespaces/shop/poddisruptionbudgets"
    world.create(path, {"kind": "PodDisruptionBudget", **budget})
    world.work(migrations, 6)
    assert world.job()["status"]["reason"] == "FailedEvict"
    assert "budget" in world.job()["status"]["message"]
    place = world.server.objects.all("Reservation")[0]["metadata"]["name"]
    standing = objects.standing(msgspec.convert(world.job(), MigrationJob))
    assert f"counts on reservation {place}, on node a; Eviction, FailedEvict: " in standing
    world.work(migrations, 6, seconds=60.0)
    assert (phases(world), world.job()["status"]["reason"]) == (["Failed"], "Timeout")
    assert world.server.objects.all("Reservation") == []
    assert set(world.places().values()) == {"old"}


def test_a_waiting_job_has_a_time_to_live_too(world: World) -> None:
    migrations = one_move(world, max_migrating_globally=1)
    world.work(migrations, 1, seconds=1.0)
    name = next(name for name in world.places() if name != world.job()["spec"]["podRef"]["name"])
    ref = {"namespace": "shop", "name": name, "uid": world.get("Pod", name, "shop")["metadata"]["uid"]}
    by_hand = {"kind": "PodMigrationJob", "metadata": {"name": "by-hand"}, "spec": {"podRef": ref, "ttl": "30s"}}
    world.create(JOBS, by_hand)
    world.replicas.clear()
    world.work(migrations, 12, seconds=1.0)
    assert "phase" not in (world.get("PodMigrationJob", "by-hand").get("status") or {})
    world.clock.advance(30)
    world.work(migrations, 1)
    assert world.get("PodMigrationJob", "by-hand")["status"]["reason"] == "Timeout"


def test_a_waiting_job_is_not_let_through_by_an_edit(world: World) -> None:
    migrations = one_move(world, max_migrating_per_workload=1, object_limiters=FREE)
    for name in ("web-1", "web-2"):
        ref = {"namespace": "shop", "name": name, "uid": world.get("Pod", name, "shop")["metadata"]["uid"]}
        world.create(JOBS, {"kind": "PodMigrationJob", "metadata": {"name": name}, "spec": {"podRef": ref}})
    world.api.request("PATCH", f"{JOBS}/web-2", body={"metadata": {"labels": {"x": "y"}}}, content_type=MERGE)
    migrations.work(world.now)
    begun = [job for job in world.jobs() if (job.get("status") or {}).get("phase") == "Running"]
    assert len(begun) == 1


def test_jobs_of_somebody_else_are_left_alone(world: World) -> None:
    world.deployment("web", 3)
    ref = {"namespace": "shop", "name": "web-0", "uid": world.get("Pod", "web-0", "shop")["metadata"]["uid"]}
    meta = {"name": "theirs", "annotations": {"koordinator.sh/job-created-by": "another"}}
    world.create(JOBS, {"kind": "PodMigrationJob", "metadata": meta, "spec": {"podRef": ref}})
    assert world.work(world.controller(), 4) == []
    assert "phase" not in (world.job().get("status") or {})


def test_a_job_that_was_deleted_is_forgotten(world: World) -> None:
    migrations = one_move(world)
    world.server.objects.remove("PodMigrationJob", world.job()["metadata"]["name"])
    assert world.work(migrations, 3) == []


def test_old_jobs_and_their_places_are_removed(world: World) -> None:
    migrations = one_move(world)
    world.work(migrations, 8)
    world.clock.advance(600)
    world.work(migrations, 1)
    assert (world.jobs(), world.server.objects.all("Reservation")) == ([], [])


def test_a_job_that_waits_rests_three_seconds_unless_somebody_changes_it(world: World) -> None:
    migrations = one_move(world)
    for _ in range(2):
        migrations.work(world.now)
    assert world.job()["status"]["status"] == "ReservationCreated", "nobody gives the reservation a node yet"

    def is_looked_at(seconds: float) -> bool:
        world.server.requests.clear()
        world.clock.advance(seconds)
        migrations.work(world.now)
        return any((asked.verb, asked.resource) == ("get", "pods") for asked in world.server.requests)

    assert [is_looked_at(0.5) for _ in range(6)] == [False] * 5 + [True]
    note = {"metadata": {"annotations": {"note": "by hand"}}}
    world.api.request("PATCH", f"{JOBS}/{world.job()['metadata']['name']}", body=note, content_type=MERGE)
    assert [is_looked_at(0.5) for _ in range(2)] == [True, False]


def test_the_pace_of_a_workload_holds_over_a_restart(world: World) -> None:
    world.deployment("web", 12)
    results = [attempt.result for attempt in world.ask(world.controller())]
    assert results.count("JobCreated") == 1
    world.work(world.controller(), 8)
    again = {attempt.text.split(":")[0] for attempt in world.ask(world.controller())}
    assert again == {"ObjectLimiter"}
    world.clock.advance(300)
    assert "JobCreated" in {attempt.result for attempt in world.ask(world.controller())}


def test_a_soft_eviction_only_says_that_the_pod_should_go(world: World) -> None:
    migrations = one_move(world, default_job_mode="EvictDirectly", eviction_policy="SoftEviction")
    world.work(migrations, 3)
    name = world.job()["spec"]["podRef"]["name"]
    note = world.get("Pod", name, "shop")["metadata"]["annotations"]["scheduling.koordinator.sh/soft-eviction"]
    assert '"reason": "TaintNotTolerated"' in note
    assert phases(world) == ["Running"]
    world.server.objects.remove("Pod", name, "shop")
    world.work(migrations, 1)
    assert phases(world) == ["Succeeded"]


def test_a_pod_made_again_before_it_is_asked_softly_is_no_refusal(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server answers 422: to a patch, a uid is a field that may not change."""
    world.deployment("web", 3)
    real, answers = Cluster.annotate_pod, []

    def late(self: Cluster, ref: ObjectReference, annotations: Mapping[str, str]) -> None:
        pod = world.get("Pod", ref.name, "shop")
        world.server.objects.remove("Pod", ref.name, "shop")
        kept = {key: pod["metadata"][key] for key in ("name", "namespace", "labels")}
        world.server.objects.load(pod | {"metadata": kept})
        with pytest.raises(ApiError) as refused:
            real(self, ref, annotations)
        answers.append(refused.value.status)
        raise refused.value

    monkeypatch.setattr(Cluster, "annotate_pod", late)
    migrations = world.controller(default_job_mode="EvictDirectly", eviction_policy="SoftEviction")
    world.ask(migrations)
    world.work(migrations, 3)
    assert answers == [422]
    assert phases(world) == ["Succeeded"]


def test_a_dry_run_makes_no_job(world: World) -> None:
    world.deployment("web", 3)
    assert {attempt.result for attempt in world.ask(world.controller(dry_run=True))} == {"WouldEvict"}
    assert world.jobs() == []


def together(world: World) -> tuple[Any, list[Any]]:
    """A plan with one pod of each of two workloads, which go only together."""
    for app in ("web", "db"):
        world.deployment(app, 3)
    plan = world.evictions()
    several = [next(o for o in plan.evict if o.pod.key.startswith(f"shop/{app}")) for app in ("web", "db")]
    uids = tuple(one.pod.uid for one in several)
    return plan, [msgspec.structs.replace(one, together=uids, held_first=uids) for one in several]


def test_pods_that_go_together_wait_until_each_has_its_place(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, several = together(world)
    migrations = world.controller(max_migrating_per_namespace=5)
    attempts = migrations.ask(several, plan.view, world.now)
    assert [attempt.result for attempt in attempts] == ["JobCreated"] * 2
    schedule = world._schedule

    def only_web(place: Any) -> None:
        if (
            "web" in place["metadata"].get("name", "")
            or place["spec"]["template"]["metadata"]["labels"]["app"] == "web"
        ):
            schedule(place)

    monkeypatch.setattr(world, "_schedule", only_web)
    world.work(migrations, 6)
    assert set(world.places().values()) == {"old"}, "the place of the other one is not held"
    monkeypatch.setattr(world, "_schedule", schedule)
    world.work(migrations, 10)
    assert phases(world) == ["Succeeded"] * 2
    assert sorted(world.places().values()) == ["a", "b", "old", "old", "old", "old"]


def test_where_one_finds_no_place_none_of_them_goes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, several = together(world)
    migrations = world.controller(max_migrating_per_namespace=5)
    migrations.ask(several, plan.view, world.now)
    schedule = world._schedule

    def refused(place: Any) -> None:
        if place["spec"]["template"]["metadata"]["labels"]["app"] == "web":
            schedule(place)
        else:
            path = f"{RESERVATIONS}/{place['metadata']['name']}"
            condition = {"type": "Scheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
            world.status(path, {"phase": "Failed", "conditions": [condition]})

    monkeypatch.setattr(world, "_schedule", refused)
    world.work(migrations, 8)
    assert sorted(job["status"]["reason"] for job in world.jobs()) == ["ForbiddenMigratePod", "Unschedulable"]
    assert set(world.places().values()) == {"old"}
    world.work(migrations, 2)
    assert world.server.objects.all("Reservation") == [], "the place that was held is given back"


def test_where_limits_keep_one_of_them_no_job_is_made(world: World) -> None:
    plan, several = together(world)
    attempts = world.controller(max_migrating_globally=1).ask(several, plan.view, world.now)
    assert [attempt.result for attempt in attempts] == ["Deferred"] * 2
    assert all(attempt.text.startswith("OthersStay: shop/db-") for attempt in attempts)
    assert world.jobs() == []


@pytest.mark.parametrize(
    "template",
    [
        {"metadata": None, "spec": {"priority": 0}},
        {"spec": None},
        {"spec": {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [None]}}}}},
        {"spec": {"affinity": 3}},
    ],
    ids=["metadata null", "spec null", "a term null", "an affinity that is none"],
)
def test_a_template_with_mistakes_keeps_no_other_job(world: World, template: Any) -> None:
    world.deployment("api", 3)
    world.deployment("web", 3)
    migrations = world.controller(max_migrating_per_node=0, max_migrating_per_namespace=0)
    world.ask(migrations)
    mistaken, other = sorted(world.jobs(), key=lambda job: job["spec"]["podRef"]["name"])
    spec = {**mistaken["spec"], "reservationOptions": {"template": {"spec": {"template": template}}}}
    world.api.request("PUT", f"{JOBS}/{mistaken['metadata']['name']}", body={**mistaken, "spec": spec})
    world.work(migrations, 8)
    assert world.get("PodMigrationJob", other["metadata"]["name"])["status"]["phase"] == "Succeeded"
