"""Short names of QoS classes, pods and containers mean their groups, whatever the driver calls those."""

from __future__ import annotations

import json

import msgspec
import pytest
from emulated import Emulated

from koordlite.lab.machine import shapes
from koordlite.report.explain.subject import explain
from koordlite.report.tick import Tick

UID = "7f3a-11"


@pytest.fixture(scope="module", params=["cgroupfs", "systemd"])
def tick(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tick:
    """A node with one best-effort pod, observed twice."""
    machine = msgspec.structs.replace(shapes.machine("small"), driver=request.param)
    node = Emulated(machine, tmp_path_factory.mktemp("node"))
    node.pod("crunch", "BE", "greedy", uid=UID)
    agent = node.agent(None, "observe")
    agent.tick()
    node.sandbox.advance(1.0)
    return agent.tick()


def groups(tick: Tick) -> dict[str, str]:
    """Groups of the best-effort class, of the pod and of its container."""
    place = tick.snapshot.places[UID]
    (container,) = place.containers.values()
    return {"class": tick.snapshot.layout.besteffort, "pod": place.group, "container": container}


def found(path: str, tick: Tick) -> list[str]:
    """Places that `explain file` tells about."""
    files = json.loads(explain(f"file {path}", tick, output="json"))["files"]
    return [each["place"] for each in files]


@pytest.mark.parametrize(
    "called", ["besteffort", "BestEffort", "kubepods/besteffort", "/sys/fs/cgroup/kubepods/besteffort"]
)
def test_a_class_is_found_by_its_name(called: str, tick: Tick) -> None:
    assert found(f"{called}/cpuset.cpus", tick) == [f"{groups(tick)['class']}/cpuset.cpus"]


@pytest.mark.parametrize(
    "called", ["crunch", "ns/crunch", UID, f"pod{UID}", f"besteffort/pod{UID}", f"kubepods/besteffort/pod{UID}"]
)
def test_a_pod_is_found_by_name_and_uid_with_its_containers(called: str, tick: Tick) -> None:
    places = found(f"{called}/cpuset.cpus", tick)
    assert f"{groups(tick)['container']}/cpuset.cpus" in places
    assert all(place.startswith(f"{groups(tick)['pod']}/") for place in places)


@pytest.mark.parametrize(
    "called", ["main", "crunch/main", "ns/crunch/main", f"{UID}/main", f"besteffort/pod{UID}/main"]
)
def test_a_container_is_found_by_name(called: str, tick: Tick) -> None:
    assert found(f"{called}/cpuset.cpus", tick) == [f"{groups(tick)['container']}/cpuset.cpus"]


@pytest.mark.parametrize("called", ["main/cpu", "crunch/main/", "BestEffort/cpuset", "besteffort/cpuset"])
def test_the_name_of_a_file_may_be_cut_short(called: str, tick: Tick) -> None:
    group = groups(tick)["container" if "main" in called else "class"]
    assert f"{group}/cpuset.cpus" in found(called, tick)


def test_a_container_is_found_by_its_id(tick: Tick) -> None:
    group = groups(tick)["container"]
    short = group.rpartition("/")[2].removesuffix(".scope").removeprefix("cri-containerd-")
    assert found(f"{short}/cpuset.cpus", tick) == [f"{group}/cpuset.cpus"]


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("crumch/cpu.max", "nothing on this node is called 'crumch'; name FILE, besteffort/FILE.*its pods: ns/crunch"),
        ("crunch/nginx/cpu.max", "nothing on this node is called 'crunch/nginx'"),
        ("cpu.mx", "there is no file 'cpu.mx' that a strategy may ask for; name FILE"),
    ],
)
def test_what_is_called_by_no_name_is_an_error_that_says_what_can_be_asked(path: str, words: str, tick: Tick) -> None:
    for output in ("text", "json"):
        with pytest.raises(ValueError, match=words):
            explain(f"file {path}", tick, output=output)


@pytest.mark.parametrize(
    "path", ["crunch/cpu.pressure", "besteffort/memory.stat", "memory.high", "/sys/fs/cgroup/system.slice/cpu.max"]
)
def test_a_file_that_is_there_and_nobody_s_is_somebody_else_s(path: str, tick: Tick) -> None:
    assert "another program changed it" in explain(f"file {path}", tick)
