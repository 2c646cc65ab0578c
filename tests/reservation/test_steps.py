"""Single cases of the controller's rules: who gets a place, what happens when one side fails, and where it may end."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import structs
from reservecluster import START, ReserveCluster, broken, unsettled

from koordlite.model import keys
from koordlite.model.wire.objects import OwnerReference
from koordlite.reservation import hand_over, lifecycle, report, step
from koordlite.reservation.actions import Action, Case, Step
from koordlite.reservation.controller import rival
from koordlite.reservation.world import World


def cluster(cpu: int = 4, **given: Any) -> ReserveCluster:
    """One node that is full once a Reservation of its size is held there."""
    return ReserveCluster(random.Random(1), nodes={"n": cpu}, **given)


def held(made: ReserveCluster, name: str = "r", cpu: int = 4, **spec: Any) -> None:
    made.reserve(name, cpu, **spec)
    made.settle(4)
    assert lifecycle.is_available(made.reservations[name]), made.reservations[name].status


def said(made: ReserveCluster, reason: str) -> list[str]:
    return [each.note for each in made.said if each.reason == reason]


def waiting(made: ReserveCluster, name: str, cpu: int = 4, app: str = "r", **given: Any) -> None:
    """A pod that its scheduler has found no node for."""
    made.pod(name, cpu, app=app, **given)
    made.schedule(given.get("scheduler", "sim"))


def test_steps_depend_on_each_other_where_a_place_is_given_away_or_freed() -> None:
    made = cluster()
    made.reserve("r", 4)
    kinds: dict[str, set[bool]] = {}
    for _ in range(12):
        made.see()
        for each in step.plan(made.world, made.settings, made.now):
            for action in each.actions:
                kinds.setdefault(type(action).__name__, set()).add(Step("r", each.uid, (action,)).is_independent)
        made.settle(1)
        if lifecycle.is_available(made.reservations["r"]) and "ns/owner" not in made.pods:
            waiting(made, "owner", cpu=4)
    assert kinds == {
        "CreatePlaceholder": {True},
        "WriteStatus": {True, False},
        "Say": {True},
        "Annotate": {False},
        "AnnotatePod": {False},
        "DeletePlaceholder": {False},
        "Nominate": {False},
    }


@pytest.mark.parametrize("requests", range(16))
def test_another_controller_goes_on_wherever_one_ended(requests: int) -> None:
    made = cluster()
    held(made, allocateOnce=False)
    waiting(made, "owner", cpu=1)
    made.see()
    made.control(most=requests)
    assert not broken(made)
    made.restart()
    made.settle(8)
    assert made.pods["ns/owner"].spec.node_name == "n"
    status = made.reservations["r"].status
    assert [owner.name for owner in status.current_owners or ()] == ["owner"]
    assert not unsettled(made)
    made.end("ns/owner")
    made.settle(6)
    assert not unsettled(made)
    assert sum(pod.status.start_time is not None for pod in made.placeholders()) == 2, "what it took is held again"


@pytest.mark.parametrize("requests", range(1, 12))
def test_a_place_is_held_again_when_the_owner_vanishes_on_the_way(requests: int) -> None:
    made = cluster()
    held(made)
    waiting(made, "owner")
    made.see()
    made.control(most=requests)
    made.end("ns/owner")
    made.settle(12)
    assert lifecycle.is_available(made.reservations["r"])
    assert len(made.placeholders()) == 1
    assert not unsettled(made)


def test_an_owner_that_is_not_placed_in_time_gives_the_place_back_and_waits_longer_each_time() -> None:
    made = cluster()
    held(made)
    waiting(made, "owner")
    begun = []
    for _ in range(200):
        made.see()
        before = len(said(made, "HandOver"))
        made.control()
        begun += [made.now - START] if len(said(made, "HandOver")) > before else []
        for pod in list(made.placeholders()):
            made._attempt(pod) if not pod.spec.node_name else None
        made.kubelets()
        made.now += 1
    pauses = [later - earlier for earlier, later in itertools.pairwise(begun)]
    assert pauses == sorted(pauses)
    assert pauses[0] >= hand_over.PATIENCE_SECONDS + hand_over.FIRST_PAUSE_SECONDS
    assert "was not placed on node n within 30 s: Insufficient cpu" in said(made, "HandOverFailed")[0]


def test_a_scheduler_that_refuses_the_owner_is_not_asked_to_keep_room_again() -> None:
    made = cluster()
    held(made)
    made.refused = {"owner"}
    waiting(made, "owner")
    owner = made.pods["ns/owner"].metadata.uid
    made.settle(29, every=0.1)
    assert made.nominations[owner] == 1, "one nomination for a hand-over, whatever the scheduler makes of it"
    made.settle(171, every=0.5)
    assert made.nominations[owner] == len(said(made, "HandOver")) == 4, "after pauses of 10, 20 and 40 s"
    assert not broken(made)


@pytest.mark.parametrize("guarded", [False, True])
def test_a_place_that_was_lost_is_not_held_again_in_room_freed_for_another(guarded: bool) -> None:
    made = cluster(cpu=8, guarded=guarded)
    held(made, "lost")
    held(made, "r")
    made.refused = {"late", "owner"}
    waiting(made, "late", app="lost")
    made.see()
    made.control()
    assert [pod.metadata.labels for pod in made.placeholders()] == [
        {keys.RESERVATION_UID: made.reservations["r"].metadata.uid}
    ]
    thief = made.pod("thief", 4, app="x")  # Bound by somebody who keeps to nothing.
    made.pods["ns/thief"] = structs.replace(thief, spec=structs.replace(thief.spec, node_name="n"))
    made.settle(15)
    waiting(made, "owner")
    made.settle(10)
    assert hand_over.under_way(made.reservations["r"]), "its room is free, and its owner is expected"
    made.restart()
    made.settle(8)
    assert "was not placed" in said(made, "HandOverFailed")[0]
    assert made.reservations["lost"].status.phase == "Pending"
    made.refused = {"late"}
    made.settle(4)
    assert made.pods["ns/owner"].spec.node_name == "n"
    assert not broken(made)


def test_a_fault_with_one_reservation_costs_that_one(monkeypatch: pytest.MonkeyPatch) -> None:
    made = cluster(cpu=8)
    held(made, "a")
    faults: list[str] = []
    made.world = World(fault=lambda name, error: faults.append(f"{name}: {error}"))
    made._shown = {}
    of_one = step.of_one

    def faulty(case: Case) -> Iterator[Action]:
        if case.name == "b":
            raise KeyError("spec.template")
        return of_one(case)

    monkeypatch.setattr(step, "of_one", faulty)
    made.reserve("b", 4)
    made.reserve("c", 4)
    made.settle(5)
    assert lifecycle.is_available(made.reservations["c"])
    waiting(made, "owner", app="a")
    made.settle(5)
    assert made.reservations["a"].status.phase == "Succeeded"
    assert set(faults) == {"b: 'spec.template'"}


def forged(made: ReserveCluster, name: str, namespace: str, *, is_labelled: bool = True) -> None:
    """A stranger's pod that is named, labelled and owned as a placeholder of Reservation r."""
    uid = made.reservations["r"].metadata.uid
    pod = made.pod(name, 4, app="x")
    del made.pods[f"ns/{name}"]
    reference = OwnerReference(kind="Reservation", name="r", uid=uid)
    labels = {keys.RESERVATION_UID: uid} if is_labelled else {}
    meta = structs.replace(
        pod.metadata,
        name=f"reservation-{uid}-1",
        namespace=namespace,
        labels=labels,
        owner_references=(reference,) if is_labelled else (),
    )
    status = structs.replace(pod.status, start_time="2027-01-15T08:00:00Z", phase="Running")
    spec = structs.replace(pod.spec, node_name="n")
    made.pods[f"{namespace}/{meta.name}"] = structs.replace(pod, metadata=meta, spec=spec, status=status)


