"""What kubelet gives out, by its socket and by its checkpoints, with what a kubelet 1.36 really answered."""

from __future__ import annotations

import base64
import errno
import json
import pathlib
from typing import Any

import pytest
from handclock import HandClock
from hypothesis import given
from hypothesis import strategies as some

from koordlite.kube.kubelet import checkpoints, configz, pod_resources, resources
from koordlite.kube.kubelet.resources import PodResourcesPoller
from koordlite.model.cpuset import CPUSet
from koordlite.model.picture import kubelet as pictures
from koordlite.model.picture.kubelet import Devices, KubeletResources, MemoryBlock, PodResources, ResourceSet
from koordlite.model.topology import CPU, NUMANode, Topology

# Static CPU and memory managers, CPU 0 of 2 reserved: List and GetAllocatableResources as they came.
STATIC_LIST = (
    "CjYKDHN0LWV4Y2x1c2l2ZRILcmVjLWt1YmVsZXQaGQoBYxoBASIRCgZtZW1vcnkQgICAIBoCCgAKIQoNc3QtYmVzdGVmZm9ydBILcmVjLWt1"
    "YmVsZXQaAwoBYwodCglzdC1tZW1vcnkSC3JlYy1rdWJlbGV0GgMKAWM="
)
STATIC_ALLOCATABLE = "EgEBGhIKBm1lbW9yeRCA4IyJNhoCCgA="
AFTER_DELETION = "CiEKDXN0LWJlc3RlZmZvcnQSC3JlYy1rdWJlbGV0GgMKAWMKHQoJc3QtbWVtb3J5EgtyZWMta3ViZWxldBoDCgFj"
DEVICE_LIST = "CjEKB3VzZXNkZXYSBnJlYy1kcBoeCgFjEhkKD2V4YW1wbGUuY29tL2RldhICZDEaAgoA"
DEVICE_ALLOCATABLE = (
    "ChkKD2V4YW1wbGUuY29tL2RldhICZDAaAgoAChkKD2V4YW1wbGUuY29tL2RldhICZDEaAgoAEgEBGhIKBm1lbW9yeRCA4IyJNhoCCgA="
)
UID = "b8cb0284-1ecd-4381-bf4c-cc3e6232845e"
MEMORY_STATE = json.dumps(
    {
        "policyName": "Static",
        "machineState": {
            "0": {
                "numberOfAssignments": 1,
                "memoryMap": {
                    "hugepages-1Gi": {"total": 0, "systemReserved": 0, "allocatable": 0, "reserved": 0, "free": 0},
                    "memory": {"total": 14724313088, "allocatable": 14514597888, "reserved": 67108864},
                },
                "cells": [0],
            }
        },
        "entries": {UID: {"c": [{"numaAffinity": [0], "type": "memory", "size": 67108864}]}},
        "checksum": 1819184649,
    }
).encode()
ALLOCATABLE = ResourceSet(CPUSet([1]), (), (MemoryBlock("memory", 14514597888, (0,)),))
TWO_CPUS = Topology((CPU(0, 0, 0, 0), CPU(1, 0, 0, 0)), (NUMANode(0, CPUSet([0, 1]), 2**34),))
NOTHING = KubeletResources("checkpoints", ResourceSet())


class Kubelet:
    """Answers as recorded, or with an error."""

    def __init__(self, listed: str, allocatable: str | OSError = STATIC_ALLOCATABLE) -> None:
        self.listed: str | OSError | ValueError = listed
        self.may, self.asked = allocatable, 0

    def list(self) -> tuple[PodResources, ...]:
        self.asked += 1
        if isinstance(self.listed, Exception):
            raise self.listed
        return pod_resources.parse_list(base64.b64decode(self.listed))

    def allocatable(self) -> ResourceSet:
        if isinstance(self.may, OSError):
            raise self.may
        return pod_resources.parse_allocatable(base64.b64decode(self.may))


def asked(kubelet: Kubelet, clock: HandClock) -> PodResourcesPoller:
    given = PodResourcesPoller(kubelet, socket="/k.sock", monotonic=clock)  # type: ignore[arg-type]
    given.round()
    return given


