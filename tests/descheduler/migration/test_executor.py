"""A whole plan carried out: jobs for profiles with MigrationController, the Eviction API for the others."""

from __future__ import annotations

import logging
import threading
from typing import Any

import msgspec
import pytest
from apiserver import Fault
from hooked_files import Killed

from descheduler.arguments.migration import ObjectLimiter
from descheduler.cycle import planner
from descheduler.evictors import eviction_api, marks
from descheduler.evictors.executor import LeaderApi, PlanExecutor
from descheduler.evictors.migration import Progress
from descheduler.plan import EvictionPlan
from descheduler.policy import reader
from descheduler.serve.log import JobLog
from descheduler.snapshot import assemble, cluster
from descheduler.utilization.levels import DELETION_COST
from koordlite.kube.client.paging import Page

World = Any
MERGE = "application/merge-patch+json"
TWO_WAYS = """
kind: DeschedulerConfiguration
profiles:
- name: directly
  plugins:
    deschedule: {enabled: [{name: RemovePodsViolatingNodeTaints}]}
    evict: {enabled: [{name: DefaultEvictor}], disabled: [{name: MigrationController}]}
    filter: {enabled: [{name: DefaultEvictor}], disabled: [{name: "*"}]}
  pluginConfig:
  - {name: DefaultEvictor, args: {labelSelector: {matchLabels: {app: web}}}}
- name: by-job
  plugins: {deschedule: {enabled: [{name: RemovePodsViolatingNodeTaints}]}}
"""


@pytest.fixture
def told() -> list[Progress]:
    return []


def carrier(world: World, told: list[Progress], **more: Any) -> PlanExecutor:
    def wait(seconds: float) -> bool:
        world.around()
        world.clock.advance(seconds)
        return False

    parts = {"wait": wait, "wall": lambda: world.now, "tell": told.append, "rules": {}, **more}
    return PlanExecutor(parts.pop("api", world.api), parts.pop("wait"), **parts)


def plan(world: World) -> EvictionPlan:
    view = assemble.view(cluster.read(world.api))
    return planner.plan(view, reader.setup(reader.parse(TWO_WAYS, "policy")))


def test_each_profile_has_its_own_way(world: World, told: list[Progress]) -> None:
    for app in ("web", "db"):
        world.deployment(app, 3)
    made = plan(world)
    attempts = {attempt.pod: attempt.result for attempt in carrier(world, told)(made)}
    assert list(attempts) == [outcome.pod.key for outcome in made.evict]
    assert {attempts[f"shop/web-{n}"] for n in range(3)} == {"Evicted"}
    assert sorted(attempts[f"shop/db-{n}"] for n in range(3)) == ["Deferred", "Deferred", "JobCreated"]


def test_a_run_of_one_cycle_ends_when_its_jobs_have(world: World, told: list[Progress]) -> None:
    world.deployment("db", 3)
    one = carrier(world, told)
    one(plan(world))
    one.settle()
    assert world.job()["status"]["phase"] == "Succeeded"
    assert told[0].reason == "PassedArbitration"
    assert told[-1].reason == "Complete"


def test_jobs_of_the_time_before_are_worked_on_from_the_start(world: World, told: list[Progress]) -> None:
    world.deployment("db", 3)
    made = plan(world)
    carrier(world, told)(made)
    carrier(world, told, rules=made.migration).settle()
    assert world.job()["status"]["phase"] == "Succeeded"


def test_without_a_plan_or_jobs_nothing_is_written(world: World, told: list[Progress]) -> None:
    world.server.requests.clear()
    carrier(world, told, rules=plan(world).migration).work()
    assert {asked.verb for asked in world.server.requests} <= {"list", "watch"}


def test_who_does_not_lead_asks_nothing_and_complains_of_nothing(world: World, told: list[Progress]) -> None:
    world.deployment("db", 3)
    made = plan(world)
    world.server.requests.clear()

    def leads() -> bool:
        return False

    idle = carrier(world, told, api=LeaderApi(world.api, leads), leads=leads, rules=made.migration)
    assert (idle.work(), told) == (10.0, [])
    assert {attempt.result for attempt in idle(made)} == {"Failed"}
    assert list(world.server.requests) == []


