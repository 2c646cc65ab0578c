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
from koordlite.reservation.controller import rival
from koordlite.reservation.step import Action, Case, Step
from koordlite.reservation.world import World


def cluster(cpu: int = 4, **fields: Any) -> ReserveCluster:
    """One node that is full once a Reservation of its size is held there."""
    return ReserveCluster(random.Random(1), nodes={"n": cpu}, **fields)


def available(sim: ReserveCluster, name: str = "r", cpu: int = 4, **spec: Any) -> None:
    sim.reserve(name, cpu, **spec)
    sim.settle(4)
    assert lifecycle.is_available(sim.reservations[name]), sim.reservations[name].status


def notes(sim: ReserveCluster, reason: str) -> list[str]:
    return [each.note for each in sim.said if each.reason == reason]


def waiting(sim: ReserveCluster, name: str, cpu: int = 4, app: str = "r", **fields: Any) -> None:
    """A pod that its scheduler has found no node for."""
    sim.pod(name, cpu, app=app, **fields)
    sim.schedule(fields.get("scheduler", "sim"))


def test_steps_depend_on_each_other_where_a_place_is_given_away_or_freed() -> None:
    sim = cluster()
    sim.reserve("r", 4)
    kinds: dict[str, set[bool]] = {}
    for _ in range(12):
        sim.see()
        for each in step.plan(sim.world, sim.settings, sim.now):
            for action in each.actions:
                kinds.setdefault(type(action).__name__, set()).add(Step("r", each.uid, (action,)).is_independent)
        sim.settle(1)
        if lifecycle.is_available(sim.reservations["r"]) and "ns/owner" not in sim.pods:
            waiting(sim, "owner", cpu=4)
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
    sim = cluster()
    available(sim, allocateOnce=False)
    waiting(sim, "owner", cpu=1)
    sim.see()
    sim.control(most=requests)
    assert not broken(sim)
    sim.restart()
    sim.settle(8)
    assert sim.pods["ns/owner"].spec.node_name == "n"
    status = sim.reservations["r"].status
    assert [owner.name for owner in status.current_owners or ()] == ["owner"]
    assert not unsettled(sim)
    sim.end("ns/owner")
    sim.settle(6)
    assert not unsettled(sim)
    assert sum(pod.status.start_time is not None for pod in sim.placeholders()) == 2, "what it took is held again"


@pytest.mark.parametrize("requests", range(1, 12))
def test_a_place_is_held_again_when_the_owner_vanishes_on_the_way(requests: int) -> None:
    sim = cluster()
    available(sim)
    waiting(sim, "owner")
    sim.see()
    sim.control(most=requests)
    sim.end("ns/owner")
    sim.settle(12)
    assert lifecycle.is_available(sim.reservations["r"])
    assert len(sim.placeholders()) == 1
    assert not unsettled(sim)


def test_an_owner_that_is_not_placed_in_time_gives_the_place_back_and_waits_longer_each_time() -> None:
    sim = cluster()
    available(sim)
    waiting(sim, "owner")
    begun = []
    for _ in range(200):
        sim.see()
        before = len(notes(sim, "HandOver"))
        sim.control()
        begun += [sim.now - START] if len(notes(sim, "HandOver")) > before else []
        for pod in list(sim.placeholders()):
            sim._attempt(pod) if not pod.spec.node_name else None
        sim.kubelets()
        sim.now += 1
    pauses = [later - earlier for earlier, later in itertools.pairwise(begun)]
    assert pauses == sorted(pauses)
    assert pauses[0] >= hand_over.PATIENCE_SECONDS + hand_over.FIRST_PAUSE_SECONDS
    assert "was not placed on node n within 30 s: Insufficient cpu" in notes(sim, "HandOverFailed")[0]


def test_a_scheduler_that_refuses_the_owner_is_not_asked_to_keep_room_again() -> None:
    sim = cluster()
    available(sim)
    sim.refused = {"owner"}
    waiting(sim, "owner")
    owner = sim.pods["ns/owner"].metadata.uid
    sim.settle(29, every=0.1)
    assert sim.nominations[owner] == 1, "one nomination for a hand-over, whatever the scheduler makes of it"
    sim.settle(171, every=0.5)
    assert sim.nominations[owner] == len(notes(sim, "HandOver")) == 4, "after pauses of 10, 20 and 40 s"
    assert not broken(sim)


