"""Zones from kubelet's answers, other writers of the object, and how often it is written."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some
from msgspec import structs

from koordlite.changes.published import ZonesChange
from koordlite.formulas.topology import other_writer
from koordlite.kube.publish import publisher
from koordlite.model import keys
from koordlite.model.cpuset import CPUSet
from koordlite.model.decision import Decision
from koordlite.model.picture.kubelet import Devices, Kubelet, KubeletResources, PodResources, ResourceSet
from koordlite.model.picture.published import OtherWriter, Published
from koordlite.model.snapshot import Snapshot
from koordlite.model.wire import objects
from koordlite.model.wire.objects import ManagedFields
from koordlite.numa.nrt import fingerprint, placement
from koordlite.strategies import topology_report
from koordlite.strategies.topology_report import Config

NIC = Devices("x.io/nic", ("n0", "n1"), (1,))
MAY = ResourceSet(CPUSet(range(1, 8)), (NIC,))


def kubelet(*pods: PodResources, may: ResourceSet = MAY, **more: Any) -> Kubelet:
    said = KubeletResources("pod-resources", may, pods)
    return Kubelet("static", {}, "single-numa-node", "pod", CPUSet([0]), resources=said, **more)


def machine(seen: Snapshot, **config: Any) -> Decision:
    return next(d for d in topology_report.decide(seen, Config(**config)) if d.subject == "topology")  # type: ignore[arg-type]


def written(decision: Decision, onto: objects.NRTObject | None = None) -> objects.NRTObject:
    topology = onto or objects.NRTObject()
    for change in decision.changes:
        topology = change.onto(topology)  # type: ignore[attr-defined]
    return topology


def after(seen: Snapshot, topology: objects.NRTObject, **ages: float) -> Snapshot:
    published = Published(
        {},
        topology.metadata.annotations or {},
        topology.zones or (),
        topology.topology_policies or (),
        topology.metadata.labels or {},
        topology_attributes={each["name"]: each["value"] for each in topology.attributes or ()},
    )
    return dataclasses.replace(seen, published=published, ages={**seen.ages, **ages})


def amounts(topology: objects.NRTObject, name: str) -> list[tuple[Any, Any, Any] | None]:
    found = [{r.name: r for r in zone.resources or ()} for zone in topology.zones or ()]
    return [(z[name].capacity, z[name].allocatable, z[name].available) if name in z else None for z in found]


def attributes(topology: objects.NRTObject) -> dict[str, str]:
    return {each["name"]: each["value"] for each in topology.attributes or ()}


PINNED = PodResources("ns", "p", {"main": ResourceSet(CPUSet([2, 6]), (Devices("x.io/nic", ("n0",), (1,)),))})
SHARED = PodResources("ns", "q", {"main": ResourceSet()})


def test_zones_say_what_kubelet_has_left(build: Any) -> None:
    topology = written(machine(build.snapshot(kubelet=kubelet(PINNED, SHARED))))
    assert amounts(topology, "cpu") == [("4", "3", "3"), ("4", "4", "2")]
    assert amounts(topology, "x.io/nic") == [("0", "0", "0"), ("2", "2", "1")]
    found = attributes(topology)
    assert (found["topologyManagerPolicy"], found["topologyManagerScope"]) == ("single-numa-node", "pod")
    assert found[fingerprint.ATTRIBUTE] == fingerprint.sign([("ns", "p")])
    assert found[fingerprint.METHOD_ATTRIBUTE] == "with-exclusive-resources"
    assert placement.METADATA_ATTRIBUTE not in found


def test_claimed_cpus_are_not_available_where_kubelet_gives_none(build: Any) -> None:
    pod = PodResources("ns", "p", {"main": ResourceSet(claims=("dra.k8s.io/cpu=c",), claimed=CPUSet([2, 5, 6]))})
    none = Kubelet("none", resources=KubeletResources("pod-resources", ResourceSet(), (pod,)))
    assert amounts(written(machine(build.snapshot(kubelet=none))), "cpu") == [("4", "4", "3"), ("4", "4", "2")]


def test_every_pod_is_signed_when_asked(build: Any) -> None:
    topology = written(machine(build.snapshot(kubelet=kubelet(PINNED, SHARED)), pods_fingerprint="all"))
    assert attributes(topology)[fingerprint.ATTRIBUTE] == fingerprint.sign([("ns", "p"), ("ns", "q")])


@pytest.mark.parametrize(("active", "left"), [(False, "4"), (True, "2")])
def test_a_pod_that_has_ended_holds_nothing(build: Any, active: bool, left: str) -> None:
    phase = "Running" if active else "Succeeded"
    pod = build.pod("p", phase=phase)
    topology = written(machine(build.snapshot(pods=(pod,), kubelet=kubelet(PINNED))))
    assert amounts(topology, "cpu")[1] == ("4", "4", left)


def test_a_checkpoint_of_a_pod_that_is_gone_counts_nothing(build: Any) -> None:
    gone = msgspec.structs.replace(PINNED, uid="gone", name="")
    said = msgspec.structs.replace(kubelet(gone).resources, source="checkpoints")
    topology = written(machine(build.snapshot(kubelet=msgspec.structs.replace(kubelet(), resources=said))))
    assert amounts(topology, "cpu")[1] == ("4", "4", "4")


def test_a_device_that_kubelet_forgot_leaves_the_zones_and_what_others_put_there_stays(build: Any) -> None:
    seen = build.snapshot(kubelet=kubelet())
    before = written(machine(seen))
    batch = objects.ZoneResource(name=keys.BATCH_CPU, capacity="5")
    first, *rest = before.zones or ()
    shared = structs.replace(first, resources=(*(first.resources or ()), batch))
    before = structs.replace(before, zones=(shared, *rest))
    stopped = dataclasses.replace(after(seen, before), kubelet=kubelet(may=ResourceSet(CPUSet(range(1, 8)))))
    now = written(machine(stopped), before)
    assert amounts(now, "x.io/nic") == [None, None]
    assert amounts(now, keys.BATCH_CPU)[0] == ("5", "0", "0")


def test_nothing_is_written_when_nothing_changed_and_at_most_once_a_second(build: Any) -> None:
    seen = build.snapshot(kubelet=kubelet(PINNED))
    done = after(seen, written(machine(seen)))
    assert machine(done).changes == ()
    later = dataclasses.replace(done, kubelet=kubelet())
    moment = dataclasses.replace(later, ages={**later.ages, "topology write": 0.4})
    assert machine(moment).verdict == "hold"
    assert machine(moment).evidence["changed"] == "attributes changed, name nodeTopologyPodsFingerprint"
    assert machine(dataclasses.replace(later, ages={**later.ages, "topology write": 1.0})).verdict == "set"


def test_the_machine_s_amounts_for_koordinator_s_scheduler(build: Any) -> None:
    topology = written(machine(build.snapshot(kubelet=kubelet(PINNED)), zones="koordinator"))
    assert amounts(topology, "cpu") == [("4", "4", "4")] * 2
    assert amounts(topology, "x.io/nic") == [None, None]


def test_a_silent_kubelet_leaves_the_zones_as_they_were_and_they_are_marked(build: Any) -> None:
    seen = build.snapshot(kubelet=kubelet(PINNED))
    before = written(machine(seen, numa_placement=True))
    silent = dataclasses.replace(after(seen, before, **{"pod resources": 90.0}), kubelet=kubelet())
    decision = machine(silent, numa_placement=True)
    assert (decision.reason, decision.evidence["seconds"]) == ("KubeletSilent", 90)
    marked = written(decision, before)
    assert marked.zones == before.zones
    assert attributes(marked) == {**attributes(before), "koordlite.io/zones-stale": "true"}
    assert machine(after(silent, marked, **{"pod resources": 91.0}), numa_placement=True).changes == ()
    again = written(machine(after(seen, marked), numa_placement=True), marked)
    assert attributes(again) == attributes(before)


def test_without_zones_a_silent_kubelet_has_nothing_to_mark(build: Any) -> None:
    seen = dataclasses.replace(build.snapshot(kubelet=kubelet(PINNED)), ages={"pod resources": 90.0})
    assert not [change for change in machine(seen).changes if isinstance(change, ZonesChange)]


def test_a_server_with_v1alpha1_gets_no_attributes(build: Any) -> None:
    seen = build.snapshot(kubelet=kubelet(PINNED))
    published = msgspec.structs.replace(seen.published, topology_version="topology.node.k8s.io/v1alpha1")
    assert written(machine(dataclasses.replace(seen, published=published))).attributes is None


def test_numa_placement_is_published_on_request_and_taken_back(build: Any) -> None:
    other = PodResources("ns", "r", {"main": ResourceSet(CPUSet([1]))})
    seen = build.snapshot(kubelet=kubelet(PINNED, other))
    topology = written(machine(seen, numa_placement=True))
    vectors = {
        number: each["value"]
        for number, zone in enumerate(topology.zones or ())
        for each in zone.attributes or ()
        if each["name"] == placement.VECTOR_ATTRIBUTE
    }
    read = placement.parse_metadata(attributes(topology)[placement.METADATA_ATTRIBUTE])
    names = [("ns", "p", "main"), ("ns", "r", "main")]
    assert placement.decode(read, vectors, names) == {names[0]: 1, names[1]: 0}
    back = written(machine(after(seen, topology)), topology)
    assert placement.METADATA_ATTRIBUTE not in attributes(back)
    assert not any(zone.attributes for zone in back.zones or ())


def test_attributes_of_others_stay_in_a_patch(build: Any) -> None:
    theirs = {"name": "cpu_core", "value": "0-3"}
    held = objects.NRTObject(attributes=(theirs, {"name": "topologyManagerPolicy", "value": "none"}))
    body = publisher.of_topology(held, machine(build.snapshot(kubelet=kubelet())).changes)  # type: ignore[arg-type]
    assert theirs in body["attributes"]
    assert {"name": "topologyManagerPolicy", "value": "single-numa-node"} in body["attributes"]
    assert sum(each["name"] == "topologyManagerPolicy" for each in body["attributes"]) == 1


def entry(manager: str, time: str, *notes: str, zones: bool = True) -> ManagedFields:
    fields: dict[str, Any] = {"f:metadata": {"f:annotations": {f"f:{note}": {} for note in notes}}}
    return ManagedFields(manager, "Update", time, "", {**fields, **({"f:zones": {}} if zones else {})})


OURS = entry("koordlite", "2026-01-01T00:00:05Z")


@pytest.mark.parametrize(
    ("entries", "manager"),
    [
        ((), None),
        ((OURS, entry("koordlet", "2026-01-01T00:00:04Z")), None),
        ((OURS, entry("koordlet", "2026-01-01T00:00:06Z")), "koordlet"),
        ((OURS, entry("koordlet", "2026-01-01T00:00:06Z", zones=False)), None),
        ((OURS, entry("kubectl-edit", "2026-01-01T00:00:06Z")), None),
        ((entry("nfd-topology-updater", ""),), "nfd-topology-updater"),
    ],
)
def test_who_wrote_the_zones_last(entries: tuple[ManagedFields, ...], manager: str | None) -> None:
    found = other_writer.last(entries)
    assert (found.manager if found else None) == manager


@pytest.mark.parametrize(
    ("found", "at_work"),
    [("2026-01-01T00:00:06Z", False), ("2026-01-01T00:00:07Z", True)],
)
def test_who_wrote_before_this_run_and_never_again_is_gone(found: str, at_work: bool) -> None:
    before = OtherWriter("koordlet", "2026-01-01T00:00:06Z")
    now = OtherWriter("koordlet", found)
    assert other_writer.at_work(now, before) == (now if at_work else None)
    assert other_writer.at_work(now, None) == now
    assert other_writer.at_work(None, before) is None


def test_zones_are_left_to_another_writer_unless_told_otherwise(build: Any) -> None:
    koordlet = OtherWriter("koordlet", "2026-01-01T00:00:06Z", frozenset({keys.CPU_TOPOLOGY}))
    seen = build.snapshot(kubelet=kubelet(PINNED))
    seen = dataclasses.replace(seen, published=msgspec.structs.replace(seen.published, other_writer=koordlet))
    left = machine(seen)
    assert (left.reason, left.evidence["writer"]) == ("OtherTopologyWriter", "koordlet")
    notes = written(left).metadata.annotations or {}
    assert written(left).zones is None
    assert keys.CPU_TOPOLOGY not in notes
    assert keys.CPU_MANAGER_POLICY in notes
    over = machine(seen, other_writer="overwrite")
    assert over.reason == "OtherTopologyWriterOverwritten"
    assert written(over).zones


JSON = some.recursive(
    some.none() | some.booleans() | some.integers() | some.text(max_size=5),
    lambda inner: (
        some.lists(inner, max_size=3)
        | some.dictionaries(some.sampled_from(["f:zones", "f:metadata", "f:annotations", "x"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(some.lists(some.builds(dict, manager=JSON, time=JSON, operation=JSON, fieldsV1=JSON), max_size=4))
def test_whatever_the_fields_of_writers_are_the_object_is_read_or_refused_as_a_whole(entries: list[Any]) -> None:
    raw = json.dumps({"metadata": {"name": "n1", "managedFields": entries}}).encode()
    try:
        read = msgspec.json.decode(raw, type=objects.WrittenNRTObject)
    except msgspec.DecodeError:
        return
    found = other_writer.last(read.metadata.managed_fields or ())
    assert found is None or not found.manager.startswith(("koordlite", "kubectl"))
