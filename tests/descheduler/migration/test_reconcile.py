"""One step of a job: what it makes of what the cluster holds."""

from __future__ import annotations

from typing import Any

import hypothesis
import msgspec
import pytest
from hypothesis import strategies as st

from descheduler.migration import objects, reconcile
from descheduler.migration.objects import MigrationJob, Reservation
from descheduler.migration.reconcile import ClusterState, Step
from koordlite.model import merge_patch
from koordlite.model.wire import objects as wire
from koordlite.model.wire.reservation import ReservationSpec

NOW = 1_000_000.0
REF = {"namespace": "default", "name": "p", "uid": "u1"}
POD: dict[str, Any] = {
    "metadata": {
        "namespace": "default",
        "name": "p",
        "uid": "u1",
        "resourceVersion": "7",
        "ownerReferences": [{"kind": "ReplicaSet", "name": "rs", "uid": "rs", "controller": True}],
    },
    "spec": {"nodeName": "old", "containers": []},
    "status": {"phase": "Running"},
}
MADE = {"reservationRef": {"name": "place"}}
READY = {"type": "Scheduled", "status": "True", "reason": "Scheduled"}


def job(spec: dict[str, Any] | None = None, **status: Any) -> MigrationJob:
    meta = {"name": "j", "uid": "job-uid", "creationTimestamp": "1970-01-12T13:46:40Z"}
    whole = {"metadata": meta, "spec": {"podRef": REF, **(spec or {})}, "status": {"phase": "Running", **status}}
    return msgspec.convert(whole, MigrationJob)


def pod(**changes: Any) -> wire.PodObject:
    return msgspec.convert({**POD, **changes}, wire.PodObject)


def place(phase: str = "Available", node: str = "new", **more: Any) -> Reservation:
    status = {"phase": phase, "nodeName": node, "conditions": [READY], **more}
    whole = {"metadata": {"name": "place"}, "spec": {"owners": [{"controller": {"uid": "rs"}}]}, "status": status}
    return msgspec.convert(whole, Reservation)


def step(one: MigrationJob, **seen: Any) -> Step:
    return reconcile.step(one, ClusterState(**{"now": NOW, "pod": pod(), "pod_raw": POD, **seen}))


@pytest.mark.parametrize(
    ("spec", "status", "seen", "reason"),
    [
        pytest.param({"podRef": {"name": "p"}}, {"phase": ""}, {}, "InvalidPodRef", id="a job without a namespace"),
        pytest.param({}, {"phase": ""}, {"pod": None}, "MissingPod", id="no such pod"),
        pytest.param(
            {"podRef": {**REF, "uid": "u0"}}, {"phase": "Pending"}, {}, "MissingPod", id="another pod of the name"
        ),
        pytest.param({"ttl": "60s"}, {}, {"now": NOW + 60}, "Timeout", id="its time is over"),
        pytest.param({"reservationOptions": MADE}, {}, {"reservation": None}, "MissingReservation", id="place gone"),
        pytest.param(
            {"reservationOptions": MADE},
            {},
            {"reservation": place("Failed", conditions=[{"type": "Ready", "reason": "Expired"}])},
            "ReservationExpired",
            id="the place expired",
        ),
        pytest.param(
            {"reservationOptions": MADE},
            {},
            {"reservation": place("Failed", node="", conditions=[])},
            "Unschedulable",
            id="no node for the place",
        ),
        pytest.param(
            {"reservationOptions": MADE},
            {},
            {"reservation": place(node="old")},
            "ForbiddenMigratePod",
            id="the place is where the pod is",
        ),
        pytest.param(
            {"reservationOptions": MADE},
            {},
            {"reservation": place("Succeeded")},
            "ForbiddenMigratePod",
            id="another pod took the place",
        ),
        pytest.param(
            {"reservationOptions": MADE},
            {},
            {"reservation": place(), "pod": None},
            "MissingPod",
            id="the pod went before it was asked to",
        ),
    ],
)
def test_a_job_is_given_up(spec: Any, status: Any, seen: Any, reason: str) -> None:
    found = step(job(spec, **status), **seen).job.status
    assert (found.phase, found.reason) == ("Failed", reason)


