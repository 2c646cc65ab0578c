"""`explain cpus`: every owner of CPUs, and what contradicts."""

from __future__ import annotations

import dataclasses
import itertools
import json
from typing import Any, get_args

import msgspec
import pytest
from reported import tick_of

from koordlite.model.cpuset import CPUSet
from koordlite.model.node import ResolvedReservation, SystemQoS
from koordlite.model.picture.crane import CranePromise, CraneState
from koordlite.model.picture.kubelet import Kubelet, KubeletResources, PodCPUs, PodResources, ResourceSet
from koordlite.model.snapshot import Snapshot
from koordlite.report.explain import cpus
from koordlite.report.explain.subject import explain


def answer(snapshot: Snapshot) -> tuple[str, Any]:
    tick = tick_of(time=0.0, node="n", snapshot=snapshot)
    return explain("cpus", tick), json.loads(explain("cpus", tick, output="json"))


@pytest.fixture
def owned(build: Any) -> Snapshot:
    """Every authority has CPUs of its own."""
    pods = [build.pod(name) for name in ("kubelet", "claim", "crane")] + [build.pod("koord", "LSR", cpus="3")]
    snapshot: Snapshot = build.snapshot(
        pods=tuple(pods),
        reserved=ResolvedReservation(CPUSet([0])),
        system_qos=SystemQoS(CPUSet([1]), exclusive=True),
        kubelet=Kubelet(
            pod_cpus=(
                PodCPUs("kubelet", CPUSet([2]), {"main": CPUSet([2])}),
                PodCPUs("claim", CPUSet([4, 5]), {"main": CPUSet([4, 5])}, claimed=True),
            )
        ),
        crane=CraneState(
            enforced=True,
            promises={"crane": CranePromise("exclusive", (1,), {"main": CPUSet([6])})},
            exclusive=CPUSet([6]),
        ),
    )
    return snapshot


def test_every_cpu_has_its_owner_and_the_rest_is_shared(owned: Snapshot) -> None:
    text, document = answer(owned)
    assert [(each["cpus"], each["by"], each["pod"]) for each in document["owners"]] == [
        ("0", "reservation", ""),
        ("1", "SYSTEM", ""),
        ("2", "kubelet", "ns/kubelet"),
        ("3", "Koordinator", "ns/koord"),
        ("4-5", "ResourceClaim", "ns/claim"),
        ("6", "Crane", "ns/crane"),
    ]
    assert document["shared"] == {"shared by LS pods": "7", "best effort may use": "3,7"}
    assert "  4-5  pod ns/claim (main)    ResourceClaim, by a DRA driver\n" in text
    assert text.endswith("nothing contradicts: no CPU has two owners\n")


def test_claims_and_promises_for_the_same_cpus_are_told_with_their_cure(owned: Snapshot, build: Any) -> None:
    pods = (*owned.pods[:3], build.pod("koord", "LSR", cpus="0,2,4,6"))
    text, document = answer(dataclasses.replace(owned, pods=pods))
    found = {each["cpus"]: each for each in document["contradictions"]}
    assert {cpus: {each["first"]["by"], each["second"]["by"]} for cpus, each in found.items()} == {
        "0": {"Koordinator", "reservation"},
        "2": {"Koordinator", "kubelet"},
        "4": {"Koordinator", "ResourceClaim"},
        "6": {"Koordinator", "Crane"},
    }
    assert "let this pod claim its CPUs" in found["4"]["do"]
    assert "contradictions: 4\n" in text


def test_cpus_that_kubelet_gave_to_a_pod_that_we_place_are_told_as_well(owned: Snapshot, build: Any) -> None:
    given = PodResources("ns", "ours", {"main": ResourceSet(CPUSet([7]))})
    resources = KubeletResources("pod-resources", ResourceSet(), (given,))
    more = dataclasses.replace(
        owned,
        pods=(*owned.pods, build.pod("ours", "LS"), build.pod("koord2", "LSR", cpus="7")),
        kubelet=msgspec.structs.replace(owned.kubelet, resources=resources),
    )
    (wrong,) = answer(more)[1]["contradictions"]
    assert (wrong["cpus"], {wrong["first"]["pod"], wrong["second"]["pod"]}) == ("7", {"ns/ours", "ns/koord2"})


def test_two_of_one_pod_contradict_nothing(owned: Snapshot) -> None:
    twice = PodCPUs("koord", CPUSet([3]), {"main": CPUSet([3])})
    kubelet = msgspec.structs.replace(owned.kubelet, pod_cpus=(*owned.kubelet.pod_cpus, twice))
    assert answer(dataclasses.replace(owned, kubelet=kubelet))[1]["contradictions"] == []


def test_every_pair_of_authorities_has_a_cure() -> None:
    for first, second in itertools.combinations_with_replacement(get_args(cpus.Authority), 2):
        if {first, second} & set(cpus.OF_PODS):
            sides = [cpus.Entry(CPUSet([0]), by, f"ns/{number}") for number, by in enumerate((first, second))]
            assert cpus.cure(*sides)


def test_claimed_cpus_that_are_not_known_are_told_as_unknown(owned: Snapshot) -> None:
    unknown = PodCPUs("claim", CPUSet(), {"main": CPUSet()}, claimed=True)
    text, _ = answer(dataclasses.replace(owned, kubelet=Kubelet(pod_cpus=(unknown,))))
    assert "unknown  pod ns/claim (main)" in text