def test_a_pod_of_another_namespace_is_no_placeholder_whatever_it_says() -> None:
    made = cluster(cpu=8)
    made.reserve("r", 4)
    forged(made, "liar", "other")
    made.see()
    made.control()
    assert made.reservations["r"].status.phase != "Available"
    mine = [pod for pod in made.placeholders() if pod.metadata.namespace == "ns"]
    assert len(mine) == 1, "a place of its own is looked for"
    assert len(made.placeholders()) == 2, "and the stranger's pod is left alone"


def test_a_name_that_a_stranger_took_is_passed_over() -> None:
    made = cluster(cpu=8)
    made.reserve("r", 4)
    forged(made, "squatter", "ns", is_labelled=False)
    made.settle(4)
    assert lifecycle.is_available(made.reservations["r"])
    assert [pod.metadata.name for pod in made.placeholders()] == ["reservation-u1-2"]


def test_no_placeholder_is_made_in_namespaces_of_the_clusters_own_programs() -> None:
    made = cluster()
    template = {"metadata": {"namespace": "kube-system"}, "spec": made.reserve("x", 4).spec.template["spec"]}
    del made.reservations["x"]
    made.reserve("r", 4, template=template)
    made.settle(4)
    assert made.placeholders() == []
    message = lifecycle.message(made.reservations["r"].status)
    assert message.startswith("no placeholder may be made in namespace kube-system")


def test_an_orphan_goes_within_a_minute_also_after_a_restart() -> None:
    made = cluster()
    held(made)
    del made.reservations["r"]
    made.restart()
    made.settle(2)
    assert made.placeholders() == []
    assert made.now - START < 60


