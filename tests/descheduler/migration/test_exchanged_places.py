"""Two jobs of one ReplicaSet hold a place each, and a successor takes the place that the other job made."""

from __future__ import annotations

import pathlib
import random
from typing import Any

import msgspec
import pytest
import slices
from apiserver import ApiServer, ManualClock
from migrationloop import MERGE, POLICY, RESERVATIONS, START, Death, Loop
from msgspec import structs

from descheduler.migration import objects, reconcile
from descheduler.migration.objects import MigrationJob, Reservation
from descheduler.migration.reconcile import ClusterState
from koordlite.model import keys, times
from koordlite.model.wire import objects as wire

BOTH = POLICY.replace(
    "schedulerNames: [default-scheduler]",
    "schedulerNames: [default-scheduler], maxMigratingPerWorkload: 2, maxUnavailablePerWorkload: 2",
)
JOBS = "/apis/scheduling.koordinator.sh/v1alpha1/podmigrationjobs"
BUDGETS = "/apis/policy/v1/namespaces/shop/poddisruptionbudgets"


class Three(Loop):
    """A third pod of `web`, on a node of its own: a workload of two never loses both."""

    def populate(self) -> None:
        """What there is at first."""
        for name, cpu in (("old", 8), ("a", 5), ("b", 5), ("c", 3)):
            self.node(name, cpu)
        self.replicas = {"web": 3}
        self._deployment("web")
        for name, node in (("web-0", "old"), ("web-1", "old"), ("web-2", "c")):
            self.pod("web", name, node)
        self.kubelets()


def paused(loop: Loop, job: dict[str, Any], value: bool) -> None:
    loop.api.request("PATCH", f"{JOBS}/{job['metadata']['name']}", body={"spec": {"paused": value}}, content_type=MERGE)


def place_of(job: dict[str, Any]) -> str:
    name: str = job["spec"]["reservationOptions"]["reservationRef"]["name"]
    return name


def two_places(loop: Loop) -> list[dict[str, Any]]:
    """Jobs with a place each, while a budget lets no pod go."""
    spec = {"minAvailable": 3, "selector": {"matchLabels": {"app": "web"}}}
    body = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "all"}, "spec": spec}
    loop.plan()
    loop.api.request("POST", BUDGETS, body=body)
    for _ in range(20):  # A death costs a round.
        loop.run(1)
        jobs = sorted(loop.all("PodMigrationJob"), key=lambda job: str(job.get("status", {}).get("nodeName")))
        if [job.get("status", {}).get("nodeName") for job in jobs] == ["a", "b"]:
            break
    assert len(jobs) == len(loop.placeholders()) == 2, jobs
    return jobs


def both_moved(loop: Loop) -> None:
    jobs = loop.all("PodMigrationJob")
    assert [job["status"]["phase"] for job in jobs] == ["Succeeded", "Succeeded"], [job["status"] for job in jobs]
    successors = sorted(pod["metadata"]["uid"] for pod in loop.pods().values() if pod["spec"]["nodeName"] != "c")
    assert sorted(job["status"]["podRef"]["uid"] for job in jobs) == successors
    assert loop.nodes_of_pods() == ["a", "b", "c"]
    places = sorted(place["metadata"]["name"] for place in loop.all("Reservation"))
    assert sorted(map(place_of, jobs)) == places
    assert loop.placeholders() == []
    assert loop.promised_twice() == []
    evicted = [asked for asked in loop.server.requests if asked.resource == "pods/eviction" and asked.status < 300]
    assert len(evicted) == 2


def played(loop: Loop, first: int, rounds: int) -> bool:
    """One pod goes, and some rounds later the other. True: the first successor took the place of the other job."""
    jobs = two_places(loop)
    paused(loop, jobs[1 - first], True)
    # The successor prefers the place of the other job.
    body = {"metadata": {"labels": {keys.RESERVATION_ORDER: "1"}}}
    loop.api.request("PATCH", f"{RESERVATIONS}/{place_of(jobs[1 - first])}", body=body, content_type=MERGE)
    loop.api.request("PATCH", f"{BUDGETS}/all", body={"spec": {"minAvailable": 2}}, content_type=MERGE)
    loop.run(rounds, seconds=10.0)
    place = place_of(jobs[first])
    exchanged = any(
        each["metadata"]["name"] != place and each.get("status", {}).get("currentOwners")
        for each in loop.all("Reservation")
    )
    paused(loop, jobs[1 - first], False)
    loop.run(20, seconds=10.0)
    return exchanged


@pytest.mark.parametrize("first", [0, 1])
def test_successors_may_exchange_places_and_both_jobs_succeed(tmp_path: pathlib.Path, first: int) -> None:
    clock = ManualClock(START)
    with ApiServer(seed=1, clock=clock, controllers=True) as server:
        loop = Three(server, clock, tmp_path, policy=BOTH)
        assert played(loop, first, 6), "the first successor takes the place of the other job"
        both_moved(loop)


