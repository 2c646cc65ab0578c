"""Each attack on real cgroups: after it best effort is limited, services keep their pool, every other pod is served,
and a restore gives back every byte."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import slices
from realnode.manifests import NODE, Manifests, threshold
from realnode.pods import Pod
from realnode.tree import Tree

from koordlite import config
from koordlite.agent import Agent
from koordlite.apply import restore
from koordlite.clock import RealClock
from koordlite.config import Settings
from koordlite.host import bundle
from koordlite.host.files import RealFiles
from koordlite.host.journal.journal import Journal
from koordlite.kube.folder.manifests import ManifestCluster
from koordlite.report.tick import Tick

WEB, BATCH = Pod("web", "Burstable", "LS"), Pod("batch", "BestEffort", "BE")
EVIL = Pod("evil", "Burstable", "LS")
pytestmark = [pytest.mark.kernel, pytest.mark.xdist_group("kernel")]


class Hurried(RealClock):
    """A clock for the cluster alone: a second passes at each look, so that every round has the newest manifests."""

    def __init__(self) -> None:
        self._now = 0.0

    def monotonic(self) -> float:
        """Seconds so far."""
        self._now += 1.0
        return self._now


class RealNode:
    """The agent on a private tree of this machine's cgroups, with a service and best-effort work."""

    def __init__(self, tree: Tree, folder: Path) -> None:
        self.tree, self.state, self.manifests = tree, folder / "state", Manifests(folder / "cluster")
        self.clock = RealClock()
        self.manifests.node()
        self.config()
        for pod in (WEB, BATCH):
            self.manifests.pod(pod)
            tree.add(pod)
        self.found = tree.content()
        self.cluster = ManifestCluster(self.manifests.folder, clock=Hurried())
        self.journal = Journal.open(self.state)
        self.agent = self.begin()

    def config(self, **more: object) -> None:
        """Best effort is held to what the service leaves, by its CPUs."""
        documents = {"threshold": threshold("cpuset", percent=50), "burst": {"clusterStrategy": {"policy": "auto"}}}
        self.manifests.config(**{**documents, **more})

    def begin(self) -> Agent:
        """An agent that enforces everything cgroups are written by."""
        chosen = config.with_modes(config.default(), "enforce")
        host = bundle.bind(RealFiles(), self.clock, kubepods=self.tree.top)
        made = Settings(agent=config.Agent(node=NODE), strategies=chosen.strategies)
        return Agent(host, self.cluster, made, self.journal)

    def tick(self, count: int = 3) -> Tick:
        """The last of some rounds."""
        return [self.agent.tick() for _ in range(count)][-1]

    def write(self, name: str, pod: dict[str, Any]) -> None:
        """A pod as its owner writes it."""
        (self.manifests.folder / f"pod-{name}.yaml").write_text(json.dumps(pod))

    def close(self) -> None:
        self.journal.close()


@pytest.fixture
def node(kubepods: Tree, tmp_path: Path) -> Iterator[RealNode]:
    made = RealNode(kubepods, tmp_path)
    try:
        yield made
    finally:
        made.close()


def evil(node: RealNode, pod: Pod = EVIL, **changes: Any) -> None:
    """The pod of a tenant, with annotations and resources as he likes."""
    node.manifests.pod(pod)
    path = node.manifests.folder / f"pod-{pod.name}.yaml"
    document = json.loads(path.read_text())
    document["metadata"]["annotations"] |= changes.get("notes", {})
    document["metadata"]["labels"] |= changes.get("labels", {})
    if "resources" in changes:
        document["spec"]["containers"][0]["resources"] = changes["resources"]
    path.write_text(json.dumps(document))
    node.tree.add(pod)
    node.found = {**node.tree.content(), **node.found}


def millicores(node: RealNode) -> None:
    amounts = {"cpu": "1m", "memory": "16Mi"}
    for cpu in sorted(os.sched_getaffinity(0)):
        notes = {"scheduling.koordinator.sh/resource-status": json.dumps({"cpuset": str(cpu)})}
        resources = {"requests": amounts, "limits": amounts}
        evil(node, Pod(f"evil-{cpu}", "Guaranteed", ""), notes=notes, resources=resources)


def whole_cpus(node: RealNode) -> None:
    for cpu in sorted(os.sched_getaffinity(0)):
        evil(node, Pod(f"evil-{cpu}", "Guaranteed", "LSR", pinned=str(cpu)))


def burst_policy(node: RealNode) -> None:
    evil(node, notes={"koordinator.sh/cpuBurst": '{"policy":"x"}'})


def extended_spec(node: RealNode) -> None:
    huge = {"kubernetes.io/batch-cpu": "9000000", "kubernetes.io/batch-memory": "9000Gi"}
    text = json.dumps({"containers": {"main": {"requests": huge, "limits": huge}}})
    evil(node, Pod("evil", "BestEffort", "BE"), notes={"node.koordinator.sh/extended-resource-spec": text})


