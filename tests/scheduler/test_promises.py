"""Pods that were bound without the promise that they need get it afterwards, from what their node has left."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from koordlite.kube.publish.events import Event
from koordlite.model import keys
from koordlite.model.cpuset import CPUSet
from koordlite.model.wire import objects
from koordlite.scheduler.extender import BindError
from koordlite.scheduler.promises import RETRY_SECONDS, Promises
from tests.scheduler.builders import Scene, as_object, bound, pod
from tests.scheduler.test_protocols import koordinator, lsr


class Server:
    """Pods at the API server, each with a version; a write to another version is refused."""

    def __init__(self) -> None:
        self.pods: dict[str, objects.PodObject] = {}
        self.refuses = ""

    def put(self, scene: Scene, manifest: Any, *, is_visible: bool = True) -> None:
        obj = as_object(manifest)
        before = self.pods.get(obj.metadata.name)
        version = str(int(before.metadata.resource_version) + 1 if before else 1)
        meta = msgspec.structs.replace(obj.metadata, resource_version=version)
        self.pods[obj.metadata.name] = msgspec.structs.replace(obj, metadata=meta)
        if is_visible:
            scene.cluster.put_pod(self.pods[obj.metadata.name])

    def pod(self, namespace: str, name: str) -> objects.PodObject:
        return self.pods[name]

    def promise(self, obj: objects.PodObject, annotations: Mapping[str, str]) -> None:
        current = self.pods[obj.metadata.name]
        if self.refuses:
            raise BindError(self.refuses, is_certain=True)
        if current.metadata.resource_version != obj.metadata.resource_version:
            raise BindError("the object has been modified", is_certain=True)
        version = str(int(current.metadata.resource_version) + 1)
        notes = {**(current.metadata.annotations or {}), **annotations}
        meta = msgspec.structs.replace(current.metadata, annotations=notes, resource_version=version)
        self.pods[obj.metadata.name] = msgspec.structs.replace(current, metadata=meta)

    def cpus(self, name: str) -> CPUSet:
        text = (self.pods[name].metadata.annotations or {}).get(keys.RESOURCE_STATUS)
        return CPUSet.parse(json.loads(text)["cpuset"]) if text else CPUSet(())


def test_pods_that_were_bound_without_a_promise_get_cpus_of_their_own_one_after_the_other() -> None:
    scene, server = koordinator(), Server()
    promises = Promises(scene.extender, server)
    for name in ("p", "q"):
        server.put(scene, bound(lsr(name), "a"))
    server.put(scene, bound(pod("plain"), "a"))
    promises.look()
    assert (len(server.cpus("p")), len(server.cpus("q"))) == (4, 0), "on one node the first comes first"
    promises.look()
    assert (len(server.cpus("q")), server.cpus("p") & server.cpus("q")) == (4, CPUSet(()))
    promises.look()
    assert (promises.missing, dict(promises.results), server.cpus("plain")) == (0, {"written": 2}, CPUSet(()))
    scene.put(lsr("r"))
    assert scene.schedule(lsr("r"), "a") == "a"
    cpus = CPUSet.parse(json.loads(scene.api.bound[-1][2][keys.RESOURCE_STATUS])["cpuset"])
    assert not cpus & (server.cpus("p") | server.cpus("q")), "and they count for the next"


def test_two_extenders_never_promise_a_cpu_twice_though_one_sees_things_late() -> None:
    first, late, server = koordinator(), koordinator(), Server()
    for name in ("p", "q", "r"):
        for scene in (first, late):
            server.put(scene, bound(lsr(name), "a"))
    both = Promises(first.extender, server), Promises(late.extender, server)
    for _ in range(8):
        for promises, scene in zip(both, (first, late), strict=True):
            scene.clock.pass_(RETRY_SECONDS)
            promises.look()
    cpus = [server.cpus(name) for name in ("p", "q", "r")]
    assert [len(each) for each in cpus] == [4, 4, 4]
    assert not (cpus[0] & cpus[1] or cpus[0] & cpus[2] or cpus[1] & cpus[2])


def test_a_promise_that_the_server_refuses_is_not_counted_and_is_tried_again() -> None:
    scene, server = koordinator(), Server()
    promises = Promises(scene.extender, server)
    server.put(scene, bound(lsr("p"), "a"))
    server.refuses = "forbidden"
    promises.look()
    promises.look()
    assert (dict(promises.results), promises.missing) == ({"failed": 1}, 1)
    assert not scene.cluster.pods["uid-p"].resource_status
    server.refuses = ""
    scene.clock.pass_(RETRY_SECONDS)
    promises.look()
    assert len(server.cpus("p")) == 4


def test_a_pod_that_does_not_fit_keeps_waiting_and_explain_says_why() -> None:
    scene, server = koordinator(), Server()
    promises = Promises(scene.extender, server)
    scene.filter(lsr("big", "20"), "a")
    server.put(scene, bound(lsr("big", "20"), "a"))
    promises.look()
    attempt = scene.extender.attempts.get("ns/big")
    assert attempt is not None
    assert "bound to a without its promise, which cannot be made there: not enough cpus" in attempt.events[-1]
    assert (dict(promises.results), promises.missing) == ({"refused": 1}, 1)


@pytest.mark.parametrize("change", ["ended", "other scheduler", "promised", "deleted"])
def test_other_pods_are_left_alone(change: str) -> None:
    scene, server = koordinator(), Server()
    promises = Promises(scene.extender, server)
    obj = bound(lsr("p"), "a", "Succeeded" if change == "ended" else "Running")
    if change == "other scheduler":
        obj["spec"]["schedulerName"] = "other"
    if change == "promised":
        obj["metadata"]["annotations"] = {keys.RESOURCE_STATUS: '{"cpuset":"0-3"}'}
    server.put(scene, obj)
    if change == "deleted":
        scene.cluster.remove_pod("ns/p")
    promises.look()
    assert (promises.missing, dict(promises.results)) == (0, {})


def test_nothing_is_promised_from_an_old_picture() -> None:
    scene, server = koordinator(), Server()
    server.put(scene, bound(lsr("p"), "a"))
    scene.age = None
    promises = Promises(scene.extender, server)
    promises.look()
    assert server.cpus("p") == CPUSet(())


# ── resizes in place ──


def resizing() -> tuple[Scene, Server, Promises]:
    """A node of two NUMA nodes with eight CPUs each, and a pod on 0-3."""
    scene, server = koordinator(), Server()
    server.put(scene, promised("p", "4", "0-3"))
    promises = Promises(scene.extender, server, follows_resizes=True)
    promises.look()
    assert dict(promises.results) == {}, "nothing has changed"
    return scene, server, promises


def promised(name: str, cpu: str, cpus: str) -> Any:
    obj = bound(lsr(name, cpu), "a")
    obj["metadata"]["annotations"] = {keys.RESOURCE_STATUS: json.dumps({"cpuset": cpus})}
    return obj


@pytest.mark.parametrize(
    ("cpu", "cpus"),
    [
        pytest.param("6", "0-5", id="it grows beside what it has"),
        pytest.param("8", "0-7", id="as far as its NUMA node goes"),
        pytest.param("2", "0-1", id="it gives back a whole core"),
        pytest.param("4", "0-3", id="nothing changes"),
    ],
)
def test_a_promise_follows_a_pod_that_is_resized_in_place(cpu: str, cpus: str) -> None:
    scene, server, promises = resizing()
    server.put(scene, promised("p", cpu, "0-3"))
    promises.look()
    assert str(server.cpus("p")) == cpus
    assert promises.results["resized"] == (cpus != "0-3")
    scene.put(lsr("next", "8"))
    assert scene.schedule(lsr("next", "8"), "a") == "a"
    promised_cpus = CPUSet.parse(json.loads(scene.api.bound[-1][2][keys.RESOURCE_STATUS])["cpuset"])
    assert not promised_cpus & CPUSet.parse(cpus), "and counts for the next"


def test_a_pod_that_cannot_grow_keeps_what_it_has_is_told_and_grows_once_it_can() -> None:
    scene, server, _ = resizing()
    events: list[Event] = []
    promises = Promises(scene.extender, server, follows_resizes=True, tell=events.append)
    scene.filter(lsr("p"), "a")
    server.put(scene, promised("other", "4", "4-7"))
    server.put(scene, promised("p", "6", "0-3"))
    promises.look()
    attempt = scene.extender.attempts.get("ns/p")
    assert attempt is not None
    assert attempt.events[-1] == (
        "its CPUs on a cannot follow its resize: its NUMA nodes (0) have 0 free CPUs, and it needs 2 more there"
    )
    assert (str(server.cpus("p")), dict(promises.results)) == ("0-3", {"cannot_grow": 1})
    (event,) = events
    assert (event.reason, event.type, event.regarding.uid, event.note) == (
        "CannotGrow",
        "Warning",
        "uid-p",
        attempt.events[-1],
    )
    scene.cluster.remove_pod("ns/other")
    promises.look()
    assert str(server.cpus("p")) == "0-3", "it is not looked at every time"
    scene.clock.pass_(RETRY_SECONDS)
    promises.look()
    assert str(server.cpus("p")) == "0-5"


def test_a_resize_that_cannot_be_written_counts_as_before() -> None:
    scene, server, promises = resizing()
    server.put(scene, promised("p", "6", "0-3"))
    server.refuses = "forbidden"
    promises.look()
    assert (str(server.cpus("p")), promises.results["failed"]) == ("0-3", 1)
    assert "0-3" in scene.cluster.pods["uid-p"].resource_status
    server.refuses = ""
    scene.clock.pass_(RETRY_SECONDS)
    promises.look()
    assert str(server.cpus("p")) == "0-5"


def test_promises_stay_as_they_are_unless_they_are_to_follow() -> None:
    scene, server = koordinator(), Server()
    promises = Promises(scene.extender, server)
    for cpu in ("4", "6"):
        server.put(scene, promised("p", cpu, "0-3"))
        promises.look()
    assert (str(server.cpus("p")), dict(promises.results)) == ("0-3", {})


def test_a_tenants_claim_that_does_not_hold_is_not_followed() -> None:
    scene, server, promises = resizing()
    server.put(scene, promised("thief", "6", "0-3"))
    claims = bound(pod("tenant", qos="Burstable", annotations={keys.RESOURCE_STATUS: '{"cpuset":"8-9"}'}), "a")
    server.put(scene, claims)
    promises.look()
    assert str(server.cpus("thief")) == "0-3"
    assert str(server.cpus("tenant")) == "8-9"
    assert dict(promises.results) == {}