@pytest.mark.parametrize("guarded", [False, True])
def test_a_place_that_was_lost_is_not_held_again_in_room_freed_for_another(guarded: bool) -> None:
    sim = cluster(cpu=8, guarded=guarded)
    available(sim, "lost")
    available(sim, "r")
    sim.refused = {"late", "owner"}
    waiting(sim, "late", app="lost")
    sim.see()
    sim.control()
    assert [pod.metadata.labels for pod in sim.placeholders()] == [
        {keys.RESERVATION_UID: sim.reservations["r"].metadata.uid}
    ]
    thief = sim.pod("thief", 4, app="x")  # Bound by somebody who keeps to nothing.
    sim.pods["ns/thief"] = structs.replace(thief, spec=structs.replace(thief.spec, node_name="n"))
    sim.settle(15)
    waiting(sim, "owner")
    sim.settle(10)
    assert hand_over.under_way(sim.reservations["r"]), "its room is free, and its owner is expected"
    sim.restart()
    sim.settle(8)
    assert "was not placed" in notes(sim, "HandOverFailed")[0]
    assert sim.reservations["lost"].status.phase == "Pending"
    sim.refused = {"late"}
    sim.settle(4)
    assert sim.pods["ns/owner"].spec.node_name == "n"
    assert not broken(sim)


def test_a_fault_with_one_reservation_costs_that_one(monkeypatch: pytest.MonkeyPatch) -> None:
    sim = cluster(cpu=8)
    available(sim, "a")
    faults: list[str] = []
    sim.world = World(fault=lambda name, error: faults.append(f"{name}: {error}"))
    sim._shown = {}
    of_one = step.of_one

    def faulty(case: Case) -> Iterator[Action]:
        if case.name == "b":
            raise KeyError("spec.template")
        return of_one(case)

    monkeypatch.setattr(step, "of_one", faulty)
    sim.reserve("b", 4)
    sim.reserve("c", 4)
    sim.settle(5)
    assert lifecycle.is_available(sim.reservations["c"])
    waiting(sim, "owner", app="a")
    sim.settle(5)
    assert sim.reservations["a"].status.phase == "Succeeded"
    assert set(faults) == {"b: 'spec.template'"}


def forged(sim: ReserveCluster, name: str, namespace: str, *, is_labelled: bool = True) -> None:
    """A stranger's pod that is named, labelled and owned as a placeholder of Reservation r."""
    uid = sim.reservations["r"].metadata.uid
    pod = sim.pod(name, 4, app="x")
    del sim.pods[f"ns/{name}"]
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
    sim.pods[f"{namespace}/{meta.name}"] = structs.replace(pod, metadata=meta, spec=spec, status=status)


def test_a_pod_of_another_namespace_is_no_placeholder_whatever_it_says() -> None:
    sim = cluster(cpu=8)
    sim.reserve("r", 4)
    forged(sim, "liar", "other")
    sim.see()
    sim.control()
    assert sim.reservations["r"].status.phase != "Available"
    mine = [pod for pod in sim.placeholders() if pod.metadata.namespace == "ns"]
    assert len(mine) == 1, "a place of its own is looked for"
    assert len(sim.placeholders()) == 2, "and the stranger's pod is left alone"


def test_a_name_that_a_stranger_took_is_passed_over() -> None:
    sim = cluster(cpu=8)
    sim.reserve("r", 4)
    forged(sim, "squatter", "ns", is_labelled=False)
    sim.settle(4)
    assert lifecycle.is_available(sim.reservations["r"])
    assert [pod.metadata.name for pod in sim.placeholders()] == ["reservation-u1-2"]


def test_no_placeholder_is_made_in_namespaces_of_the_clusters_own_programs() -> None:
    sim = cluster()
    template = {"metadata": {"namespace": "kube-system"}, "spec": sim.reserve("x", 4).spec.template["spec"]}
    del sim.reservations["x"]
    sim.reserve("r", 4, template=template)
    sim.settle(4)
    assert sim.placeholders() == []
    message = lifecycle.message(sim.reservations["r"].status)
    assert message.startswith("no placeholder may be made in namespace kube-system")


def test_an_orphan_goes_within_a_minute_also_after_a_restart() -> None:
    sim = cluster()
    available(sim)
    del sim.reservations["r"]
    sim.restart()
    sim.settle(2)
    assert sim.placeholders() == []
    assert sim.now - START < 60


