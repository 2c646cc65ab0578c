"""Room for a pod that waits is kept for it before anybody is evicted, so that no other pod takes it meanwhile.

The scheduler of the loop takes the rival first at every turn: only what is kept holds it off.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterator
from typing import Any, ClassVar

import migrationloop
import pytest
import slices
from apiserver import ApiServer, ManualClock
from migrationloop import START, Death, Loop, Object

from descheduler.cycle import planner
from descheduler.evictors import migration_api
from descheduler.evictors.migration import Migrations
from descheduler.migration.objects import JOBS, WAITING
from descheduler.snapshot import assemble, cluster
from koordlite.kube.client.answers import ApiError, ApiUnreachable
from koordlite.model import keys

POLICY = """
kind: DeschedulerConfiguration
profiles:
- name: p
  pluginConfig:
  - {name: MigrationController, args: {schedulerNames: [default-scheduler], maxMigratingPerNode: 2}}
  - {name: DefaultEvictor, args: {nodeFit: true}}
  - {name: MakeRoom, args: {evict: true, minPending: 0s}}
  plugins: {deschedule: {enabled: [MakeRoom]}}
"""
RIVAL = "a-rival"


class Crowded(Loop):
    """Node `old` is full of a pod of each of two workloads, which fit on `a` and `b`; `big` needs all of `old`."""

    SIZES: ClassVar = {"one": 4, "two": 4}

    def populate(self) -> None:
        for name, cpu in (("old", 8), ("far", 8), ("a", 5), ("b", 5)):
            self.node(name, cpu)
        self.replicas = {"one": 2, "two": 2}
        for app in self.replicas:
            self._deployment(app)
            self.pod(app, f"{app}-0", "old", cpu=4)
            self.pod(app, f"{app}-1", "far", cpu=4)
        self.pod("big", "big", cpu=8)
        self.kubelets()
        self.schedule()
        self.clock.advance(60)

    def node(self, name: str, cpu: int) -> None:
        super().node(name, cpu)
        found = next(node for node in self.all("Node") if node["metadata"]["name"] == name)
        taints = [{"key": "broken", "effect": "NoSchedule"}] if name == "far" else []
        self.server.objects.load({**found, "spec": {**found["spec"], "taints": taints}})

    def replace(self) -> None:
        """A successor is as large as the pod it replaces."""
        for app in self.replicas:
            if sum(pod["metadata"]["labels"]["app"] == app for pod in self.pods().values()) < self.replicas[app]:
                self.made += 1
                self.pod(app, f"{app}-new-{self.made}", cpu=self.SIZES[app])

    def turn(self, pod: Object) -> tuple[Any, ...]:
        return pod["metadata"]["name"] != RIVAL, pod["metadata"]["name"]

    def where(self) -> dict[str, str]:
        """Node by app, of those that were on `old` or wait, and of their successors."""
        pods = (pod for pod in self.pods().values() if pod["spec"].get("nodeName") != "far")
        return {pod["metadata"]["labels"]["app"]: pod["spec"].get("nodeName", "") for pod in pods}


class Chained(Crowded):
    """`big` fits on `old` once its pod is on `a`, where it fits once the pod of the other workload is on `b`."""

    SIZES: ClassVar = {"one": 7, "two": 3}

    def populate(self) -> None:
        for name, cpu in (("old", 8), ("far", 11), ("a", 7), ("b", 5)):
            self.node(name, cpu)
        self.replicas = {"one": 2, "two": 2}
        for app, node in (("one", "old"), ("two", "a")):
            self._deployment(app)
            self.pod(app, f"{app}-0", node, cpu=self.SIZES[app])
            self.pod(app, f"{app}-1", "far", cpu=4)
        self.pod("big", "big", cpu=8)
        self.kubelets()
        self.schedule()
        self.clock.advance(60)


@pytest.fixture
def loops(tmp_path: pathlib.Path) -> Iterator[Any]:
    servers: list[ApiServer] = []

    def make(death: Death | None = None, *, kind: type[Crowded] = Crowded) -> Crowded:
        clock = ManualClock(START)
        server = ApiServer(seed=1, clock=clock)
        server.__enter__()
        servers.append(server)
        return kind(server, clock, tmp_path, death, POLICY)

    yield make
    for server in servers:
        server.__exit__(None, None, None)


@pytest.mark.parametrize("arrives", [at if at in (0, 2, 4) else slices.long(at) for at in range(10)])
def test_a_rival_of_the_same_size_never_takes_the_room(loops: Any, arrives: int) -> None:
    loop = loops()
    loop.plan()
    assert len(loop.all("PodMigrationJob")) == 3
    loop.run(arrives)
    loop.pod("rival", RIVAL, cpu=8)
    for _ in range(30):
        loop.run(1)
        assert loop.where()["rival"] == "", "the room is not its own"
        if loop.where()["big"] == "old":
            break
    assert loop.where() == {"one": loop.where()["one"], "two": loop.where()["two"], "big": "old", "rival": ""}
    assert {loop.where()["one"], loop.where()["two"]} == {"a", "b"}
    loop.run(5)
    assert {job["status"]["phase"] for job in loop.all("PodMigrationJob")} == {"Succeeded"}
    assert loop.promised_twice() == []
    assert loop.placeholders() == []


def test_nobody_goes_before_all_places_are_held(loops: Any) -> None:
    loop = loops()
    loop.plan()
    for _ in range(20):
        owners = [(place["spec"]["owners"][0], place) for place in loop.all("Reservation")]
        places = {owner.get("controller", {}).get("name", "big"): place for owner, place in owners}
        loop.run(1)
        if loop.where()["one"] != "old" or loop.where()["two"] != "old":
            break
    assert {name: place["status"].get("phase") for name, place in places.items()} == {
        "one-1": "Available",
        "two-1": "Available",
        "big": "Pending",
    }, "before the first eviction"
    assert places["big"]["metadata"]["annotations"][keys.ROOM_KEPT] == "old"


def test_where_a_place_is_lost_nobody_goes_and_the_room_is_given_back(loops: Any) -> None:
    loop = loops()
    loop.plan()
    loop.pod("late", "a-late", "b", cpu=3)
    loop.kubelets()
    loop.run(4)
    assert loop.where() == {"one": "old", "two": "old", "big": "", "late": "b"}
    loop.clock.advance(300)
    loop.run(6)
    jobs = {job["status"].get("reason") for job in loop.all("PodMigrationJob")}
    assert jobs == {"Timeout"}, "each says why"
    assert loop.all("Reservation") == [] and loop.placeholders() == []
    assert loop.where()["one"] == loop.where()["two"] == "old"


def test_where_the_pod_is_placed_or_deleted_meanwhile_nobody_goes(loops: Any) -> None:
    for event in ("placed", "deleted"):
        loop = loops()
        loop.plan()
        loop.run(1)
        if event == "placed":
            loop.node("c", 8)
        else:
            loop.api.request("DELETE", f"{migrationloop.PODS}/big")
        loop.run(10)
        assert (loop.where()["one"], loop.where()["two"]) == ("old", "old"), event
        assert loop.where().get("big", "") == ("c" if event == "placed" else "")
        assert loop.all("Reservation") == [] and loop.placeholders() == [], event


@pytest.mark.parametrize("write", [at if at in (1, 4, 7, 10) else slices.long(at) for at in range(1, 45)])
@pytest.mark.parametrize("after", [False, True])
def test_whoever_dies_at_a_write_the_room_is_made_and_kept(loops: Any, write: int, after: bool) -> None:
    loop = loops(Death(write, after=after))
    loop.plan()
    loop.run(3)
    loop.pod("rival", RIVAL, cpu=8)
    for _ in range(3):
        loop.run(20)
        if loop.where()["big"]:
            break
        loop.plan()  # A cycle that was interrupted is made again.
    assert loop.where()["rival"] == ""
    assert loop.where()["big"] == "old"
    assert loop.promised_twice() == []


def test_the_place_of_a_pod_that_has_a_node_is_given_back_at_last(loops: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = loops()
    loop.plan()
    loop.run(1)
    loop.node("c", 8)
    request, lost = loop.api.request, []

    def losing(method: str, path: str, **options: Any) -> Any:
        if method == "DELETE" and "/reservations/" in path and len(lost) < 3:
            lost.append(path)
            raise ApiUnreachable(111, "connection refused", path)
        return request(method, path, **options)

    monkeypatch.setattr(loop.api, "request", losing)
    loop.run(15)
    assert (len(lost), loop.where()["big"]) == (3, "c")
    assert loop.all("Reservation") == [] and loop.placeholders() == []


def test_a_place_that_was_read_before_its_pod_is_not_given_up(loops: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = loops()
    loop.plan()
    lists: list[Any] = [{}]
    read = migration_api.Cluster.reservations

    def late(its: migration_api.Cluster) -> Any:
        lists.append(read(its))
        return lists[-2]

    monkeypatch.setattr(migration_api.Cluster, "reservations", late)
    loop.run(20)
    assert loop.where()["big"] == "old"
    assert {job["status"]["phase"] for job in loop.all("PodMigrationJob")} == {"Succeeded"}


def test_a_dry_run_says_what_would_be_asked_for_and_what_stands_against_it(loops: Any) -> None:
    loop = loops()
    (args,) = loop._setup.migration.values()
    dry = Migrations(loop.api, dataclasses.replace(args, dry_run=True), creator="me")

    def asked() -> set[tuple[str, str, bool]]:
        plan = planner.plan(assemble.view(cluster.read(loop.api)), loop._setup)
        attempts = dry.ask(plan.evict, plan.view, loop.now)
        notes = [one.request["metadata"]["annotations"] for one in attempts]
        return {
            (one.result, one.text.partition(":")[0], WAITING in note) for one, note in zip(attempts, notes, strict=True)
        }

    assert asked() == {("WouldEvict", "", True)}
    assert loop.all("PodMigrationJob") == []
    loop.plan()
    for job in loop.all("PodMigrationJob"):
        if WAITING in job["metadata"]["annotations"]:
            loop.api.request("DELETE", f"{JOBS}/{job['metadata']['name']}")
    assert asked() == {("Deferred", "MigrationJobExists", False)}, "big has one, and so it would be for real"


@pytest.mark.parametrize("refused", ["", "one-0", "two-0"])
def test_where_one_of_the_jobs_cannot_be_made_nobody_goes(
    loops: Any, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    loop = loops(kind=Chained)
    request = loop.api.request

    def refusing(method: str, path: str, **options: Any) -> Any:
        if method == "POST" and options["body"].get("spec", {}).get("podRef", {}).get("name") == refused:
            raise ApiError(500, "InternalError", "out of luck")
        return request(method, path, **options)

    with monkeypatch.context() as patch:
        patch.setattr(loop.api, "request", refusing)
        loop.plan()
    assert len(loop.all("PodMigrationJob")) == (2 if refused else 3)
    loop.run(20)
    stay = {"one": "old", "two": "a", "big": ""}
    assert loop.where() == (stay if refused else {"one": "a", "two": "b", "big": "old"})
    loop.clock.advance(600)
    loop.run(3)
    assert loop.placeholders() == [], "a place that never came is waited for as long as its job lives"


@pytest.mark.parametrize("rounds", [at if at % 2 else slices.long(at) for at in range(1, 7)])
def test_nobody_goes_any_more_once_the_pod_has_its_place(loops: Any, rounds: int) -> None:
    loop = loops()
    loop.plan()
    loop.run(rounds)
    loop.node("old", 16)
    loop.reserver.round(loop.now)
    loop.schedule()
    loop.kubelets()
    loop.reserver.round(loop.now)
    there = {app for app in loop.SIZES if loop.where()[app] == "old"}
    loop.run(15)
    assert {app for app in loop.SIZES if loop.where()[app] == "old"} == there
    assert loop.where()["big"] == "old"


def test_a_second_cycle_makes_no_other_room_while_one_is_made(loops: Any) -> None:
    loop = loops()
    loop.plan()
    loop.run(1)
    loop.plan()
    assert len(loop.all("PodMigrationJob")) == 3


def test_two_pods_that_wait_for_one_node_do_not_keep_each_other_off(loops: Any) -> None:
    loop = loops()
    loop.plan()
    loop.run(2)
    (mine,) = (
        place for place in loop.all("Reservation") if keys.ROOM_WANTED in place["metadata"].get("annotations", {})
    )
    other = {**mine, "metadata": {"name": "zz", "annotations": {keys.ROOM_WANTED: "old"}}, "status": {}}
    loop.api.request("POST", migrationloop.RESERVATIONS, body=other)
    loop.run(15)
    assert loop.where()["big"] == "old"