def test_a_server_without_the_kind_is_told_and_pods_stay(world: World, told: list[Progress]) -> None:
    world.deployment("db", 3)
    made = plan(world)
    name = "podmigrationjobs.scheduling.koordinator.sh"
    world.api.request("DELETE", f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}")
    one = carrier(world, told, rules=made.migration)
    assert {attempt.result for attempt in one(made)} == {"Failed"}
    one.work()
    assert "cannot be read" in told[-1].text


class Poisoned:
    """An API server whose list of jobs holds one that is none, as without our CRD's schema."""

    def __init__(self, api: Any) -> None:
        self.request = api.request

    def collect(self, path: str, query: Any = ()) -> Page:
        return Page("1", [msgspec.Raw(b'{"metadata": {"name": "odd"}, "spec": 5}')])


def test_a_job_that_cannot_be_read_is_named_and_ends_nothing(world: World, told: list[Progress]) -> None:
    world.deployment("db", 3)
    one = carrier(world, told, api=Poisoned(world.api), rules=plan(world).migration)
    assert one.moving() == {}
    one.work()
    assert len(told) == 2
    assert all("MigrationJob odd cannot be read: Expected `object`, got `int` - at `$.spec`" in t.text for t in told)


def test_a_thread_works_until_it_is_stopped(world: World, told: list[Progress]) -> None:
    world.deployment("db", 3)
    passed = threading.Event()
    one = carrier(world, told, tell=lambda _progress: passed.set())
    one.start()
    try:
        one(plan(world))
        assert passed.wait(10)
    finally:
        one.stop()
    world.server.requests.clear()
    assert "migration" not in {thread.name for thread in threading.enumerate()}


def test_a_job_that_waits_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    lines = JobLog()
    with caplog.at_level(logging.INFO, logger="descheduler"):
        for _ in range(3):
            lines.job(Progress("j", "shop/p", "Waiting", "limits"))
        lines.job(Progress("j", "shop/p", "PassedArbitration", "its turn"))
    assert [record.levelname for record in caplog.records] == ["INFO", "INFO"]


def test_one_job_that_cannot_be_written_does_not_keep_the_others(world: World, told: list[Progress]) -> None:
    for app in ("web", "db"):
        world.deployment(app, 3)
    migrations = world.controller(object_limiters={"workload": ObjectLimiter()}, evict_qps=1000, evict_burst=10)
    world.ask(migrations)
    first = world.jobs()[0]["metadata"]["name"]
    world.server.faults.add(Fault(verb="patch", resource="podmigrationjobs/status", name=first, status=500, times=1))
    world.work(migrations, 10)
    assert [job["status"]["phase"] for job in world.jobs()] == ["Succeeded", "Succeeded"]


def emptied(world: World, node: str = "old") -> EvictionPlan:
    return msgspec.structs.replace(plan(world), cordon=(node,))


def closed(world: World, node: str = "old") -> bool:
    return bool(world.get("Node", node)["spec"].get("unschedulable"))


def test_a_node_that_is_emptied_takes_no_more_pods(world: World, told: list[Progress]) -> None:
    world.deployment("web", 3)
    carrier(world, told)(emptied(world))
    assert closed(world)
    assert told[0].text == "node old"


def test_a_node_that_no_pod_leaves_is_opened_again(world: World, told: list[Progress]) -> None:
    world.deployment("web", 3)
    made = emptied(world)
    world.server.faults.add(Fault(verb="create", resource="pods/eviction", status=500, times=None))
    carrier(world, told)(made)
    assert not closed(world)
    assert [progress.reason for progress in told] == ["Cordoned", "Uncordoned"]


def mark(world: World, node: str = "old") -> str | None:
    word: str | None = (world.get("Node", node)["metadata"].get("annotations") or {}).get(marks.MARK)
    return word