@pytest.mark.parametrize("waits", [False, True], ids=["held", "on-its-way"])
def test_an_expired_reservation_leaves_nothing(waits: bool) -> None:
    sim = cluster()
    available(sim, ttl="30s")
    if waits:
        waiting(sim, "owner")
        sim.see()
        sim.control()
    sim.now = START + 31
    for _ in range(3):
        sim.see()
        sim.control()
    assert lifecycle.is_expired(sim.reservations["r"].status)
    assert sim.placeholders() == []
    assert keys.HAND_OVER not in (sim.reservations["r"].metadata.annotations or {})
    assert all(not pod.status.nominated_node_name for pod in sim.pods.values())
    sim.now += step.KEEP_SECONDS + 1
    sim.see()
    sim.control()
    assert sim.reservations == {}, "it is kept for a day"


def test_a_reservation_that_was_never_placed_expires() -> None:
    sim = cluster(cpu=2)
    sim.reserve("r", 4, ttl="30s")
    sim.settle(10)
    assert lifecycle.message(sim.reservations["r"].status) == "Insufficient cpu"
    sim.now = START + 31
    sim.settle(3)
    assert lifecycle.is_expired(sim.reservations["r"].status)


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
    sim = cluster()
    size = spec.pop("template_cpu", 4)
    if size < 4:
        sim.pod("filler", 1)
        sim.settle(2)
    available(sim, cpu=size, **spec)
    waiting(sim, "owner", **owner)
    sim.settle(4)
    assert notes(sim, "HandOver") == []
    assert sim.pods["ns/owner"].spec.node_name == ""
    assert lifecycle.is_available(sim.reservations["r"])


def test_what_exceeds_an_aligned_place_comes_from_the_node() -> None:
    sim = cluster()
    sim.pod("filler", 1)
    sim.settle(2)
    available(sim, cpu=2, allocatePolicy="Aligned")
    waiting(sim, "owner", cpu=3)
    sim.settle(4)
    assert sim.pods["ns/owner"].spec.node_name == "n"
    assert sim.reservations["r"].status.phase == "Succeeded"


def test_the_smallest_order_comes_first_and_one_pod_takes_one_place() -> None:
    sim = ReserveCluster(random.Random(1), nodes={"a": 4, "b": 4})
    owners = [{"labelSelector": {"matchLabels": {"app": "r"}}}]
    for name, order in (("late", "2"), ("early", "1")):
        available(sim, name, labels={keys.RESERVATION_ORDER: order}, owners=owners)
    waiting(sim, "owner")
    sim.settle(4)
    phases = {name: each.status.phase for name, each in sim.reservations.items()}
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
    sim = cluster(guarded=guarded)
    available(sim)
    waiting(sim, "other", app="x", **other)
    waiting(sim, "owner")
    sim.settle(3)
    assert bool(notes(sim, "HandOver")) is begins
    assert (sim.pods["ns/owner"].spec.node_name == "n") is begins
    if not begins:
        document = report.one_of(sim.world, "r", sim.settings, sim.now)
        assert document is not None
        assert document["waiting"] == [{"pod": "ns/owner", "why": "pod ns/other would take the room first"}]


def test_what_a_tenant_writes_on_a_pod_makes_it_no_owner() -> None:
    sim = cluster(cpu=8)
    available(sim)
    pod = sim.pod("liar", 1, app="x")
    notes = {keys.RESERVATION_ALLOCATED: '{"name":"r","uid":"' + sim.reservations["r"].metadata.uid + '"}'}
    sim.pods["ns/liar"] = structs.replace(pod, metadata=structs.replace(pod.metadata, annotations=notes))
    sim.settle(4)
    assert sim.pods["ns/liar"].spec.node_name == "n"
    assert lifecycle.is_available(sim.reservations["r"])
    assert not sim.reservations["r"].status.current_owners


def test_a_placeholder_that_kubelet_refuses_is_replaced_after_a_pause() -> None:
    sim = cluster()
    sim.reserve("r", 4)
    sim.see()
    sim.control()
    sim.schedule()
    name = next(iter(sim.placeholders())).metadata.name
    sim.pods[f"ns/{name}"] = structs.replace(
        sim.pods[f"ns/{name}"],
        status=structs.replace(sim.pods[f"ns/{name}"].status, phase="Failed", message="TopologyAffinityError"),
    )
    sim.see()
    sim.control()
    assert sim.placeholders() == []
    message = lifecycle.message(sim.reservations["r"].status)
    assert message == "its placeholder failed on node n: TopologyAffinityError"
    sim.settle(3)
    assert sim.placeholders() == []
    sim.settle(5)
    assert lifecycle.is_available(sim.reservations["r"])


