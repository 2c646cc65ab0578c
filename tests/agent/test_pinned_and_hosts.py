"""On the emulated node: a pod loses its own CPUs again, a process outside Kubernetes joins the pool and leaves it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from emulated import Emulated

from koordlite.model import keys
from koordlite.model.picture.groups import Cgroup

DAEMONS = "system.slice/node-daemons.service"
HOSTS = {
    "applications": [
        {"name": "daemons", "qos": "LS", "cgroupPath": {"base": "CgroupRoot", "relativePath": DAEMONS}},
    ]
}


@pytest.fixture(params=["small", "intel-2s-ht"])
def node(request: pytest.FixtureRequest, tmp_path: Path) -> Emulated:
    """A machine with cgroups v1, and one with v2. Of the four CPUs of the first one is reserved, and two are shared."""
    made = Emulated(request.param, tmp_path)
    made.node(reservation='{"reservedCPUs":"0"}')
    return made


def state(node: Emulated, group: str) -> Cgroup:
    return node.host().cgroups.state(group)


def quota(node: Emulated, name: str) -> int | None:
    layout = node.host().cgroups.layout
    (group,) = [g for g in node.sandbox.kubelet.running.values() if g.described.name == name]
    assert group.group.startswith(layout.kubepods)
    return state(node, group.group).quota_us


def limited(node: Emulated, status: str) -> None:
    """A pod with a limit of one CPU and, perhaps, a CPU of its own."""
    amounts = {"cpu": "1", "memory": "1Gi"}
    names = {"name": "db", "namespace": "ns", "uid": "uid-db", "labels": {keys.QOS_CLASS: "LSR"}}
    names["annotations"] = {keys.RESOURCE_STATUS: status} if status else {}
    container = {"name": "main", "resources": {"requests": amounts, "limits": amounts}}
    spec = {"nodeName": "node-a", "containers": [container]}
    node._write("pod-db", "v1", "Pod", names, spec=spec, status={"phase": "Running"})


def test_the_quota_is_lifted_with_the_promise_and_comes_back_without_it(node: Emulated) -> None:
    limited(node, '{"cpuset":"1"}')
    with node.journal() as journal:
        agent = node.agent(journal)
        node.ticks(agent, 2)
        assert quota(node, "db") == -1
        limited(node, "")
        node.ticks(agent, 3)
        assert quota(node, "db") == 100_000
        assert not any(str(place).endswith("cpu.quota") for place in journal.places)
        assert not any(step for tick in node.ticks(agent, 3) for step in tick.applied if "quota" in str(step.place))


def test_a_host_application_joins_the_pool_and_gets_back_what_it_had(node: Emulated) -> None:
    before = state(node, DAEMONS)
    node.raw_slo({"host-application-config": HOSTS})
    with node.journal() as journal:
        agent = node.agent(journal)
        node.ticks(agent, 2)
        assert str(state(node, DAEMONS).effective) == f"1-{node.cpus - 1}"
        node.raw_slo({"host-application-config": {}})
        node.ticks(agent, 3)
        assert state(node, DAEMONS).effective == before.effective
        assert not any(str(place).startswith(DAEMONS) for place in journal.places)


def test_a_stop_puts_the_host_application_back_too(node: Emulated) -> None:
    node.raw_slo({"host-application-config": HOSTS})
    found = node.programmed()
    with node.at_work() as agent:
        node.ticks(agent, 2)
        assert node.changed(found)
        agent.put_back()
    assert node.changed(found) == []


def test_the_whole_object_is_published_and_then_quiet(node: Emulated) -> None:
    node.pod("web", "LS", "1")
    with node.at_work() as agent:
        node.ticks(agent, 2)
        topology = node.cluster.view().topology
        assert topology is not None
        notes = topology.metadata.annotations or {}
        info = json.loads(notes[keys.CPU_BASIC_INFO])
        assert info["cpuModel"]
        assert [zone.name for zone in topology.zones or ()] == [
            f"node-{numa.id}" for numa in node.sandbox.machine.nodes
        ]
        steps = [str(step.place) for tick in node.ticks(agent, 5) for step in tick.applied]
        assert [place for place in steps if place.startswith("noderesourcetopology")] == []