@pytest.mark.sliced
@pytest.mark.parametrize("seed", slices.first(range(40), 3))
def test_both_jobs_succeed_whichever_processes_die_meanwhile(tmp_path: pathlib.Path, seed: int) -> None:
    chance = random.Random(seed)
    clock = ManualClock(START)
    death = Death(chance.randint(8, 24), after=seed % 2 == 0, count=chance.randint(1, 8), chance=chance)
    with ApiServer(seed=1, clock=clock, controllers=True) as server:
        loop = Three(server, clock, tmp_path, death, policy=BOTH)
        played(loop, seed % 2, chance.randint(5, 8))
        assert death.happened
        both_moved(loop)


class Order:
    """Jobs of one ReplicaSet, whose pods, places and processes move in a random order."""

    def __init__(self, seed: int) -> None:
        self.chance, self.now, self.evictions, self.waiting, self.made = random.Random(seed), 1_000_000.0, 0, 0, 0
        names = [f"job-{number}" for number in range(self.chance.randint(1, 5))]
        self.jobs = {name: self.job(name) for name in names}
        self.places = {f"place-{name}": self.place(f"place-{name}") for name in names}
        self.pods = {f"old-{name}" for name in names}

    def job(self, name: str) -> MigrationJob:
        """A job that has a place."""
        options = {"reservationRef": {"name": f"place-{name}"}, "template": {"metadata": {"name": f"place-{name}"}}}
        spec = {"podRef": {"namespace": "shop", "name": name, "uid": f"old-{name}"}, "reservationOptions": options}
        meta = {"name": name, "uid": name, "creationTimestamp": times.show(self.now)}
        whole = {"metadata": meta, "spec": {**spec, "ttl": "600s"}, "status": {"phase": "Running"}}
        return msgspec.convert(whole, MigrationJob)

    def place(self, name: str, owner: str = "") -> Reservation:
        """A place on a node of its own, free or taken by a pod."""
        status = {
            "phase": "Succeeded" if owner else "Available",
            "nodeName": f"node of {name}",
            "conditions": [{"type": "Scheduled", "status": "True", "reason": "Scheduled"}],
            "currentOwners": [{"namespace": "shop", "name": owner, "uid": owner}] if owner else [],
        }
        spec = {"owners": [{"controller": {"kind": "ReplicaSet", "uid": "web"}}]}
        return msgspec.convert({"metadata": {"name": name}, "spec": spec, "status": status}, Reservation)

    def take(self) -> None:
        """A pod of the ReplicaSet takes any place that is free."""
        free = [name for name, place in self.places.items() if place.bound is None]
        if free:
            self.made += 1
            name = self.chance.choice(free)
            self.places[name] = self.place(name, f"new-{self.made}")

    def work(self, name: str) -> None:
        """A step of a job; the process may die between its writes."""
        before = self.jobs[name]
        after = before
        others = reconcile.exchanges(self.jobs.values(), self.places, lambda job: job.pod.uid not in self.pods)
        if other := others.get(name):
            after = objects.with_reservation(before, other)
        pod = self.pod(before.pod.uid, "old") if before.pod.uid in self.pods else None
        place = self.places.get(after.reservation)
        bound = self.pod(place.bound.uid, place.status.node_name) if place is not None and place.bound else None
        step = reconcile.step(after, ClusterState(now=self.now, pod=pod, reservation=place, bound_pod=bound))
        self.jobs[name] = structs.replace(before, spec=step.job.spec)
        if self.chance.random() < 0.2:
            return
        self.jobs[name] = step.job
        if step.evict and self.chance.random() < 0.8:
            assert before.pod.uid in self.pods
            self.pods.remove(before.pod.uid)
            self.evictions, self.waiting = self.evictions + 1, self.waiting + 1

    def pod(self, uid: str, node: str) -> wire.PodObject:
        """A pod that serves."""
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        meta = {"namespace": "shop", "name": uid, "uid": uid}
        whole = {"metadata": meta, "spec": {"nodeName": node, "containers": []}, "status": status}
        return msgspec.convert(whole, wire.PodObject)

    def run(self, strangers: int) -> None:
        """Until all jobs have ended. `strangers`: pods by which the ReplicaSet grows meanwhile."""
        turns: list[str] = []
        while open_ := [name for name, job in self.jobs.items() if not job.finished]:
            self.now += self.chance.choice((0.5, 3.0))
            if strangers and self.chance.random() < 0.1:
                strangers -= 1
                self.take()
            elif self.waiting and self.chance.random() < 0.4:
                self.waiting -= 1
                self.take()
            else:
                turns = turns or self.chance.sample(open_, len(open_))
                self.work(turns.pop())


@pytest.mark.parametrize("strangers", [0, 1, 2])
def test_as_many_jobs_succeed_as_successors_have_a_place_in_any_order_of_events(strangers: int) -> None:
    for seed in range(150):
        order = Order(seed)
        order.run(strangers)
        done = [job for job in order.jobs.values() if job.status.phase == "Succeeded"]
        bound = {place.bound.uid for place in order.places.values() if place.bound is not None}
        pods = {job.status.pod_ref.uid for job in done if job.status.pod_ref is not None}
        assert len(pods) == len(done), f"seed {seed}: one pod ends one job"
        assert pods <= bound
        assert len(done) == min(order.evictions, len(bound)), f"seed {seed}"
        if not strangers:
            assert len(done) == order.evictions == len(order.jobs), f"seed {seed}"