@pytest.mark.parametrize("waits", [False, True], ids=["held", "on-its-way"])
def test_an_expired_reservation_leaves_nothing(waits: bool) -> None:
    made = cluster()
    held(made, ttl="30s")
    if waits:
        waiting(made, "owner")
        made.see()
        made.control()
    made.now = START + 31
    for _ in range(3):
        made.see()
        made.control()
    assert lifecycle.is_expired(made.reservations["r"].status)
    assert made.placeholders() == []
    assert keys.HAND_OVER not in (made.reservations["r"].metadata.annotations or {})
    assert all(not pod.status.nominated_node_name for pod in made.pods.values())
    made.now += step.KEEP_SECONDS + 1
    made.see()
    made.control()
    assert made.reservations == {}, "it is kept for a day"


def test_a_reservation_that_was_never_placed_expires() -> None:
    made = cluster(cpu=2)
    made.reserve("r", 4, ttl="30s")
    made.settle(10)
    assert lifecycle.message(made.reservations["r"].status) == "Insufficient cpu"
    made.now = START + 31
    made.settle(3)
    assert lifecycle.is_expired(made.reservations["r"].status)


@pytest.mark.parametrize(
    ("owner", "spec"),
    [
        ({"app": "x"}, {}),
        ({}, {"unschedulable": True}),
        ({}, {"taints": [{"key": "k", "effect": "NoSchedule"}]}),
        ({"cpu": 5}, {}),
        ({"cpu": 3}, {"allocatePolicy": "Restricted", "template_cpu": 2}),
    ],
    ids=["no-owner", "unschedulable", "taint", "too-large", "restricted"],
)
def test_who_gets_no_place_waits_for_something_else(owner: dict[str, Any], spec: dict[str, Any]) -> None:
    made = cluster()
    size = spec.pop("template_cpu", 4)
    if size < 4:
        made.pod("filler", 1)
        made.settle(2)
    held(made, cpu=size, **spec)
    waiting(made, "owner", **owner)
    made.settle(4)
    assert said(made, "HandOver") == []
    assert made.pods["ns/owner"].spec.node_name == ""
    assert lifecycle.is_available(made.reservations["r"])


def test_what_exceeds_an_aligned_place_comes_from_the_node() -> None:
    made = cluster()
    made.pod("filler", 1)
    made.settle(2)
    held(made, cpu=2, allocatePolicy="Aligned")
    waiting(made, "owner", cpu=3)
    made.settle(4)
    assert made.pods["ns/owner"].spec.node_name == "n"
    assert made.reservations["r"].status.phase == "Succeeded"


def test_the_smallest_order_comes_first_and_one_pod_takes_one_place() -> None:
    made = ReserveCluster(random.Random(1), nodes={"a": 4, "b": 4})
    owners = [{"labelSelector": {"matchLabels": {"app": "r"}}}]
    for name, order in (("late", "2"), ("early", "1")):
        held(made, name, labels={keys.RESERVATION_ORDER: order}, owners=owners)
    waiting(made, "owner")
    made.settle(4)
    phases = {name: each.status.phase for name, each in made.reservations.items()}
    assert phases == {"early": "Succeeded", "late": "Available"}


@pytest.mark.parametrize(
    ("other", "guarded", "begins"),
    [
        ({"priority": 1000}, False, False),
        ({"priority": 1000}, True, True),
        ({"priority": 0}, False, True),
        ({"scheduler": "another"}, False, False),
        ({"scheduler": "another"}, True, False),
    ],
    ids=["more-important", "guarded", "equal", "another-scheduler", "another-scheduler-guarded"],
)
def test_no_place_is_freed_while_a_pod_waits_that_would_take_it(
    other: dict[str, Any], guarded: bool, begins: bool
) -> None:
    made = cluster(guarded=guarded)
    held(made)
    waiting(made, "other", app="x", **other)
    waiting(made, "owner")
    made.settle(3)
    assert bool(said(made, "HandOver")) is begins
    assert (made.pods["ns/owner"].spec.node_name == "n") is begins
    if not begins:
        found = report.one_of(made.world, "r", made.settings, made.now)
        assert found is not None
        assert found["waiting"] == [{"pod": "ns/owner", "why": "pod ns/other would take the room first"}]


def test_what_a_tenant_writes_on_a_pod_makes_it_no_owner() -> None:
    made = cluster(cpu=8)
    held(made)
    pod = made.pod("liar", 1, app="x")
    notes = {keys.RESERVATION_ALLOCATED: '{"name":"r","uid":"' + made.reservations["r"].metadata.uid + '"}'}
    made.pods["ns/liar"] = structs.replace(pod, metadata=structs.replace(pod.metadata, annotations=notes))
    made.settle(4)
    assert made.pods["ns/liar"].spec.node_name == "n"
    assert lifecycle.is_available(made.reservations["r"])
    assert not made.reservations["r"].status.current_owners


