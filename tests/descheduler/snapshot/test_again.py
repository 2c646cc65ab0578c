"""Cycle after cycle over one cluster: what has not changed is taken over, and the picture is that of a fresh look."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from descheduler.snapshot import assemble, cluster, files
from descheduler.snapshot.files import Objects
from descheduler.snapshot.node_state import NodeState, Report
from koordlite.kube.client.answers import ApiError
from koordlite.kube.client.paging import Page
from koordlite.model.wire import objects as wire

NOW = "2026-01-01T00:00:00Z"


class Server:
    """Pods by name, each with a version of its own, on one node."""

    url = "https://cluster"

    def __init__(self) -> None:
        self.version, self.pods = 10, dict[str, dict[str, Any]]()

    def put(self, name: str, cpu: str = "1", uid: str = "", restarts: int = 0) -> None:
        """Create the pod, or change it."""
        self.version += 1
        meta = {"name": name, "namespace": "n", "uid": uid or f"uid-{name}", "resourceVersion": str(self.version)}
        resources = {"requests": {"cpu": cpu}}
        self.pods[name] = {
            "metadata": {**meta, "labels": {"name": name}},
            "spec": {"nodeName": "a", "containers": [{"name": "main", "resources": resources}]},
            "status": {"phase": "Running", "containerStatuses": [{"name": "main", "restartCount": restarts}]},
        }

    def listed(self, path: str) -> Iterator[Page]:
        """All of a list in one part."""
        items = {"/api/v1/nodes": [{"metadata": {"name": "a", "uid": "1", "resourceVersion": "1"}}]}
        found = {**items, "/api/v1/pods": list(self.pods.values())}.get(path)
        if found is None:
            raise ApiError(404, "NotFound", "no such resource")
        yield Page(str(self.version), [msgspec.Raw(json.dumps(item).encode()) for item in found])


def pods(objects: Objects) -> dict[str, Any]:
    return {pod.metadata.name: pod for pod in objects.of("Pod")}


def cpus(objects: Objects) -> dict[str, int]:
    view = assemble.view(objects, NOW)
    return {pod.pod.name: pod.pod.request_milli() for pod in view.pods()}


def test_what_has_not_changed_stays_the_same_object() -> None:
    server = Server()
    for name in "xyz":
        server.put(name)
    first = cluster.read(server, before=cluster.nothing_yet())
    pictures = assemble.Pictures()
    before = {pod.pod.name: pod for pod in pictures.view(first, NOW).pods()}
    server.put("y", cpu="2")
    del server.pods["z"]
    server.put("new")
    second = cluster.read(server, before=first)
    assert cpus(second) == {"x": 1000, "y": 2000, "new": 1000}
    assert pods(second)["x"] is pods(first)["x"]
    assert pods(second)["y"] is not pods(first)["y"]
    again = {pod.pod.name: pod for pod in pictures.view(second, "2026-01-01T00:05:00Z").pods()}
    assert again["x"] is before["x"]


def test_a_node_keeps_what_was_worked_out_while_only_statuses_of_its_pods_change() -> None:
    server, pictures, objects, results = Server(), assemble.Pictures(), cluster.nothing_yet(), []
    for change in ({}, {"restarts": 1}, {"restarts": 1, "cpu": "2"}):
        server.put("x", **change)
        objects = cluster.read(server, before=objects)
        node = pictures.view(objects, NOW).nodes["a"]
        results.append(node.once("result", object))
        statuses = node.pods[0].object.status.container_statuses
        assert statuses and statuses[0].restart_count == change.get("restarts", 0)
        assert node.requested["cpu"] == int(change.get("cpu", "1")) * 10**9
    assert results[0] is results[1]
    assert results[1] is not results[2]


def test_a_node_keeps_what_was_worked_out_when_its_agent_looks_again() -> None:
    state = NodeState(wire.NodeObject(metadata=wire.ObjectMeta(name="a")), Report())
    result = state.view.once("result", object)
    state.note_report(2.0)
    assert state.view.placement_at == 2.0
    assert state.view.once("result", object) is result


def test_a_pod_left_out_for_a_fault_hides_nothing_and_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    server, make, bad = Server(), assemble._pod, ["x"]

    def pod(obj: Any, *args: Any) -> Any:
        if obj.metadata.name in bad:
            raise ArithmeticError("a fault")
        return make(obj, *args)

    monkeypatch.setattr(assemble, "_pod", pod)
    for name in "xyz":
        server.put(name)
    objects, pictures, names = cluster.nothing_yet(), assemble.Pictures(), []
    for change in (lambda: None, lambda: server.pods.pop("z"), bad.clear, lambda: server.pods.pop("x")):
        change()
        objects = cluster.read(server, before=objects)
        view = pictures.view(objects, NOW)
        names.append(("".join(pod.pod.name for pod in view.pods()), len(view.problems)))
    faults = [count - names[-1][1] for _, count in names]
    assert ([name for name, _ in names], faults) == (["yz", "y", "xy", "y"], [1, 1, 0, 0])


def test_a_pod_of_the_same_name_and_version_is_another_one_by_its_uid() -> None:
    server = Server()
    server.put("x")
    first = cluster.read(server, before=cluster.nothing_yet())
    server.version -= 1
    server.put("x", cpu="3", uid="another")
    assert cpus(cluster.read(server, before=first)) == {"x": 3000}


def test_versions_of_a_restored_server_are_not_believed() -> None:
    server = Server()
    server.put("x")
    server.version += 5
    first = cluster.read(server, before=cluster.nothing_yet())
    server.version = 10
    server.put("x", cpu="3")
    assert pods(first)["x"].metadata.resource_version == server.pods["x"]["metadata"]["resourceVersion"]
    assert cpus(cluster.read(server, before=first)) == {"x": 3000}


def test_one_picture_alone_keeps_no_versions() -> None:
    server = Server()
    server.put("x")
    assert pods(cluster.read(server))["x"].metadata.resource_version == ""


@given(st.lists(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(["1", "2", ""])), max_size=4), max_size=5))
def test_every_cycle_sees_what_a_fresh_process_sees(cycles: list[list[tuple[str, str]]]) -> None:
    server, held = Server(), cluster.nothing_yet()
    for changes in cycles:
        for name, cpu in changes:
            if cpu:
                server.put(name, cpu)
            else:
                server.pods.pop(name, None)
        held = cluster.read(server, before=held)
        assert cpus(held) == cpus(cluster.read(server))


def test_after_a_picture_that_failed_the_next_one_lacks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    server, pictures, held = Server(), assemble.Pictures(), cluster.nothing_yet()
    server.put("x")
    held = cluster.read(server, before=held)
    pictures.view(held, NOW)
    server.put("y")
    held = cluster.read(server, before=held)
    with monkeypatch.context() as broken:
        broken.setattr(assemble, "_volume_notes", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            pictures.view(held, NOW)
    server.put("z")
    held = cluster.read(server, before=held)
    assert [pod.pod.name for pod in pictures.view(held, NOW).pods()] == ["x", "y", "z"]


def test_change_after_change_every_picture_is_up_to_date() -> None:
    server, pictures = Server(), assemble.Pictures()
    for name in "xyz":
        server.put(name)
    held = cluster.read(server, before=cluster.nothing_yet())
    pod = held.by_kind["Pod"][("n", "x")]
    for turn in range(20):
        after, labels = held.successor(), {"turn": str(turn)}
        changed = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, labels=labels))
        for kind in files.SHAPES:
            after.change(kind, held, {("n", "x"): changed} if kind == "Pod" else {})
        held = after
        if turn % 3:  # Not every cycle gets as far as its picture.
            assert {one.pod.name: one.pod.labels for one in pictures.view(held, NOW).pods()}["x"] == labels
