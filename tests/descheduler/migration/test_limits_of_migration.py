"""Who may get a job, which jobs begin, and how fast pods of one owner go."""

from __future__ import annotations

from typing import Any

import hypothesis
import msgspec
import pytest
from hypothesis import strategies as st

from descheduler.arguments.migration import MigrationControllerArgs, ObjectLimiter
from descheduler.framework import PodView
from descheduler.migration import filters, objects
from descheduler.migration.filters import Rate, Traffic, Workload
from descheduler.migration.objects import MigrationJob
from koordlite.model.keys import PASSED_ARBITRATION
from koordlite.model.wire import objects as wire

MINUTE = "1970-01-01T00:01:00Z"
READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}


def pod(name: str, *, owner: str = "rs", kind: str = "ReplicaSet", node: str = "n", **more: Any) -> PodView:
    owners = [{"kind": kind, "name": owner, "uid": owner, "controller": True}] if owner else []
    meta = {"name": name, "namespace": "default", "uid": f"uid-{name}", "ownerReferences": owners}
    meta |= more.pop("metadata", {})
    spec = {"nodeName": node, "schedulerName": "koord-scheduler", **more.pop("spec", {})}
    return objects.pod_view(msgspec.convert({"metadata": meta, "spec": spec, "status": READY, **more}, wire.PodObject))


def job(name: str, *, passed: bool = False, made: str | None = None, **status: Any) -> MigrationJob:
    notes = {PASSED_ARBITRATION: "true"} if passed else {}
    meta = {"name": f"j-{name}", "uid": f"j-{name}", "annotations": notes, "creationTimestamp": made}
    ref = {"namespace": "default", "name": name, "uid": f"uid-{name}"}
    return msgspec.convert({"metadata": meta, "spec": {"podRef": ref}, "status": status}, MigrationJob)


def args(**given: Any) -> MigrationControllerArgs:
    return MigrationControllerArgs(**{"max_migrating_per_node": 0, **given})


def refused(candidate: PodView, moving: list[PodView], workload: Workload | None = None, **given: Any) -> str:
    traffic = Traffic.of([job(one.pod.name) for one in moving], moving)
    found = filters.passing(candidate, traffic, workload or Workload(100), args(**given))
    return found.reason if found else ""


@pytest.mark.parametrize(
    ("given", "moving", "reason"),
    [
        pytest.param({"max_migrating_globally": 1}, pod("b"), "MaxMigratingGlobally", id="anywhere"),
        pytest.param({"max_migrating_globally": 0}, pod("b"), "", id="0 is no limit"),
        pytest.param({"max_migrating_per_node": 1}, pod("b"), "MaxMigratingPerNode", id="on its node"),
        pytest.param({"max_migrating_per_node": 1}, pod("b", node="m"), "", id="on another node"),
        pytest.param({"max_migrating_per_namespace": 1}, pod("b"), "MaxMigratingPerNamespace", id="in its namespace"),
        pytest.param({"max_migrating_per_namespace": 1}, pod("a"), "", id="the pod itself does not count"),
        pytest.param({"max_migrating_per_workload": 1}, pod("b"), "MaxUnavailablePerWorkload", id="of its workload"),
        pytest.param({"max_migrating_per_workload": 1}, pod("b", owner="other"), "", id="of another workload"),
        pytest.param(
            {"max_migrating_per_workload": 1, "skip_eviction_gates": ("MaxMigratingPerWorkload",)},
            pod("b"),
            "",
            id="a gate that is skipped",
        ),
    ],
)
def test_what_is_on_the_move_makes_others_wait(given: Any, moving: PodView, reason: str) -> None:
    assert refused(pod("a"), [moving], **given) == reason


def test_a_pod_that_its_job_has_evicted_counts_in_its_namespace_and_no_longer_on_its_node() -> None:
    traffic = Traffic.of([job("gone", phase="Running")], [])
    refusals = [
        filters.passing(pod("a"), traffic, Workload(100), args(**{limit: 1}))
        for limit in ("max_migrating_per_namespace", "max_migrating_per_node")
    ]
    assert [refusal and refusal.reason for refusal in refusals] == ["MaxMigratingPerNamespace", None]


def test_pods_of_all_replica_sets_of_a_deployment_count() -> None:
    sibling = pod("b", owner="older-rs")
    workload = Workload(100, (pod("a"), sibling))
    assert refused(pod("a"), [sibling], workload, max_migrating_per_workload=1) == "MaxUnavailablePerWorkload"


def test_pods_that_are_missing_count_as_if_they_moved() -> None:
    broken = pod("b", status={"phase": "Running"})
    workload = Workload(10, (pod("a"), broken))
    assert refused(pod("a"), [], workload, max_unavailable_per_workload=1) == "MaxUnavailablePerWorkload"
    assert refused(pod("a"), [], workload, max_unavailable_per_workload=2) == ""


def test_the_evict_annotation_overrules_limits() -> None:
    insistent = pod("a", metadata={"annotations": {"descheduler.alpha.kubernetes.io/evict": ""}})
    assert refused(insistent, [pod("b")], max_migrating_globally=1) == ""