class Deadly:
    """An API server that the process does not survive asking for an eviction."""

    def __init__(self, api: Any) -> None:
        self._api, self.collect = api, api.collect

    def request(self, method: str, path: str, **how: Any) -> Any:
        if path.endswith("/eviction"):
            raise Killed("descheduler")
        return self._api.request(method, path, **how)


def test_our_cordon_says_whether_pods_have_left(world: World, told: list[Progress]) -> None:
    world.deployment("web", 3)
    made = emptied(world)
    with pytest.raises(Killed):
        carrier(world, told, api=Deadly(world.api))(made)
    assert (closed(world), mark(world)) == (True, marks.ASKED)
    carrier(world, told)(emptied(world))
    assert (closed(world), mark(world)) == (True, marks.KEPT)
    carrier(world, told)(plan(world))
    assert closed(world), "a node that is given up stays closed"


@pytest.mark.parametrize("again", [pytest.param(True, id="fails to empty it too"), pytest.param(False, id="leaves it")])
def test_a_cordon_that_outlived_its_process_is_lifted(world: World, told: list[Progress], again: bool) -> None:
    world.deployment("web", 3)
    with pytest.raises(Killed):
        carrier(world, told, api=Deadly(world.api))(emptied(world))
    told.clear()
    world.server.faults.add(Fault(verb="create", resource="pods/eviction", status=500, times=None))
    carrier(world, told)(emptied(world) if again else plan(world))
    assert (closed(world), mark(world)) == (False, None)
    assert [(one.reason, one.text) for one in told] == [
        ("Uncordoned", "node old: no pod leaves it")
        if again
        else ("Uncordoned", "node old: it was cordoned in a cycle that did not end, and this one does not empty it")
    ]


def test_a_cordon_whose_lease_was_lost_is_the_next_leaders(world: World, told: list[Progress]) -> None:
    world.deployment("web", 3)
    made, asked = emptied(world), iter([True])
    carrier(world, told, api=LeaderApi(world.api, lambda: next(asked, False)))(made)
    assert (closed(world), mark(world)) == (True, marks.ASKED)
    carrier(world, told)(msgspec.structs.replace(plan(world), evict=()))
    assert (closed(world), mark(world)) == (False, None)


def test_a_node_that_was_closed_before_stays_closed(world: World, told: list[Progress]) -> None:
    world.deployment("web", 3)
    world.api.request("PATCH", "/api/v1/nodes/old", body={"spec": {"unschedulable": True}}, content_type=MERGE)
    made = emptied(world)
    world.server.faults.add(Fault(verb="create", resource="pods/eviction", status=500, times=None))
    carrier(world, told)(made)
    assert closed(world)


def test_a_node_that_cannot_be_closed_keeps_nobody(world: World, told: list[Progress]) -> None:
    world.deployment("web", 3)
    made = emptied(world)
    world.server.faults.add(Fault(verb="patch", resource="nodes", status=403, times=None))
    attempts = carrier(world, told)(made)
    assert {attempt.result for attempt in attempts} == {"Evicted"}
    assert "cannot be cordoned" in told[0].text


def test_a_dry_run_shows_the_jobs_that_would_be_made(world: World) -> None:
    for app in ("web", "db"):
        world.deployment(app, 2)
    kinds = {attempt.pod: attempt.request["kind"] for attempt in eviction_api.prepare(plan(world))}
    assert kinds == {
        **dict.fromkeys(("shop/web-0", "shop/web-1"), "Eviction"),
        **dict.fromkeys(("shop/db-0", "shop/db-1"), "PodMigrationJob"),
    }


