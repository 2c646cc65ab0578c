"""What is published on the NodeResourceTopology by `reservation_report` and `topology_report`, and how often."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import msgspec
import pytest

from koordlite.changes.published import TopologyChange, TopologyLabelChange, ZonesChange
from koordlite.model import keys, nrt
from koordlite.model.cpuset import CPUSet
from koordlite.model.decision import Decision
from koordlite.model.errors import Problem
from koordlite.model.node import Node, Reservation, ResolvedReservation
from koordlite.model.picture.groups import MemoryPlace
from koordlite.model.picture.kubelet import Kubelet, PodCPUs
from koordlite.model.picture.published import Published
from koordlite.model.pod.values import ResourceStatus
from koordlite.model.quantity import Quantity
from koordlite.model.snapshot import Snapshot
from koordlite.model.topology import CPU, NUMANode, Topology
from koordlite.model.wire.objects import Zone, ZoneResource
from koordlite.strategies import reservation_report, topology_report

GROUP = "kubepods/burstable/podp"


def report(seen: Snapshot) -> dict[str, Decision]:
    return {d.subject: d for d in topology_report.decide(seen, topology_report.Config(refresh_seconds=60))}


def reserve(seen: Snapshot) -> Decision:
    (decision,) = reservation_report.decide(seen, reservation_report.Config())
    return decision


def after(seen: Snapshot, *decisions: Decision, **part: Any) -> Snapshot:
    """The picture once these decisions were published."""
    notes, zones, policies = dict(seen.published.topology), seen.published.zones, seen.published.topology_policies
    labels, attributes = dict(seen.published.topology_labels), dict(seen.published.topology_attributes)
    for change in (c for d in decisions for c in d.changes):
        if isinstance(change, TopologyChange):
            notes[change.key] = change.value
        elif isinstance(change, ZonesChange):
            zones, policies = change.zones, change.policies
            attributes = {name: value for name, value in change.attributes if value is not None}
        elif isinstance(change, TopologyLabelChange):
            labels = {**labels, change.key: change.value} if change.value is not None else {}
    published = Published({}, notes, zones, policies, labels, attributes)
    return dataclasses.replace(seen, published=published, **part)


# ── the reservation ──


@pytest.mark.parametrize(
    ("reserved", "reason"),
    [
        (ResolvedReservation(CPUSet([0, 4]), source="list"), "ReservedByList"),
        (ResolvedReservation(CPUSet([0]), {"cpu": Quantity.parse("500m")}, source="quantity"), "ReservedByQuantity"),
        (ResolvedReservation(), "NothingReserved"),
        (ResolvedReservation(CPUSet([0]), source="list", fallback="the machine has no CPU 9"), "ReservationFallback"),
    ],
)
def test_reservation_says_where_it_comes_from(build: Any, reserved: ResolvedReservation, reason: str) -> None:
    decision = reserve(build.snapshot(reserved=reserved))
    assert (decision.reason, decision.evidence["reservedCPUs"]) == (reason, str(reserved.cpus))
    assert decision.evidence.get("fallback", "") == reserved.fallback


def test_a_reservation_is_published_once(build: Any) -> None:
    seen = build.snapshot(reserved=ResolvedReservation(CPUSet([0, 4]), {}, Reservation(), "list"))
    first = reserve(seen)
    assert first.verdict == "set"
    assert reserve(after(seen, first)).verdict == "hold"


def test_a_refused_annotation_names_the_mistake_and_keeps_what_holds(build: Any) -> None:
    problem = Problem("node/node-a", keys.RESERVATION, "{", "the JSON ends too early", "fix it")
    decision = reserve(build.snapshot(problems=(problem,), reserved=ResolvedReservation(CPUSet([3]), source="list")))
    assert (decision.verdict, decision.reason) == ("refuse", "BadReservation")
    assert (decision.evidence["why"], decision.evidence["reservedCPUs"]) == ("the JSON ends too early", "3")


# ── the machine ──


def test_the_machine_is_described_once(build: Any) -> None:
    seen = build.snapshot(kubelet=Kubelet("static", {}, "single-numa-node", "pod", CPUSet([0])))
    first = report(seen)["topology"]
    notes = {c.key: json.loads(c.value) for c in first.changes if isinstance(c, TopologyChange)}
    assert len(notes[keys.CPU_TOPOLOGY]["detail"]) == 8
    assert notes[keys.CPU_MANAGER_POLICY]["policy"] == "static"
    assert report(after(seen, first))["topology"].verdict == "hold"


def test_zones_of_others_do_not_make_us_write(build: Any) -> None:
    seen = build.snapshot()
    done = after(seen, report(seen)["topology"])
    theirs = ZoneResource(name="vendor.example/nic", capacity="2")
    first, *rest = done.published.zones
    shared = Zone(name=first.name, type=first.type, resources=(*(first.resources or ()), theirs))
    foreign = Zone(name="socket-0", type="Socket", resources=(theirs,))
    published = msgspec.structs.replace(done.published, zones=(foreign, shared, *rest))
    assert report(dataclasses.replace(done, published=published))["topology"].verdict == "hold"


def test_another_print_of_the_same_does_not_make_us_write(build: Any) -> None:
    seen = build.snapshot(cpu_info=nrt.CPUBasicInfo(model="X", turbo=True))
    done = after(seen, report(seen)["topology"], reserve(seen))
    notes = {key: json.dumps(json.loads(text), indent=1) for key, text in done.published.topology.items()}
    spread = dataclasses.replace(done, published=msgspec.structs.replace(done.published, topology=notes))
    assert (report(spread)["topology"].changes, reserve(spread).changes) == ((), ())


def test_what_changed_is_told_and_nothing_else_is_written(build: Any) -> None:
    seen = build.snapshot()
    done = after(seen, report(seen)["topology"])
    again = report(dataclasses.replace(done, kubelet=Kubelet("static")))["topology"]
    assert again.evidence["changed"] == f"annotations changed, key {keys.CPU_MANAGER_POLICY}"
    assert [str(change.place) for change in again.changes] == [f"noderesourcetopology/{keys.CPU_MANAGER_POLICY}"]


def labelled(build: Any, label: str | None, *, cpu: str = "6") -> Snapshot:
    """8 CPUs and 32 GiB on two NUMA nodes, of which kubelet keeps the rest of `cpu`."""
    amounts = {"cpu": Quantity.of(8), "memory": Quantity.of(32 * 2**30)}
    labels = {} if label is None else {keys.NUMA_RESERVATION: label}
    kept = {**amounts, "cpu": Quantity.parse(cpu)}
    node = Node(name="node-a", capacity=amounts, allocatable=kept, labels=labels)
    return build.snapshot(node=node)  # type: ignore[no-any-return]


def cpus_of_zones(decision: Decision) -> list[tuple[str, str]]:
    (change,) = (change for change in decision.changes if isinstance(change, ZonesChange))
    return [(r.capacity, r.allocatable) for z in change.zones for r in z.resources or () if r.name == "cpu"]  # type: ignore[misc]


@pytest.mark.parametrize(
    ("label", "cpus"),
    [
        pytest.param("true", [("4", "3"), ("4", "3")], id="true splits what kubelet keeps"),
        pytest.param("yes", [("4", "4"), ("4", "4")], id="another word does not"),
        pytest.param(None, [("4", "4"), ("4", "4")], id="nor does a missing label"),
    ],
)
def test_capacity_stays_when_the_label_takes_from_allocatable(build: Any, label: str, cpus: list[Any]) -> None:
    assert cpus_of_zones(report(labelled(build, label))["topology"]) == cpus


def test_the_label_is_copied_once_and_goes_with_the_nodes(build: Any) -> None:
    seen = labelled(build, "true")
    done = after(seen, report(seen)["topology"])
    assert done.published.topology_labels == {keys.NUMA_RESERVATION: "true"}
    assert report(done)["topology"].changes == ()
    gone = report(dataclasses.replace(done, node=labelled(build, None).node))["topology"]
    assert TopologyLabelChange(keys.NUMA_RESERVATION, None) in gone.changes


def test_eleven_numa_nodes_come_in_the_order_of_their_ids(build: Any) -> None:
    cpus = tuple(CPU(cpu, cpu, 0, cpu) for cpu in range(12))
    topology = Topology(cpus, tuple(NUMANode(cpu.id, CPUSet([cpu.id]), 2**30) for cpu in cpus))
    (change,) = (c for c in report(build.snapshot(topology=topology))["topology"].changes if isinstance(c, ZonesChange))
    assert [zone.name for zone in change.zones] == [f"node-{number}" for number in range(12)]


# ── the placement ──


def placed(build: Any, cpus: str = "2-3", **part: Any) -> Snapshot:
    pod = build.pod("p", "LSR", status=ResourceStatus(CPUSet.parse("2-3"), (1,)))
    groups = {f"{GROUP}/main": build.cgroup(cpus)}
    seen = {"pods": (pod,), "places": {"p": build.place(GROUP)}, "cgroups": groups}
    return build.snapshot(**{**seen, **part})  # type: ignore[no-any-return]


def placement(decision: Decision) -> nrt.Placement:
    (change,) = decision.changes
    assert isinstance(change, TopologyChange)
    return nrt.decode_placement(change.value, "test")


def test_placement_tells_promise_and_truth(build: Any) -> None:
    (container,) = placement(report(placed(build, "1-2"))["placement"]).containers
    assert (container.promised_cpus, container.cpuset) == (CPUSet.parse("2-3"), CPUSet.parse("1-2"))
    assert container.cpus_by_numa == {0: CPUSet([1]), 1: CPUSet([2])}
    assert (container.source, container.exclusive) == ("koordinator", True)


def test_kubelets_promise_is_told_as_kubelets(build: Any) -> None:
    held = PodCPUs("p", CPUSet([2]), {"main": CPUSet([2])})
    kubelet = Kubelet("static", {}, "single-numa-node", "container", CPUSet(), (held,))
    (container,) = placement(report(placed(build, "2", kubelet=kubelet))["placement"]).containers
    assert (container.source, container.promised_cpus, container.single_numa) == ("kubelet", CPUSet([2]), True)


@pytest.mark.parametrize(
    ("cpus", "age", "verdict", "generation"),
    [
        pytest.param("2-3", 59.0, "hold", 1, id="an unchanged placement is not published again"),
        pytest.param("2-3", 60.0, "set", 1, id="until refreshSeconds: readers must see that the agent lives"),
        pytest.param("2-3", None, "set", 1, id="and when nobody knows how old it is"),
        pytest.param("1-2", 1.0, "set", 2, id="a changed one at once, as a new generation"),
    ],
)
def test_when_placement_is_published(build: Any, cpus: str, age: float | None, verdict: str, generation: int) -> None:
    first = report(placed(build))["placement"]
    assert placement(first).generation == 1
    ages = {} if age is None else {"placement": age}
    again = report(after(placed(build, cpus, ages=ages), first))["placement"]
    assert (again.verdict, again.evidence["generation"]) == (verdict, generation)


def test_a_placement_that_cannot_be_read_is_replaced(build: Any) -> None:
    seen = placed(build, published=Published({}, {keys.PLACEMENT: "not JSON"}), ages={"placement": 1.0})
    assert report(seen)["placement"].verdict == "set"


def test_placement_tells_where_memory_may_be_and_where_it_is(build: Any) -> None:
    place = MemoryPlace(CPUSet([0, 1]), {0: 1 << 30, 1: 1 << 20})
    (container,) = placement(report(placed(build, memory_places={f"{GROUP}/main": place}))["placement"]).containers
    assert (container.mems, container.memory_by_numa) == (CPUSet([0, 1]), {0: 1 << 30, 1: 1 << 20})


def test_memory_that_moves_is_told_with_the_next_report_and_not_at_once(build: Any) -> None:
    def used(amount: int, **part: Any) -> Snapshot:
        return placed(build, memory_places={f"{GROUP}/main": MemoryPlace(CPUSet([0]), {0: amount})}, **part)

    first = report(used(1))["placement"]
    again = report(after(used(2, ages={"placement": 59.0}), first))["placement"]
    assert again.verdict == "hold"
    later = report(after(used(2, ages={"placement": 60.0}), first))["placement"]
    assert placement(later).containers[0].memory_by_numa == {0: 2}
    assert placement(later).generation == 1


def test_memory_that_kubelet_promised_is_a_promise_of_kubelet(build: Any) -> None:
    kubelet = Kubelet("none", {}, "single-numa-node", "pod", memory_nodes={("p", "main"): (1,)})
    seen = placed(build, pods=(build.pod("p", "LS"),), kubelet=kubelet)
    (container,) = placement(report(seen)["placement"]).containers
    assert (container.source, container.promised_nodes, container.single_numa) == ("kubelet", (1,), True)
    assert not container.exclusive


@pytest.mark.parametrize(
    ("cpus", "refused", "failed"),
    [
        pytest.param("1-2", (f"{GROUP}/main/cpuset.cpus",), True, id="elsewhere, and the kernel refused to fix it"),
        pytest.param("1-2", (), False, id="elsewhere, and it may yet be mended"),
        pytest.param("2-3", (f"{GROUP}/main/cpuset.cpus",), False, id="as promised, whatever was refused"),
        pytest.param("1-2", (f"{GROUP}/main/cpu.shares",), False, id="another file was refused"),
    ],
)
def test_a_repair_that_failed_is_told(build: Any, cpus: str, refused: tuple[str, ...], failed: bool) -> None:
    seen = placed(build, cpus, refused_writes=dict.fromkeys(refused, "EBUSY"))
    (container,) = placement(report(seen)["placement"]).containers
    assert container.fix_failed is failed


@pytest.mark.parametrize(
    ("cpus", "listed"),
    [
        pytest.param("0-1", True, id="put on reserved CPUs by somebody"),
        pytest.param("1-3", False, id="put beside them"),
        pytest.param("0-3", False, id="never put anywhere: the whole machine is no place"),
    ],
)
def test_a_container_without_a_promise_is_listed_where_nobody_may_be(build: Any, cpus: str, listed: bool) -> None:
    reserved = ResolvedReservation(CPUSet([0]), source="list")
    machine = Topology(tuple(CPU(n, n, 0, n // 2) for n in range(4)), ())
    seen = placed(build, cpus, pods=(build.pod("p", "LS"),), reserved=reserved, topology=machine)
    found = placement(report(seen)["placement"]).containers
    assert [container.source for container in found] == (["none"] if listed else [])


def test_pods_without_a_promise_are_not_listed(build: Any) -> None:
    assert placement(report(placed(build, pods=(build.pod("p", "LS"),)))["placement"]).containers == ()