@pytest.mark.parametrize(
    ("workload", "given", "reason"),
    [
        pytest.param(Workload(1), {}, "TooFewReplicas", id="one replica"),
        pytest.param(Workload(2), {}, "", id="two replicas"),
        pytest.param(Workload(2), {"max_unavailable_per_workload": "100%"}, "TooFewReplicas", id="all may be missing"),
        pytest.param(Workload(1), {"skip_check_expected_replicas": True}, "", id="not asked"),
        pytest.param(None, {}, "TooFewReplicas", id="nobody knows how many it wants"),
    ],
)
def test_small_workloads_stay(workload: Workload | None, given: Any, reason: str) -> None:
    found = filters.permanent(pod("a"), workload, args(**given))
    assert (found.reason if found else "") == reason


def test_a_scheduler_that_knows_no_reservations_cannot_fill_them() -> None:
    foreign = pod("a", spec={"schedulerName": "default-scheduler"})
    found = filters.permanent(foreign, Workload(5), args())
    assert found is not None and found.reason == "SchedulerIgnoresReservations"
    assert filters.permanent(foreign, Workload(5), args(default_job_mode="EvictDirectly")) is None


@pytest.mark.parametrize(
    ("one", "exists"),
    [
        pytest.param(job("a"), True, id="of the pod"),
        pytest.param(job("a", phase="Succeeded"), False, id="that has ended"),
        pytest.param(job("b"), False, id="of another pod"),
    ],
)
def test_a_pod_has_one_job_at_a_time(one: MigrationJob, exists: bool) -> None:
    assert bool(filters.job_exists(pod("a"), Traffic.of([one], []))) == exists


def test_in_arbitration_jobs_that_wait_do_not_stand_in_each_others_way() -> None:
    both = [pod("b"), pod("c")]
    waiting = Traffic.of([job("b"), job("c", passed=True)], both, arbitrating=True)
    assert set(waiting.moving) == {"uid-c"}
    assert set(Traffic.of([job("b"), job("c", phase="Running")], both, arbitrating=True).moving) == {"uid-c"}


@hypothesis.settings(deadline=None)
@hypothesis.given(st.integers(0, 500), st.one_of(st.none(), st.integers(0, 600), st.just("30%"), st.just("0%")))
def test_a_share_is_never_more_than_there_are_and_never_nothing(replicas: int, value: Any) -> None:
    assert min(replicas, 1) <= filters.allowed(replicas, value) <= replicas


@hypothesis.settings(deadline=None)
@hypothesis.given(st.lists(st.floats(0, 1000)), st.floats(1000, 2000))
def test_a_bucket_never_holds_more_than_its_burst(taken: list[float], now: float) -> None:
    rate = Rate(1 / 100, burst=2)
    assert rate.tokens(taken, now) <= 2
    assert rate.tokens([], now) == 2


def test_ten_replicas_may_lose_one_pod_in_150_seconds() -> None:
    rate = filters.of_workload(MigrationControllerArgs(), 10)
    assert rate is not None
    assert rate.refusal([1000.0], 1149.0)
    assert rate.refusal([1000.0], 1150.0) == ""


def test_a_namespace_has_a_pace_of_its_own() -> None:
    limiters = {"namespace": ObjectLimiter(duration="100s", max_migrating=1)}
    asked = {"type": "Eviction", "status": "False", "reason": "Evicting", "lastTransitionTime": "1970-01-01T00:01:00Z"}
    gone = job("gone", phase="Succeeded", conditions=[asked])
    given = args(object_limiters=limiters)
    slow = filters.pace_refusal(given, [gone], pod=pod("a"), workload=None, now=100.0)
    assert slow and filters.pace_refusal(given, [gone], pod=pod("a"), workload=None, now=160.0) == ""


def test_an_eviction_that_was_refused_costs_nothing() -> None:
    refused_ = {"type": "Eviction", "status": "False", "reason": "FailedEvict", "lastTransitionTime": MINUTE}
    assert objects.evicted_at([job("a", conditions=[refused_])], namespace="default") == []


@pytest.mark.parametrize(
    ("made", "phase", "ttl", "old"),
    [
        pytest.param("1970-01-01T00:00:00Z", "Running", None, False, id="one that goes on and on is kept"),
        pytest.param("1970-01-01T00:00:00Z", "Succeeded", None, True, id="one that ended long ago"),
        pytest.param("1970-01-01T00:00:00Z", "Running", "60s", True, id="one whose time is long over"),
        pytest.param("1970-01-01T00:50:00Z", "Succeeded", "600s", False, id="one that ended just now"),
        pytest.param(None, "Succeeded", None, False, id="one without a date"),
    ],
)
def test_how_long_jobs_are_kept(made: str | None, phase: str, ttl: str | None, old: bool) -> None:
    one = job("a", made=made, phase=phase)
    one = msgspec.structs.replace(one, spec=msgspec.structs.replace(one.spec, ttl=ttl))
    assert objects.is_outlived(one, 3600.0) == old


def test_a_job_names_its_pod_by_uid_and_says_who_works_on_it() -> None:
    made = objects.job(pod("a"), name="x", reason="Why", trigger="Plugin", creator="me", args=MigrationControllerArgs())
    one = msgspec.convert(made, MigrationJob)
    assert (one.pod.uid, one.reason, one.spec.mode, one.spec.ttl) == ("uid-a", "Why", "ReservationFirst", "5m")
    assert objects.ours(one, "me") and not objects.ours(one, "you") and objects.ours(job("b"), "me")
    assert objects.controller_of(one) == "rs"