def test_pods_with_a_job_take_no_places_of_the_next_plan(world: World, told: list[Progress]) -> None:
    world.deployment("db", 3)
    one = carrier(world, told)
    assert one.moving() == {}
    made = plan(world)
    one(made)
    ref = world.job()["spec"]["podRef"]
    assert set(one.moving()) == {ref["uid"]}
    view = msgspec.structs.replace(assemble.view(cluster.read(world.api)), moving=one.moving())
    again = planner.plan(view, reader.setup(reader.parse(TWO_WAYS, "policy")))
    kept = {outcome.pod.uid: outcome.reasons[0].reason for outcome in again.kept}
    assert kept[ref["uid"]] == "MigrationJobExists"
    (kept,) = (outcome for outcome in again.kept if outcome.pod.uid == ref["uid"])
    assert kept.reasons[0].text == f"migration job {world.job()['metadata']['name']} has no reservation yet; Pending"
    world.server.faults.add(Fault(verb="list", resource="podmigrationjobs", status=500, times=1))
    assert one.moving() == {}
    assert "cannot be read" in told[-1].text


COSTS = """
kind: DeschedulerConfiguration
profiles:
- name: order
  plugins:
    balance: {enabled: [{name: ScaleDownBinPack}], disabled: [{name: "*"}]}
    evict: {enabled: [{name: DefaultEvictor}], disabled: [{name: MigrationController}]}
    filter: {enabled: [{name: DefaultEvictor}], disabled: [{name: "*"}]}
  pluginConfig:
  - {name: ScaleDownBinPack, args: {podSelectors: [{selector: {matchLabels: {app: web}}}]}}
"""


def ordered(world: World, policy: str = COSTS) -> EvictionPlan:
    return planner.plan(assemble.view(cluster.read(world.api)), reader.setup(reader.parse(policy, "policy")))


def notes(world: World, pod: str) -> dict[str, str]:
    found: dict[str, str] = world.get("Pod", pod, "shop")["metadata"].get("annotations") or {}
    return {key: text for key, text in found.items() if key in (DELETION_COST, marks.COST_MARK)}


def test_the_order_of_scaling_down_is_written_once_and_taken_back(world: World, told: list[Progress]) -> None:
    world.deployment("web", 2)
    carrier(world, told)(ordered(world))
    assert [notes(world, f"web-{n}")[DELETION_COST] for n in range(2)] == ["0", "1"]
    before = len(world.server.requests)
    carrier(world, told)(ordered(world))
    assert not [asked for asked in list(world.server.requests)[before:] if asked.verb == "patch"], "nothing differs"
    carrier(world, told)(msgspec.structs.replace(ordered(world), deletion_costs=()))
    assert [notes(world, f"web-{n}") for n in range(2)] == [{}, {}]


@pytest.mark.parametrize("mark", [{}, {marks.COST_MARK: "7"}], ids=["never ours", "changed since"])
def test_a_cost_that_somebody_else_has_set_stays(world: World, told: list[Progress], mark: dict[str, str]) -> None:
    world.deployment("web", 2)
    foreign = {DELETION_COST: "-5", **mark}
    path = "/api/v1/namespaces/shop/pods/web-0"
    world.api.request("PATCH", path, body={"metadata": {"annotations": foreign}}, content_type=MERGE)
    carrier(world, told)(ordered(world))
    assert notes(world, "web-0") == foreign
    assert notes(world, "web-1")[DELETION_COST] == "1"


def test_without_the_right_to_patch_pods_the_rest_waits(world: World, told: list[Progress]) -> None:
    world.deployment("web", 30)
    world.server.faults.add(Fault(verb="patch", resource="pods", status=403, times=None))
    carrier(world, told)(ordered(world))
    failed = [one.text for one in told if one.reason == "Failed"]
    assert len(failed) == 21
    assert failed[-1] == "deletion costs: 10 more pods wait for the next cycle"


def test_a_pod_that_was_replaced_keeps_its_own_cost(world: World, told: list[Progress]) -> None:
    world.deployment("web", 1)
    made = ordered(world)
    other = msgspec.structs.replace(made.view.by_uid[made.deletion_costs[0].pod].pod, uid="another")
    view = made.view.by_uid[made.deletion_costs[0].pod]
    assert marks._patch(world.api, msgspec.structs.replace(view, pod=other), "3", told.append)
    assert notes(world, "web-0") == {}
    assert told == []