def huge_numbers(node: RealNode) -> None:
    for number, value in enumerate(("1e308", "-1e999", "9" * 400)):
        notes = {
            "koordinator.sh/cpuBurst": f'{{"policy":"auto","cpuBurstPercent":{value},"cfsQuotaBurstPercent":{value}}}',
            "koordinator.sh/memoryQOS": f'{{"policy":"auto","minLimitPercent":{value},"wmarkScalePermill":{value}}}',
            "koordinator.sh/cpuQOS": f'{{"enable":true,"groupIdentity":{value}}}',
            "koordinator.sh/blkioQOS": f'{{"blocks":[{{"name":"sda","ioCfg":{{"readIOPS":{value}}}}}]}}',
            "node.koordinator.sh/resctrl": f'{{"llc":{{"schemata":{{"range":[0,{value}]}}}}}}',
            "scheduling.koordinator.sh/resource-status": f'{{"numaNodeResources":[{{"node":{value}}}]}}',
            "koordinator.sh/oom-score-adj": value,
        }
        amounts = {"cpu": value, "memory": value, "kubernetes.io/batch-cpu": value}
        evil(
            node,
            Pod(f"evil-{number}", "Burstable", "LS"),
            notes=notes,
            resources={"requests": amounts, "limits": amounts},
        )


def nested(node: RealNode) -> None:
    """Groups in groups, as a container with a writable cgroup can make them; in a long run more than Python nests."""
    pod = Pod("evil", "BestEffort", "BE")
    evil(node, pod)
    for point in set(node.tree.points.values()):
        here = os.open(point / node.tree.container(pod, "main"), os.O_RDONLY)
        try:
            for _ in range(slices.amount(1200, 200)):
                os.mkdir("a", dir_fd=here)
                below = os.open("a", os.O_RDONLY, dir_fd=here)
                os.close(here)
                here = below
        finally:
            os.close(here)


def host_root(node: RealNode) -> None:
    node.config()
    path = node.manifests.folder / "config.yaml"
    document = json.loads(path.read_text())
    places = [{"base": "CgroupRoot"}, {"base": "CgroupRoot", "relativePath": "/"}, {"base": "Kubepods"}, {}]
    places += [{"base": "CgroupRoot", "relativePath": node.tree.top}]
    apps = [{"name": f"evil-{n}", "qos": "LS", "cgroupPath": place} for n, place in enumerate(places)]
    document["data"]["host-application-config"] = json.dumps({"applications": apps})
    path.write_text(json.dumps(document))


def crane_result(node: RealNode) -> None:
    """CPUs of whole nodes by Crane's annotation, more than there are, and on a NUMA node that is not there."""
    machine = len(os.sched_getaffinity(0))
    for number, zones in enumerate([((0, machine),), ((0, 1),), ((0, 10**9),), ((77, 1),)]):
        evil(node, Pod(f"evil-{number}", "Guaranteed", "", crane=zones))
    evil(node, notes={"topology.crane.io/topology-result": '[{"name":"node0","resources":{"capacity":{"cpu":"-1"}}}]'})


OLD = "2001-01-01T00:00:00Z"


def older_rival(node: RealNode) -> None:
    """A pod that says it was there first names the CPU that another one has, and the agent starts again."""
    cpu = max(os.sched_getaffinity(0))
    first = Pod("first", "Guaranteed", "LSR", pinned=str(cpu))
    evil(node, first)
    node.tick()
    rival = Pod("evil", "Guaranteed", "LSR", pinned=str(cpu))
    evil(node, rival)
    path = node.manifests.folder / "pod-evil.yaml"
    document = json.loads(path.read_text())
    document["metadata"]["creationTimestamp"] = OLD
    path.write_text(json.dumps(document))
    node.agent = node.begin()
    tick = node.tick()
    (problem,) = [each for each in tick.problems if each.object == "pod/default/evil"]
    assert problem.why == f"CPUs {cpu} belong to default/first, which had them before"
    assert node.tree.cpus(node.tree.container(first, "main")) == {cpu}
    assert node.tree.cpus(node.tree.container(rival, "main")) == os.sched_getaffinity(0) - {cpu}


ATTACKS: list[Callable[[RealNode], None]] = [
    millicores,
    whole_cpus,
    crane_result,
    older_rival,
    burst_policy,
    extended_spec,
    huge_numbers,
    nested,
    host_root,
]


@pytest.mark.sliced
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_after_the_attack_all_others_are_served_and_every_byte_comes_back(
    node: RealNode, attack: Callable[[RealNode], None]
) -> None:
    calm = node.tick()
    attack(node)
    besides = {path: raw for path, raw in node.tree.content().items() if path not in node.found}
    tick = node.tick()
    assert node.agent.snapshot is not None
    read = {pod.key for pod in node.agent.snapshot.pods}
    assert attack is host_root or len(read) > 2, "the agent has the pods of the attack in its picture"
    machine = os.sched_getaffinity(0)
    assert not [d for d in tick.decisions if d.reason in ("StrategyFailed", "SubjectFailed")]
    assert not tick.because, tick.because
    web = node.tree.container(WEB, "main")
    assert 2 * len(node.tree.cpus(web)) >= len(machine), "services keep half of the CPUs"
    (limit,) = [d for d in tick.decisions if d.strategy == "cpuSuppress" and d.subject == "besteffort"]
    assert limit.reason == next(
        d.reason for d in calm.decisions if d.strategy == "cpuSuppress" and d.subject == "besteffort"
    )
    assert node.tree.cpus(node.tree.container(BATCH, "main")) <= machine
    others = {(d.strategy, d.subject): d.reason for d in calm.decisions if d.subject.startswith("pod/")}
    after = {(d.strategy, d.subject): d.reason for d in tick.decisions}
    assert {key: after.get(key) for key in others} == others, "the same is said of every other pod"
    for group in node.tree.groups()[:200]:
        shares = int((node.tree.points["cpu"] / group / "cpu.shares").read_text())
        assert shares <= 1024 * len(machine), "nobody has the weight of a whole node"
    steps = restore(node.agent._host, node.journal, node.cluster)
    assert all(step.ok for step in steps)
    assert node.tree.changed({**node.found, **besides}) == {}
