"""Koordinator's reservations in the verbs: owners go to them and get their CPUs, others get nothing that is held."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
import slices
from hypothesis import given, settings
from hypothesis import strategies as some

from koordlite.model import keys
from koordlite.model.wire.reservation import ReservationObject
from koordlite.scheduler.judgement import judge
from koordlite.scheduler.judgement.judge import ELSEWHERE, OCCUPIED
from koordlite.scheduler.nominations import Victims
from koordlite.scheduler.report import documents, texts
from tests.scheduler.builders import Scene, as_object, bound, pod
from tests.scheduler.test_protocols import CPUS, ZONE, koordinator, lsr, written

NONE_MEETS = "node(s) no reservation(s) to meet the requirements"
CPU_STATUS = '{"cpuset":"4-7"}'


def reservation(name: str = "r", node: str = "a", cpu: str = "4", **fields: Any) -> Any:
    """A Reservation that is on a node, for pods with the label `app: NAME`."""
    requests = {"cpu": cpu, "memory": "1Gi"}
    template = {
        "metadata": {"namespace": "ns"},
        "spec": {"containers": [{"name": "c", "resources": {"requests": requests, "limits": requests}}]},
    }
    spec = {"template": template, "owners": [{"labelSelector": {"matchLabels": {"app": fields.get("app", name)}}}]}
    spec |= {"ttl": "1h", **fields.get("spec", {})}
    meta = {
        "name": name,
        "uid": f"uid-{name}",
        "labels": fields.get("labels"),
        "annotations": fields.get("annotations"),
    }
    status = {"phase": "Available", "nodeName": node, "allocatable": requests, **fields.get("status", {})}
    return {"metadata": meta, "spec": spec, "status": status}


def put(scene: Scene, obj: Any) -> None:
    scene.cluster.put_reservation(msgspec.convert(obj, ReservationObject))


def placeholder(name: str = "r", node: str = "a", cpu: str = "4", **fields: Any) -> Any:
    """The pod that holds its place."""
    return stand_in(bound(pod(f"reservation-uid-{name}-0", cpu, **fields), node), name)


def stand_in(obj: Any, name: str = "r") -> Any:
    """The pod marked as placeholders are."""
    reference = {"kind": "Reservation", "name": name, "uid": f"uid-{name}", "controller": True}
    labels = {**(obj["metadata"].get("labels") or {}), keys.RESERVATION_UID: f"uid-{name}"}
    return {**obj, "metadata": {**obj["metadata"], "labels": labels, "ownerReferences": [reference]}}


def owner(obj: Any, app: str = "r") -> Any:
    meta = {**obj["metadata"], "labels": {**(obj["metadata"].get("labels") or {}), "app": app}}
    return {**obj, "metadata": meta}


def plain() -> Scene:
    """Two nodes with 64 CPUs, about whose NUMA nodes nothing is known."""
    scene = Scene()
    scene.node("a")
    scene.node("b")
    return scene


def test_what_a_reservation_holds_is_held_also_without_its_placeholder() -> None:
    scene = plain()
    put(scene, reservation(cpu="60"))
    assert scene.filter(pod("other", "4"), "a", "b")[0] == ["a", "b"]
    assert scene.filter(pod("large", "5"), "a", "b") == (["b"], {"a": "Insufficient cpu by node"})
    scene.put(placeholder(cpu="60"))
    assert scene.filter(pod("other", "4"), "a")[0] == ["a"], "the placeholder and its reservation count once"
    assert scene.filter(owner(pod("mine", "60")), "a", "b")[0] == ["a"]
    scene.cluster.remove_reservation("r")
    assert scene.filter(pod("large", "5"), "a")[0] == ["a"], "the sums are the scheduler's to count again"


def test_a_pod_of_another_namespace_counts_beside_the_reservation_whose_placeholder_it_says_to_be() -> None:
    scene = plain()
    put(scene, reservation(cpu="30"))
    liar = placeholder(cpu="30")
    liar["metadata"]["namespace"] = "other"
    scene.put(liar)
    assert scene.filter(pod("large", "5"), "a")[1] == {"a": "Insufficient cpu by node"}
    assert scene.filter(pod("other", "4"), "a")[0] == ["a"]


def test_an_owner_goes_to_its_reservation_and_its_binding_says_so() -> None:
    scene = plain()
    put(scene, reservation())
    mine = owner(pod("mine", "4"))
    assert scene.filter(mine, "a", "b") == (["a"], {"b": ELSEWHERE})
    assert scene.schedule(mine, "a", "b") == "a"
    assert written(scene)[keys.RESERVATION_ALLOCATED] == {"name": "r", "uid": "uid-r"}
    explained = scene.extender.attempts.get("ns/mine")
    assert explained is not None
    assert explained.chosen == "a"


@pytest.mark.parametrize("name", ["refusal", "points"])
def test_a_fault_about_a_node_with_a_reservation_costs_that_node_and_is_counted(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    scene = plain()
    for number, node in enumerate("ab"):
        put(scene, reservation(f"r{number}", node, app="r"))
    mine, real = owner(pod("mine", "4")), getattr(judge, name)
    assert scene.filter(mine, "a", "b") == (["a", "b"], {})

    def judged(shape: Any, row: Any, settings: Any) -> Any:
        if row.name == "b" and row.reservations.taking:
            raise RuntimeError("broken")
        return real(shape, row, settings)

    monkeypatch.setattr(judge, name, judged)
    passed, _ = scene.filter(mine, "a", "b")
    assert passed == (["a"] if name == "refusal" else ["a", "b"])
    ranks = dict(scene.extender.prioritize(as_object(mine), passed))
    assert ranks == ({"a": 0} if name == "refusal" else {"a": 10, "b": 0})
    assert scene.cluster.faults.total == 1


def test_an_owner_waits_for_its_reservation_to_be_made_free_but_not_for_ever() -> None:
    scene = plain()
    put(scene, reservation())
    mine = owner(pod("mine", "4"))
    assert scene.filter(mine, "b") == ([], {"b": ELSEWHERE}), "node a is full: its placeholder is there"
    scene.clock.pass_(61)
    assert scene.filter(mine, "b")[0] == ["b"]


def test_an_owner_waits_while_the_placeholder_of_a_reservation_that_is_over_counts_beside_its_owner() -> None:
    scene = plain()
    for name in ("r", "over"):
        scene.put(placeholder(name, cpu="32"))
        put(scene, reservation(name, cpu="32"))
    first = owner(pod("first", "32"), "over")
    scene.put(bound(first, "a"))
    scene.cluster.remove_reservation("over")
    mine = owner(pod("mine", "32"))
    assert scene.filter(mine, "a", "b") == ([], {"a": "Insufficient cpu by node", "b": ELSEWHERE})
    scene.cluster.remove_pod("ns/reservation-uid-over-0")
    assert scene.filter(mine, "a", "b")[0] == ["a"]


def aligned(*, signed: bool, free: tuple[str, str] = ("2", "0")) -> Scene:
    """Node a, where a placeholder has 14 CPUs of one NUMA node, and nothing says of which; node b is empty."""
    scene, totals, holder = Scene(), {"cpu": "16", "memory": "64Gi"}, placeholder(cpu="14")
    for name, zones, pods in (("a", free, [holder]), ("b", ("16", "16"), [])):
        amounts = [{"cpu": cpu, "memory": "60Gi"} for cpu in zones]
        scene.node(name, *amounts, totals=totals, signed=pods if signed else None)
    scene.put(holder)
    scene.clock.pass_(30)
    put(scene, reservation(cpu="14"))
    scene.report(
        "a", *[{"cpu": cpu, "memory": "60Gi"} for cpu in free], totals=totals, signed=[holder] if signed else None
    )
    return scene


@pytest.mark.parametrize("signed", [True, False], ids=["fingerprint", "no-fingerprint"])
def test_an_owner_waits_for_the_numa_node_that_its_placeholder_has_and_gets_it_before_the_next_report(
    signed: bool,
) -> None:
    scene, mine = aligned(signed=signed), owner(pod("mine", "14"))
    passed, refused = scene.filter(mine, "a", "b")
    assert (passed, refused["b"]) == ([], ELSEWHERE)
    assert "align" in refused["a"], "the placeholder is still there"
    note = {"namespace": "ns", "name": "mine", "uid": "uid-mine"}
    put(scene, reservation(cpu="14", annotations={keys.HAND_OVER: json.dumps(note)}))
    scene.clock.pass_(1)
    scene.cluster.remove_pod("ns/reservation-uid-r-0")
    assert scene.filter(owner(pod("other", "14")), "a", "b")[0] == ["b"]
    assert scene.schedule(mine, "a", "b") == "a"


def test_an_owner_waits_for_a_report_where_it_depends_on_the_numa_node_that_nobody_knows() -> None:
    scene, mine = aligned(signed=True), owner(pod("mine", "16"))
    assert scene.filter(mine, "a", "b")[1]["b"] == ELSEWHERE
    scene.cluster.remove_pod("ns/reservation-uid-r-0")
    passed, refused = scene.filter(mine, "a", "b")
    assert (passed, refused["b"]) == ([], ELSEWHERE), "16 CPUs if it was on the first one, 14 on the second"
    scene.report("a", {"cpu": "16"}, {"cpu": "0"}, totals={"cpu": "16", "memory": "64Gi"}, signed=[])
    assert scene.filter(mine, "a", "b")[0] == ["a"]


def holders(*names: str, cpu: str = "8") -> list[Any]:
    return [placeholder(name, cpu=cpu) for name in names]


def placed(zones: Sequence[Sequence[Any]]) -> dict[str, str]:
    """The annotation with which a report says on which NUMA node its pods are."""
    containers = [
        {"namespace": "ns", "pod": each["metadata"]["name"], "uid": each["metadata"]["uid"], "container": "c"}
        | {"exclusive": True, "promisedNodes": [zone], "source": "kubelet"}
        for zone, pods in enumerate(zones)
        for each in pods
    ]
    return {
        keys.PLACEMENT: json.dumps({"observedAt": "2026-01-01T00:00:00Z", "generation": 1, "containers": containers})
    }


def full(zones: Sequence[Sequence[Any]], *, named: bool = True) -> Scene:
    """Node a, which these placeholders of 8 CPUs fill: 16 CPUs on each of two NUMA nodes."""
    scene, every = Scene(), [each for zone in zones for each in zone]
    for each in every:
        scene.put(each)
    scene.node(
        "a",
        *[{"cpu": str(16 - 8 * len(zone)), "memory": "60Gi"} for zone in zones],
        totals={"cpu": "16", "memory": "64Gi"},
        signed=every,
        annotations=placed(zones) if named else {},
    )
    for each in every:
        put(scene, reservation(each["metadata"]["ownerReferences"][0]["name"], cpu="8"))
    return scene


def hand_over(scene: Scene, name: str) -> Any:
    """Its placeholder goes for its owner, which is returned."""
    scene.clock.pass_(0.1)
    note = {"namespace": "ns", "name": f"owner-{name}", "uid": f"uid-owner-{name}"}
    put(scene, reservation(name, cpu="8", annotations={keys.HAND_OVER: json.dumps(note)}))
    scene.cluster.remove_pod(f"ns/reservation-uid-{name}-0")
    scene.clock.pass_(0.1)
    return owner(pod(f"owner-{name}", "8"), name)


@pytest.mark.parametrize("seen_bound", [True, False])
@pytest.mark.parametrize("order", [("r1", "r2", "r3", "r4"), ("r4", "r1", "r3", "r2")], ids=", ".join)
@pytest.mark.parametrize("named", [True, False], ids=["placements", "fingerprint-alone"])
def test_owners_take_their_room_one_after_the_other_before_any_report_counts_them(
    order: tuple[str, ...], seen_bound: bool, named: bool
) -> None:
    """Each placeholder that goes and each owner that comes makes the report older."""
    scene = full([holders("r1", "r2"), holders("r3", "r4")], named=named)
    for name in order:
        mine = hand_over(scene, name)
        assert scene.schedule(mine, "a") == "a", name
        if seen_bound:
            scene.put(bound(mine, "a", phase="Pending"))
    scene.clock.pass_(1)
    assert scene.filter(pod("other", "1"), "a")[0] == [], "the node is full"


def test_an_owner_may_have_been_admitted_before_or_after_a_room_was_left_that_was_seen_left_later() -> None:
    scene = full([holders("r1", "r2"), holders("r3", "r4")])
    first = hand_over(scene, "r3")
    assert scene.schedule(first, "a") == "a"
    scene.put(bound(first, "a", phase="Pending"))
    hand_over(scene, "r1")
    row = scene.cluster.row("a")
    assert row is not None
    free = [[zone["cpu"] // 10**9 for zone in case.values()] for case in row.reservations.freed["uid-r1"]]
    assert free == [[8, 0], [0, 8]], "it took its own room; or that of r1, and left its own"


@pytest.mark.parametrize("included", [0, 1, 2, 3])
@pytest.mark.parametrize("named", [True, False], ids=["placements", "fingerprint-alone"])
def test_a_report_is_recognised_though_many_pods_have_come_and_gone(named: bool, included: int) -> None:
    scene = full([holders("r1", "r2"), holders("r3", "r4")], named=named)
    ways = {"r3": 1, "r4": 1, "r1": 0}
    owners = {}
    for name in ways:
        owners[name] = hand_over(scene, name)
        assert scene.schedule(owners[name], "a") == "a", name
        scene.put(bound(owners[name], "a", phase="Pending"))
    zones: list[list[Any]] = [holders("r1", "r2"), holders("r3", "r4")]
    for name in list(ways)[:included]:
        zone = zones[ways[name]]
        zone[:] = [each for each in zone if each["metadata"]["name"] != f"reservation-uid-{name}-0"]
        zone.append(owners[name])
    scene.report(
        "a",
        *[{"cpu": "0", "memory": "60Gi"}] * 2,
        totals={"cpu": "16", "memory": "64Gi"},
        signed=[each for zone in zones for each in zone],
        annotations=placed(zones) if named else {},
    )
    assert scene.schedule(hand_over(scene, "r2"), "a") == "a"


def test_of_two_pods_of_one_name_in_a_report_that_signs_others_neither_gives_room_back() -> None:
    scene = full([holders("r1", "r2"), holders("r3", "r4")])
    row = scene.cluster.row("a")
    assert row is not None
    second = placeholder("r3", cpu="8", uid="uid-again")
    scene.cluster.remove_pod("ns/reservation-uid-r3-0")
    scene.put({**second, "status": {**second["status"], "phase": "Pending"}})
    zones = [holders("r1", "r2"), holders("r3", "r4")]
    strangers = [bound(pod("stranger", "1"), "a"), *zones[0], *zones[1]]
    totals, free = {"cpu": "16", "memory": "64Gi"}, [{"cpu": "0", "memory": "60Gi"}] * 2
    scene.report("a", *free, totals=totals, signed=strangers, annotations=placed(zones))
    scene.cluster.row("a")
    covered = scene.cluster.nodes["a"].covered
    assert (covered.is_known, [each.uid for each in covered.uncounted], covered.outlived) == (False, ["uid-again"], ())


def test_an_owner_that_no_numa_node_can_take_is_not_kept_from_others() -> None:
    scene, mine = aligned(signed=True, free=("1", "1")), owner(pod("mine", "16"))
    assert scene.filter(mine, "a", "b")[0] == ["b"]


def test_a_hand_over_is_for_its_pod_alone_and_one_that_was_given_up_is_not_waited_for() -> None:
    scene = plain()
    note = {"namespace": "ns", "name": "mine", "uid": "uid-mine"}
    put(scene, reservation(cpu="62", annotations={keys.HAND_OVER: json.dumps(note)}))
    other = owner(pod("other", "4"))
    assert scene.filter(other, "a", "b")[0] == ["b"], "it is an owner, too, but not the one that is let in"
    assert scene.filter(owner(pod("mine", "4")), "a", "b")[0] == ["a"]
    put(scene, reservation(annotations={keys.HAND_OVER: json.dumps({**note, "ended": "2026-01-01T00:00:00Z"})}))
    assert scene.filter(owner(pod("mine", "4")), "b")[0] == ["b"]


def test_the_second_pod_gets_nothing_of_a_reservation_that_is_taken() -> None:
    scene = plain()
    put(scene, reservation(cpu="62"))
    first, second = owner(pod("first", "62")), owner(pod("second", "62"))
    assert scene.schedule(first, "a", "b") == "a"
    assert scene.filter(second, "a", "b") == (["b"], {"a": "Insufficient cpu by node"})
    scene.put(first)
    scene.put(bound(first, "a"))
    assert scene.filter(second, "a", "b")[0] == ["b"], "the watch has shown it; the status has not"
    scene.put(bound(pod("thief", "1", annotations={keys.RESERVATION_ALLOCATED: '{"name":"r","uid":"uid-r"}'}), "a"))
    assert scene.filter(second, "a")[0] == [], "what a pod says of itself frees nothing"


@pytest.mark.parametrize(
    ("affinity", "passed"),
    [
        pytest.param({}, ["a"], id="any that matches"),
        pytest.param({"name": "r"}, ["a"], id="by name"),
        pytest.param({"name": "other"}, [], id="by another name"),
        pytest.param({"reservationSelector": {"tier": "gold"}}, ["a"], id="by the label of the reservation"),
        pytest.param({"reservationSelector": {"zone": "x"}}, ["a"], id="by the label of the node"),
        pytest.param({"reservationSelector": {"tier": "tin"}}, [], id="by a label it does not have"),
    ],
)
def test_with_affinity_a_pod_runs_nowhere_else(affinity: Any, passed: list[str]) -> None:
    scene = plain()
    node = {"metadata": {"name": "a", "labels": {"zone": "x"}}, "status": {"allocatable": {"cpu": "64", "pods": "9"}}}
    scene.cluster.put_node(as_node(node))
    put(scene, reservation(labels={"tier": "gold"}))
    mine = owner(pod("mine", "4", "0", annotations={keys.RESERVATION_AFFINITY: json.dumps(affinity)}))
    result, refused = scene.filter(mine, "a", "b")
    assert result == passed
    assert refused["b"] == NONE_MEETS
    assert scene.extender.bind("ns", "mine", "uid-mine", "b") == f"{NONE_MEETS} (taken meanwhile by another pod)"


def as_node(obj: Any) -> Any:
    from koordlite.model.wire import objects

    return msgspec.convert(obj, objects.NodeObject)


def test_an_affinity_that_cannot_be_read_is_the_reason() -> None:
    scene = plain()
    put(scene, reservation())
    bad = owner(pod("mine", "4", annotations={keys.RESERVATION_AFFINITY: "{"}))
    result, refused = scene.filter(bad, "a", "b")
    assert result == []
    assert all(text.startswith(f"annotation {keys.RESERVATION_AFFINITY} cannot be read") for text in refused.values())


def test_the_order_label_decides_and_then_how_much_is_used() -> None:
    scene = plain()
    scene.node("c")
    put(scene, reservation("small", "a", "4", app="r"))
    put(scene, reservation("large", "b", "32", app="r"))
    mine = owner(pod("mine", "4"))
    names = ["a", "b"]
    assert scene.filter(mine, "a", "b", "c")[0] == names
    assert max(scene.extender.prioritize(as_object(mine), names), key=lambda pair: pair[1])[0] == "a", "it fits best"
    put(scene, reservation("large", "b", "32", app="r", labels={keys.RESERVATION_ORDER: "7"}))
    assert max(scene.extender.prioritize(as_object(mine), names), key=lambda pair: pair[1])[0] == "b"


def test_only_owners_displace_a_placeholder() -> None:
    scene = plain()
    put(scene, reservation(cpu="62"))
    scene.put(placeholder(cpu="62"))
    victims = {"a": Victims(("uid-reservation-uid-r-0",))}
    other, mine = pod("other", "40", priority=2_000_000_000), owner(pod("mine", "62", priority=2_000_000_000))
    scene.filter(other, "a")
    assert scene.extender.preempt(as_object(other), victims) == {}
    attempt = scene.extender.attempts.get("ns/other")
    assert attempt is not None
    assert attempt.events == [
        "preemption on a: ns/reservation-uid-r-0 holds the place of a reservation, which only its owners displace",
        "preemption: 0 of 1 nodes offered",
    ]
    assert scene.extender.preempt(as_object(mine), victims) == victims


def reserved_cpus(scene: Scene, *, with_placeholder: bool = True, **fields: Any) -> None:
    """CPUs 4 to 7 of node `a` are held."""
    put(scene, reservation(annotations={keys.RESOURCE_STATUS: CPU_STATUS}, **fields))
    if with_placeholder:
        obj = placeholder(annotations={keys.RESOURCE_STATUS: CPU_STATUS})
        obj["metadata"]["labels"] |= lsr("x")["metadata"]["labels"]
        scene.put(obj)


@pytest.mark.parametrize("with_placeholder", [True, False], ids=["held by the placeholder", "being handed over"])
def test_the_owner_gets_exactly_the_reserved_cpus_and_nobody_else_does(with_placeholder: bool) -> None:
    scene = koordinator()
    reserved_cpus(scene, with_placeholder=with_placeholder)
    for name in ("p", "q"):
        scene.put(lsr(name))
        assert scene.schedule(lsr(name), "a") == "a"
        assert written(scene)[keys.RESOURCE_STATUS]["cpuset"] not in ("4-7",)
    mine = owner(lsr("mine"))
    if with_placeholder:
        assert scene.filter(mine, "a") == ([], {"a": OCCUPIED}), "the agent would see two pods with these CPUs"
        scene.cluster.remove_pod("ns/reservation-uid-r-0")
    assert scene.schedule(mine, "a") == "a"
    assert written(scene)[keys.RESOURCE_STATUS]["cpuset"] == "4-7"
    assert written(scene)[keys.RESERVATION_ALLOCATED]["name"] == "r"
    assert scene.schedule(lsr("last"), "a") == "a"
    assert scene.filter(lsr("none-left"), "a")[0] == []


def test_owners_share_a_reservation_that_is_for_several() -> None:
    scene = koordinator()
    reserved_cpus(scene, with_placeholder=False, spec={"allocateOnce": False, "allocatePolicy": "Restricted"})
    allocated = []
    for name in ("o", "p"):
        obj = owner(lsr(name, "2"))
        scene.put(obj)
        assert scene.schedule(obj, "a") == "a"
        allocated.append(written(scene)[keys.RESOURCE_STATUS]["cpuset"])
        scene.put(bound({**obj, "metadata": {**obj["metadata"], "annotations": scene.api.bound[-1][2]}}, "a"))
    assert sorted(allocated) == ["4-5", "6-7"]
    third = owner(lsr("q", "2", **{keys.RESERVATION_AFFINITY: "{}"}))
    assert scene.filter(third, "a")[1] == {"a": "Reservation(s) Insufficient cpu; Reservation(s) Insufficient memory"}


def test_after_a_restart_owners_are_known_by_the_status() -> None:
    scene = koordinator()
    current = {"currentOwners": [{"namespace": "ns", "name": "o", "uid": "uid-o"}], "allocated": {"cpu": "2"}}
    reserved_cpus(scene, with_placeholder=False, spec={"allocateOnce": False}, status=current)
    obj = owner(lsr("o", "2", **{keys.RESOURCE_STATUS: '{"cpuset":"4-5"}'}))
    scene.put(bound(obj, "a"))
    second = owner(lsr("p", "2"))
    assert scene.schedule(second, "a") == "a"
    assert written(scene)[keys.RESOURCE_STATUS]["cpuset"] == "6-7"


@pytest.mark.parametrize("text", ['{"cpuset":"4-"}', '{"cpuset":"0-63"}'], ids=["no list", "more than are reserved"])
def test_a_reservation_whose_cpus_cannot_be_believed_is_taken_by_no_pod(text: str) -> None:
    scene = Scene()
    scene.node("a", ZONE, ZONE, policy="none", annotations=CPUS)
    put(scene, reservation(cpu="60", annotations={keys.RESOURCE_STATUS: text}))
    assert scene.filter(owner(pod("mine", "8")), "a")[1] == {"a": "Insufficient cpu by node"}
    document = documents.of_node(scene.cluster, "a")
    assert document is not None
    assert document["reservations"][0]["cpus"] == ""
    assert any(line.startswith(f"  problem: reservation/r: {keys.RESOURCE_STATUS}") for line in texts.node(document))


def test_a_pod_that_ignores_reservations_is_not_their_owner() -> None:
    scene = plain()
    put(scene, reservation(cpu="62"))
    obj = owner(pod("ignores", "8"))
    obj["metadata"]["labels"][keys.RESERVATION_IGNORED] = "true"
    assert scene.filter(obj, "a", "b")[0] == ["a", "b"]
    assert scene.schedule(obj, "a") == "a"
    assert keys.RESERVATION_ALLOCATED not in scene.api.bound[-1][2]


def test_a_binding_through_another_replica_takes_the_reservation_too() -> None:
    scene = plain()
    put(scene, reservation())
    mine = owner(pod("mine", "4"))
    scene.api.pods["ns/mine"] = as_object(mine)
    assert scene.bind(mine, "a") == ""
    assert keys.RESERVATION_ALLOCATED in scene.api.bound[-1][2]


def test_the_placeholder_of_the_rest_gets_the_cpus_that_the_owner_left() -> None:
    scene = koordinator()
    remainder = "reservation-uid-r-1"
    note = {"namespace": "ns", "name": "o", "uid": "uid-o", "rest": remainder}
    notes = {keys.RESOURCE_STATUS: CPU_STATUS, keys.HAND_OVER: json.dumps(note)}
    put(scene, reservation(annotations=notes, spec={"allocateOnce": False}))
    mine = owner(lsr("o", "2"))
    assert scene.schedule(mine, "a") == "a"
    forged = lsr(remainder, "2")
    scene.schedule(forged, "a")
    assert written(scene)[keys.RESOURCE_STATUS]["cpuset"] not in ("6-7",), "the name alone makes no placeholder"
    scene.cluster.remove_pod(f"ns/{remainder}")
    obj = stand_in(lsr(remainder, "2"))
    obj["metadata"]["uid"] = "uid-of-the-rest"
    assert scene.schedule(obj, "a") == "a"
    assert written(scene)[keys.RESOURCE_STATUS]["cpuset"] == "6-7"
    assert keys.RESERVATION_ALLOCATED not in scene.api.bound[-1][2]


WORDS = ["{}", "[]", "null", '{"cpuset":"0-3"}', '{"uid":"uid-mine"}', "9" * 30]
TEXTS = some.one_of(some.text(max_size=20), some.sampled_from(WORDS))
SELECTORS = some.sampled_from(["In", "NotIn", "Exists", "Gt", "", "?"])


@settings(max_examples=slices.amount(60, 25), deadline=None)
@given(some.tuples(TEXTS, TEXTS, TEXTS), TEXTS, SELECTORS, some.sampled_from(["4", "-1", "x", "1e99", ""]))
def test_whatever_is_written_on_a_reservation_or_its_owner_gets_an_answer(
    texts_: tuple[str, str, str], affinity: str, operator: str, amount: str
) -> None:
    status, coming, order = texts_
    scene = koordinator()
    notes = {keys.RESOURCE_STATUS: status, keys.HAND_OVER: coming, keys.RESERVATION_RESTRICTED: order}
    selector = {"matchExpressions": [{"key": "app", "operator": operator, "values": ["r"]}]}
    spec = {"allocatePolicy": "Restricted", "owners": [{"labelSelector": selector}, {}]}
    resource = reservation(labels={keys.RESERVATION_ORDER: order}, annotations=notes, spec=spec)
    put(scene, {**resource, "status": {**resource["status"], "allocatable": {"cpu": amount}}})
    mine = owner(lsr("mine", "2", **{keys.RESERVATION_AFFINITY: affinity}))
    passed, refused = scene.filter(mine, "a")
    assert {*passed, *refused} == {"a"}
    if passed:
        assert [name for name, _ in scene.extender.prioritize(as_object(mine), passed)] == ["a"]
        assert scene.bind(mine, "a") == ""
    assert documents.of_node(scene.cluster, "a") is not None