def test_cpus_and_memory_of_the_recorded_kubelet() -> None:
    found = asked(Kubelet(STATIC_LIST), HandClock()).answer(NOTHING)
    assert (found.source, found.allocatable) == ("pod-resources", ALLOCATABLE)
    assert {pod.name: pod.containers["c"].cpus for pod in found.pods} == {
        "st-exclusive": CPUSet([1]),
        "st-besteffort": CPUSet(),
        "st-memory": CPUSet(),
    }


def test_the_socket_forgets_a_deleted_pod_at_once_and_the_memory_checkpoint_does_not() -> None:
    found = asked(Kubelet(AFTER_DELETION), HandClock()).answer(NOTHING)
    assert not any(given.cpus or given.memory for pod in found.pods for given in pod.containers.values())
    state = configz.parse_cpu_manager_state(b'{"policyName":"static","defaultCpuSet":"0-1","checksum":1636926438}')
    seen, _ = configz.combine(pictures.Kubelet(cpu_manager_policy="static"), state, TWO_CPUS)
    kept = resources.from_checkpoints(seen, state, checkpoints.parse_memory(MEMORY_STATE), {}, TWO_CPUS)
    assert kept.pods == (
        PodResources("", "", {"c": ResourceSet(memory=(MemoryBlock("memory", 67108864, (0,)),))}, UID),
    )
    assert kept.allocatable.memory == ALLOCATABLE.memory


def test_a_device_in_use_is_still_allocatable() -> None:
    found = asked(Kubelet(DEVICE_LIST, DEVICE_ALLOCATABLE), HandClock()).answer(NOTHING)
    device = [Devices("example.com/dev", (name,), (0,)) for name in ("d0", "d1")]
    assert list(found.allocatable.devices) == device
    assert found.pods[0].containers["c"].devices == (device[1],)


def test_it_is_asked_at_times_and_twice_after_a_change() -> None:
    kubelet, clock = Kubelet(STATIC_LIST), HandClock()
    given = asked(kubelet, clock)
    clock.now += 59
    given.round()
    assert kubelet.asked == 1
    clock.now += 1
    given.round()
    assert kubelet.asked == 2
    kubelet.listed = AFTER_DELETION
    given.poke()
    assert not given.round()  # At most once a second.
    clock.now += 1
    assert given.round()
    assert not given.round()
    clock.now += 1
    given.round()
    given.round()
    assert kubelet.asked == 4


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (FileNotFoundError(errno.ENOENT, "No such file or directory"), "mount its folder pod-resources"),
        (OSError(errno.ENOSYS, "List: UNIMPLEMENTED: unknown service"), "pod-resources v1 came with Kubernetes 1.20"),
        (OSError(errno.ECONNREFUSED, "List: UNAVAILABLE: refused"), "check whether kubelet runs"),
        (ValueError("the message is cut off"), "check what listens there"),
    ],
)
def test_what_fails_is_reported_and_the_last_answer_stays(error: OSError | ValueError, words: str) -> None:
    kubelet, clock = Kubelet(STATIC_LIST), HandClock()
    given = asked(kubelet, clock)
    kubelet.listed = error
    clock.now += 60
    given.round()
    clock.now += 5
    (problem,) = given.problems
    assert (problem.object, problem.field) == ("kubelet", "/k.sock")
    assert words in problem.do
    assert "what it said last stays" in problem.do
    assert (given.answer(NOTHING).allocatable, given.age) == (ALLOCATABLE, 65)
    kubelet.listed = STATIC_LIST
    clock.now += 60
    given.round()
    assert (given.problems, given.age) == ((), 0.0)


def test_a_kubelet_that_never_answered_is_known_by_its_checkpoints() -> None:
    given = asked(Kubelet(""), HandClock())
    given = PodResourcesPoller(None, socket="/k.sock", monotonic=HandClock())
    assert not given.round()
    assert given.answer(NOTHING) is NOTHING


def test_an_old_kubelet_without_get_allocatable_resources() -> None:
    unknown = OSError(errno.ENOSYS, "GetAllocatableResources: UNIMPLEMENTED: unknown method")
    given = asked(Kubelet(STATIC_LIST, unknown), HandClock())
    by_checkpoints = KubeletResources("checkpoints", ResourceSet(CPUSet([1])))
    assert given.answer(by_checkpoints).allocatable == by_checkpoints.allocatable
    assert "before 1.23" in given.problems[0].why