def test_a_placeholder_that_kubelet_refuses_is_replaced_after_a_pause() -> None:
    made = cluster()
    made.reserve("r", 4)
    made.see()
    made.control()
    made.schedule()
    name = next(iter(made.placeholders())).metadata.name
    made.pods[f"ns/{name}"] = structs.replace(
        made.pods[f"ns/{name}"],
        status=structs.replace(made.pods[f"ns/{name}"].status, phase="Failed", message="TopologyAffinityError"),
    )
    made.see()
    made.control()
    assert made.placeholders() == []
    message = lifecycle.message(made.reservations["r"].status)
    assert message == "its placeholder failed on node n: TopologyAffinityError"
    made.settle(3)
    assert made.placeholders() == []
    made.settle(5)
    assert lifecycle.is_available(made.reservations["r"])


def test_where_koord_scheduler_runs_everything_of_ours_is_removed() -> None:
    made = cluster()
    held(made)
    waiting(made, "owner")
    made.see()
    made.control(most=1)
    made.see()
    for each in step.withdrawal(made.world):
        for action in each.actions:
            made.apply(each, action)
    assert made.placeholders() == []
    assert made.reservations["r"].status.phase == "Available", "its status is Koordinator's"
    assert keys.HAND_OVER not in (made.reservations["r"].metadata.annotations or {})


def test_room_is_said_to_be_kept_only_as_long_as_it_is() -> None:
    """Pods are evicted for room that is kept."""
    made = cluster()
    whole = made.reserve("r", 4)
    wants = structs.replace(whole.metadata, annotations={keys.ROOM_WANTED: "n"})
    made.reservations["r"] = structs.replace(whole, metadata=wants)

    def kept_after(requests: int = 10**6, *, rounds: int = 1) -> str | None:
        for _ in range(rounds):
            made.see()
            made.control(most=requests)
        return (made.reservations["r"].metadata.annotations or {}).get(keys.ROOM_KEPT)

    assert [kept_after() for _ in range(3)] == [None, None, "n"], "after its placeholder was made and nominated"
    rival = made.pod("rival", 2)
    made.pods["ns/rival"] = structs.replace(rival, status=structs.replace(rival.status, nominated_node_name="n"))
    assert kept_after() is None, "the scheduler keeps the room for a pod that preempts there"
    made.end("ns/rival")
    assert kept_after() == "n"
    (placeholder,) = made.placeholders()
    made.end(f"ns/{placeholder.metadata.name}")
    assert kept_after(1) is None, "before anything else"
    assert kept_after(rounds=3) == "n"
    (node,) = made.nodes.values()
    made.nodes.clear()
    assert kept_after() is None
    made.nodes["n"] = node
    assert kept_after() == "n"
    for each in step.withdrawal(made.world):
        for action in each.actions:
            made.apply(each, action)
    assert (made.reservations["r"].metadata.annotations, made.placeholders()) == ({keys.ROOM_WANTED: "n"}, [])


def test_koord_scheduler_is_known_by_its_pods_or_a_lease_that_is_renewed() -> None:
    lease = {"spec": {"holderIdentity": "host_1", "renewTime": "2027-01-15T08:00:00.000000Z"}}
    assert rival([], None, START) == ""
    assert rival(["k/pod-1"], None, START) == "pod k/pod-1 runs"
    assert "is held by host_1, renewed 20 s ago" in rival([], lease, START + 20)
    assert rival([], lease, START + 61) == ""
    assert rival([], {"spec": {"holderIdentity": "", "renewTime": "x"}}, START) == ""
    assert rival([], {"spec": "odd"}, START) == ""


def test_explain_says_who_may_take_it_what_is_held_and_when_it_ends() -> None:
    made = cluster()
    held(made, allocateOnce=False, ttl="1h", unschedulable=True)
    found = report.one_of(made.world, "r", made.settings, START + 600)
    assert found is not None
    shown = "\n".join(report.details(found))
    assert "Reservation r: Available on node n" in shown
    assert "holds: cpu 4, memory 1Gi; placeholders hold now: cpu 4, memory 1Gi" in shown
    assert "may take it: pods with app=r" in shown
    assert "owners share it; what exceeds it may come from the node; it takes no new owners" in shown
    assert "(ttl), in 50m" in shown
    rows = list(report.table(report.all_of(made.world, START + 600)))
    assert rows[0].split()[:3] == ["NAME", "PHASE", "NODE"]
    assert rows[1].split()[:3] == ["r", "Available", "n"]
    wide = list(report.table(report.all_of(made.world, START + 600), wide=True))
    assert "HELD NOW" not in rows[0] and wide[0].endswith("  HELD NOW")
    assert wide[1].startswith(rows[1])