REFUSED = {"type": "Scheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
SCHEDULED = {"type": "ReservationScheduled", "status": "True"}


@pytest.mark.parametrize(
    ("phase", "condition", "before", "message", "noted"),
    [
        pytest.param(
            "Failed", REFUSED, (), "0/3 nodes", ("False", "0/3 nodes"), id="the scheduler's words are passed on"
        ),
        pytest.param(
            "Failed", {**REFUSED, "reason": "Other"}, (), "", None, id="a refusal of another kind says nothing"
        ),
        pytest.param("Failed", {**READY, "message": "on new"}, (), "", None, id="the words of a success are no reason"),
        pytest.param(
            "Failed", {**REFUSED, "status": ""}, (), "0/3 nodes", ("False", "0/3 nodes"), id="without a status"
        ),
        pytest.param("Available", {**READY, "reason": "Other"}, (), "", None, id="True for another reason is no place"),
        pytest.param("Pending", REFUSED, (SCHEDULED,), "", ("True", ""), id="what was scheduled once stays so"),
    ],
)
def test_a_reservation_without_a_node_says_why_in_the_schedulers_words(
    phase: str, condition: Any, before: Any, message: str, noted: tuple[str, str] | None
) -> None:
    one = job({"reservationOptions": MADE}, conditions=list(before))
    node = "new" if phase == "Available" else ""
    found = step(one, reservation=place(phase, node=node, conditions=[condition])).job
    if phase != "Pending":
        assert (found.status.phase, found.status.reason, found.status.message) == ("Failed", "Unschedulable", message)
    entry = objects.condition(found, "ReservationScheduled")
    assert (entry and (entry.status, entry.message)) == noted


def test_a_timeout_removes_the_place() -> None:
    assert step(job({"ttl": "60s", "reservationOptions": MADE}), now=NOW + 61).remove == "place"


@pytest.mark.parametrize("phase", ["Succeeded", "Failed", "Aborted"])
def test_a_job_that_has_ended_is_left_alone(phase: str) -> None:
    assert step(job(phase=phase)) == Step(job=job(phase=phase))


def test_a_reservation_is_like_the_pod_but_for_its_node() -> None:
    found = step(job({"ttl": "300s"}))
    assert found.create is not None
    spec = found.create["spec"]
    assert (found.create["metadata"]["name"], found.job.reservation) == ("job-uid", "job-uid")
    assert (spec["allocateOnce"], spec["ttl"], spec["owners"][0]["controller"]["uid"]) == (True, "300s", "rs")
    affinity = spec["template"]["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert affinity["nodeSelectorTerms"][0]["matchFields"][0]["values"] == ["old"]
    assert "nodeName" not in spec["template"]["spec"]


def test_the_template_of_a_job_keeps_off_the_old_node_as_well() -> None:
    own = {"spec": {"template": {"spec": {"nodeName": "old", "priority": 7}}, "owners": []}}
    found = step(job({"reservationOptions": {"template": own}})).create
    assert found is not None
    spec = found["spec"]["template"]["spec"]
    terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert (spec.get("nodeName"), spec["priority"]) == (None, 7)
    assert terms == [{"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["old"]}]}]
    assert found["spec"]["owners"][0]["controller"]["uid"] == "rs"


def test_a_job_that_lives_for_ever_leaves_the_life_of_its_place_to_the_scheduler() -> None:
    found = step(job({"ttl": "0s"})).create
    assert found is not None
    assert "ttl" not in found["spec"]


def test_every_term_of_an_affinity_keeps_off_the_old_node() -> None:
    terms = [{"matchExpressions": [{"key": key, "operator": "Exists"}]} for key in "ab"]
    rule = "requiredDuringSchedulingIgnoredDuringExecution"
    spec = {"nodeName": "old", "affinity": {"nodeAffinity": {rule: {"nodeSelectorTerms": terms}}}}
    found = step(job(), pod_raw={**POD, "spec": spec}).create
    assert found is not None
    bound = found["spec"]["template"]["spec"]["affinity"]["nodeAffinity"][rule]["nodeSelectorTerms"]
    assert [(t["matchExpressions"][0]["key"], t["matchFields"][0]["operator"]) for t in bound] == [
        ("a", "NotIn"),
        ("b", "NotIn"),
    ]


def test_a_pending_pod_takes_its_place_itself() -> None:
    unscheduled = {
        "phase": "Pending",
        "conditions": [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes"}],
    }
    found = step(job(), pod_raw={**POD, "status": unscheduled}).create
    assert found is not None
    # Without an apiVersion: koord-scheduler compares it with that of the pod, which a watch leaves empty.
    assert found["spec"]["owners"] == [{"object": {"kind": "Pod", **REF}}]
    owned = msgspec.structs.replace(ClusterState(now=NOW), pod=pod(status=unscheduled))
    waiting = msgspec.structs.replace(
        place(), spec=msgspec.convert({"owners": found["spec"]["owners"]}, ReservationSpec)
    )
    told = reconcile.step(job({"reservationOptions": MADE}), msgspec.structs.replace(owned, reservation=waiting))
    assert (told.job.status.status, told.evict, told.again_seconds) == ("PodScheduled", False, 3.0)
    assert told.job.status.message == "0/3 nodes"


def test_claims_are_left_out_of_the_place_when_asked_for() -> None:
    volumes = [{"name": "v", "persistentVolumeClaim": {}}, {"name": "w", "emptyDir": {}}]
    found = step(job(), pod_raw={**POD, "spec": {"volumes": volumes}}, drop_claims=True).create
    assert found is not None
    assert [v["name"] for v in found["spec"]["template"]["spec"]["volumes"]] == ["w"]


def evicting(seconds_ago: float) -> MigrationJob:
    asked = step(job({"mode": "EvictDirectly"}), now=NOW - seconds_ago)
    assert asked.evict
    return asked.job


@pytest.mark.parametrize(
    ("seconds_ago", "changes", "again"),
    [
        pytest.param(3, {}, False, id="just asked: it is waited for"),
        pytest.param(31, {}, True, id="still there and not going: it is asked again"),
        pytest.param(
            31, {"metadata": {**POD["metadata"], "deletionTimestamp": "x"}}, False, id="going slowly: it is waited for"
        ),
    ],
)
def test_a_lost_eviction_is_asked_for_again(seconds_ago: float, changes: Any, again: bool) -> None:
    found = step(evicting(seconds_ago), pod=pod(**changes))
    assert (found.evict, found.job.finished) == (again, False)


def test_asking_again_starts_the_wait_anew() -> None:
    again = step(evicting(31)).job
    assert not step(again, now=NOW + 10).evict


@pytest.mark.parametrize("successor", [None, pod(metadata={**POD["metadata"], "uid": "u2"})])
def test_a_pod_that_went_as_asked_ends_the_job(successor: Any) -> None:
    found = step(evicting(3), pod=successor).job.status
    assert (found.phase, found.message) == ("Succeeded", 'Pod "default/p" has been evicted')


@pytest.mark.parametrize(
    ("notes", "reason"),
    [
        pytest.param({"reason": "NodeOverused", "trigger": "LowNodeLoad"}, "NodeOverused", id="the reason"),
        pytest.param({"reason": "", "trigger": "LowNodeLoad"}, "LowNodeLoad", id="without one, who asked"),
        pytest.param({}, "NotSet", id="neither"),
    ],
)
def test_the_eviction_says_why(notes: dict[str, str], reason: str) -> None:
    meta = {"name": "j", "annotations": {f"koordinator.sh/evict-{name}": text for name, text in notes.items()}}
    one = msgspec.convert({"metadata": meta}, MigrationJob)
    assert one.reason == reason


def test_a_refusal_is_noted_and_the_pod_asked_for_again_when_its_turn_comes() -> None:
    refused = reconcile.eviction_refused(evicting(3), "budget", now=NOW)
    assert (refused.status.reason, refused.status.message) == ("FailedEvict", "budget")
    assert step(refused, turn_seconds=5.0).again_seconds == 5.0
    assert step(refused).evict


def test_the_pace_holds_before_the_eviction_and_not_after_it() -> None:
    assert not step(job({"mode": "EvictDirectly"}), limited="slowly").evict
    found = step(evicting(3), limited="slowly", pod=None)
    assert found.job.status.phase == "Succeeded"


def test_a_successor_that_is_not_ready_is_waited_for() -> None:
    gone = {"conditions": [{"type": "Eviction", "status": "True"}], "status": "Eviction"}
    taken = place("Succeeded", currentOwners=[{"namespace": "default", "name": "q", "uid": "u2"}])
    one = job({"reservationOptions": MADE}, **gone)
    waiting = step(one, reservation=taken, bound_pod=pod())
    assert (waiting.job.status.reason, waiting.again_seconds) == ("WaitForBoundPodReady", 3.0)
    ready = pod(status={"conditions": [{"type": "Ready", "status": "True"}]})
    done = step(waiting.job, reservation=taken, bound_pod=ready).job
    assert done.status.phase == "Succeeded"
    unbound = step(one, reservation=place())
    assert unbound.job.status.reason == "WaitForPodBindReservation"


SEEN = st.fixed_dictionaries(
    {
        "now": st.floats(NOW, NOW + 400),
        "pod": st.sampled_from([None, pod(), pod(metadata={**POD["metadata"], "uid": "u2"})]),
        "reservation": st.sampled_from([None, place("", ""), place(), place("Succeeded"), place("Failed", "")]),
        "limited": st.sampled_from(["", "slowly"]),
        "turn_seconds": st.sampled_from([0.0, 2.0]),
    }
)


@hypothesis.settings(deadline=None)
@hypothesis.given(st.lists(SEEN, max_size=8), st.sampled_from(["", "EvictDirectly"]))
def test_whatever_happens_only_the_pod_that_was_meant_is_evicted(worlds: list[dict[str, Any]], mode: str) -> None:
    one = job({"ttl": "300s", **({"mode": mode} if mode else {})}, phase="Pending")
    for world in sorted(worlds, key=lambda world: world["now"]):
        found = step(one, **world)
        if found.evict:
            assert world["pod"].metadata.uid == "u1"
            assert mode or found.job.reservation
        assert not one.finished or found == Step(job=one)
        one = found.job


@hypothesis.settings(deadline=None)
@hypothesis.given(st.lists(SEEN, max_size=5))
def test_a_patch_says_exactly_what_changed(worlds: list[dict[str, Any]]) -> None:
    one = job(phase="Pending")
    for world in worlds:
        after = step(one, **world).job
        for before_part, after_part in ((one.spec, after.spec), (one.status, after.status)):
            merged = _merged(msgspec.to_builtins(before_part), merge_patch.between(before_part, after_part))
            assert merged == msgspec.to_builtins(after_part)
        one = after


def _merged(target: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """RFC 7396."""
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict):
            target[key] = _merged(dict(target.get(key) or {}), value)
        else:
            target[key] = value
    return target