def test_shared_cpus_that_an_old_kubelet_lists_are_not_given() -> None:
    listed = (PodResources("ns", "p", {"a": ResourceSet(CPUSet([0, 1])), "b": ResourceSet(CPUSet([2]))}),)
    cleaned = resources.without_shared(KubeletResources("pod-resources", ResourceSet(), listed), CPUSet([0, 1]))
    assert {name: given.cpus for name, given in cleaned.pods[0].containers.items()} == {
        "a": CPUSet(),
        "b": CPUSet([2]),
    }


def test_cpus_and_nodes_that_the_machine_has_not_are_reported() -> None:
    said = KubeletResources("pod-resources", ResourceSet(CPUSet([1, 9]), memory=(MemoryBlock("memory", 1, (0, 7)),)))
    cpus, nodes = resources.contradictions(said, TWO_CPUS)
    assert (cpus.value, nodes.value) == ("9", "7")
    assert "this machine has only the CPUs 0-1" in cpus.why
    assert list(resources.contradictions(KubeletResources("pod-resources", ALLOCATABLE), TWO_CPUS)) == []


IDS = some.text(max_size=3)
MEMORY = some.builds(
    MemoryBlock, some.sampled_from(["memory", "hugepages-2Mi"]), some.integers(0, 9), some.just((0,)) | some.just(())
)
DEVICE = some.builds(Devices, IDS, some.lists(IDS, max_size=2).map(tuple), some.just((0,)) | some.just(()))
KEYS = some.tuples(IDS, IDS)


@given(
    some.dictionaries(KEYS, some.lists(MEMORY, max_size=2).map(tuple), max_size=4),
    some.dictionaries(KEYS, some.lists(DEVICE, max_size=2).map(tuple), max_size=4),
)
def test_every_entry_of_a_checkpoint_is_in_what_was_given(memory: Any, devices: Any) -> None:
    state = checkpoints.MemoryManagerState("Static", memory)
    seen, _ = configz.combine(pictures.Kubelet(), configz.CPUManagerState(), TWO_CPUS)
    found = resources.from_checkpoints(seen, configz.CPUManagerState(), state, devices, TWO_CPUS)
    by_key = {(pod.uid, name): given for pod in found.pods for name, given in pod.containers.items()}
    assert by_key.keys() == memory.keys() | devices.keys()
    assert all(by_key[key].memory == held for key, held in memory.items())
    assert all(by_key[key].devices == held for key, held in devices.items())


CLAIMED = PodResources("ns", "p", {"app": ResourceSet(claims=("dra.k8s.io/cpu=claim-1",)), "sidecar": ResourceSet()})


def test_cpus_of_claims_are_known_by_the_drivers_files_and_the_last_good_ones_stay(tmp_path: pathlib.Path) -> None:
    kubelet, clock = Kubelet(DEVICE_LIST), HandClock()
    kubelet.list = lambda: (CLAIMED,)  # type: ignore[method-assign]
    made = PodResourcesPoller(kubelet, socket="/k.sock", monotonic=clock, cdi_folder=str(tmp_path))  # type: ignore[arg-type]
    made.round()
    (problem,) = made.problems
    assert (problem.object, problem.field, problem.value) == (
        "pod/ns/p",
        "ResourceClaim of container app",
        "dra.k8s.io/cpu=claim-1",
    )
    assert "components/dra-cpus" in problem.do
    file = tmp_path / "dra.k8s.io-cpu_claim-1.json"
    env = {"env": ["DRA_CPUSET_1=4-5"]}
    file.write_text(json.dumps({"kind": "dra.k8s.io/cpu", "devices": [{"name": "claim-1", "containerEdits": env}]}))
    for content in (None, "{"):
        if content:
            file.write_text(content)
        clock.now += resources.PERIOD_SECONDS
        made.round()
        ((_, app), (_, sidecar)) = made.answer(NOTHING).pods[0].containers.items()
        assert (app.claimed, sidecar, made.problems) == (CPUSet([4, 5]), ResourceSet(), ())