def test_where_koord_scheduler_runs_everything_of_ours_is_removed() -> None:
    sim = cluster()
    available(sim)
    waiting(sim, "owner")
    sim.see()
    sim.control(most=1)
    sim.see()
    for each in step.withdrawal(sim.world):
        for action in each.actions:
            sim.apply(each, action)
    assert sim.placeholders() == []
    assert sim.reservations["r"].status.phase == "Available", "its status is Koordinator's"
    assert keys.HAND_OVER not in (sim.reservations["r"].metadata.annotations or {})


def test_room_is_said_to_be_kept_only_as_long_as_it_is() -> None:
    """Pods are evicted for room that is kept."""
    sim = cluster()
    whole = sim.reserve("r", 4)
    wants = structs.replace(whole.metadata, annotations={keys.ROOM_WANTED: "n"})
    sim.reservations["r"] = structs.replace(whole, metadata=wants)

    def kept_after(requests: int = 10**6, *, rounds: int = 1) -> str | None:
        for _ in range(rounds):
            sim.see()
            sim.control(most=requests)
        return (sim.reservations["r"].metadata.annotations or {}).get(keys.ROOM_KEPT)

    assert [kept_after() for _ in range(3)] == [None, None, "n"], "after its placeholder was made and nominated"
    rival = sim.pod("rival", 2)
    sim.pods["ns/rival"] = structs.replace(rival, status=structs.replace(rival.status, nominated_node_name="n"))
    assert kept_after() is None, "the scheduler keeps the room for a pod that preempts there"
    sim.end("ns/rival")
    assert kept_after() == "n"
    (placeholder,) = sim.placeholders()
    sim.end(f"ns/{placeholder.metadata.name}")
    assert kept_after(1) is None, "before anything else"
    assert kept_after(rounds=3) == "n"
    (node,) = sim.nodes.values()
    sim.nodes.clear()
    assert kept_after() is None
    sim.nodes["n"] = node
    assert kept_after() == "n"
    for each in step.withdrawal(sim.world):
        for action in each.actions:
            sim.apply(each, action)
    assert (sim.reservations["r"].metadata.annotations, sim.placeholders()) == ({keys.ROOM_WANTED: "n"}, [])


def test_koord_scheduler_is_known_by_its_pods_or_a_lease_that_is_renewed() -> None:
    lease = {"spec": {"holderIdentity": "host_1", "renewTime": "2027-01-15T08:00:00.000000Z"}}
    assert rival([], None, START) == ""
    assert rival(["k/pod-1"], None, START) == "pod k/pod-1 runs"
    assert "is held by host_1, renewed 20 s ago" in rival([], lease, START + 20)
    assert rival([], lease, START + 61) == ""
    assert rival([], {"spec": {"holderIdentity": "", "renewTime": "x"}}, START) == ""
    assert rival([], {"spec": "odd"}, START) == ""


def test_explain_says_who_may_take_it_what_is_held_and_when_it_ends() -> None:
    sim = cluster()
    available(sim, allocateOnce=False, ttl="1h", unschedulable=True)
    document = report.one_of(sim.world, "r", sim.settings, START + 600)
    assert document is not None
    page = "\n".join(report.details(document))
    assert "Reservation r: Available on node n" in page
    assert "holds: cpu 4, memory 1Gi; placeholders hold now: cpu 4, memory 1Gi" in page
    assert "may take it: pods with app=r" in page
    assert "owners share it; what exceeds it may come from the node; it takes no new owners" in page
    assert "(ttl), in 50m" in page
    rows = list(report.table(report.all_of(sim.world, START + 600)))
    assert rows[0].split()[:3] == ["NAME", "PHASE", "NODE"]
    assert rows[1].split()[:3] == ["r", "Available", "n"]
    wide = list(report.table(report.all_of(sim.world, START + 600), wide=True))
    assert "HELD NOW" not in rows[0] and wide[0].endswith("  HELD NOW")
    assert wide[1].startswith(rows[1])
